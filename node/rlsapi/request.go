package rlsapi

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/peer"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/node/rules"
)

// scratch is the memory of one request, reused by later ones.
type scratch struct {
	req     rules.Request
	entries []rules.Entry // what req.Descriptors point into
	asks    []rules.Ask
	met     []*rules.Rule // the matching rule of each descriptor; nil: none
	layers  []counters.Decision
	fields  []answer.Field
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func takeScratch() *scratch { return scratches.Get().(*scratch) }

// release drops all strings, rules and limits, and keeps the memory.
func (t *scratch) release() {
	clear(t.entries)
	clear(t.req.Descriptors)
	clear(t.asks)
	clear(t.met)
	clear(t.layers)
	clear(t.fields)
	*t = scratch{rules.Request{Descriptors: t.req.Descriptors[:0]}, t.entries[:0], t.asks[:0], t.met[:0], t.layers[:0],
		t.fields[:0]}
	scratches.Put(t)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", rules.ErrInvalidRequest, fmt.Sprintf(format, args...))
}

// translate turns in into t.req, which points into it. Its errors wrap rules.ErrInvalidRequest.
func (t *scratch) translate(ctx context.Context, in *rls.RateLimitRequest, s *Service) error {
	descriptors := in.GetDescriptors()
	if len(descriptors) > rules.MaxDescriptors {
		return invalid("%d descriptors, at most %d are allowed", len(descriptors), rules.MaxDescriptors)
	}
	t.req.Domain, t.req.Cost, t.req.Overdraw = in.GetDomain(), uint64(in.GetHitsAddend()), true
	asks := false
	for i, d := range descriptors {
		if n := len(d.GetEntries()); n > rules.MaxEntries {
			return invalid("descriptor %d has %d entries, at most %d are allowed", i+1, n, rules.MaxEntries)
		}
		if d.GetIsNegativeHits() {
			return invalid("descriptor %d has hits below zero: nothing is given back "+
				"(is_negative_hits is not supported)", i+1)
		}
		t.addEntries(d)
		asks = asks || d.GetHitsAddend() != nil || d.GetLimit() != nil
	}
	t.met = append(t.met, make([]*rules.Rule, len(descriptors))...)
	if asks {
		return t.addAsks(ctx, descriptors, s)
	}
	return nil
}

// addEntries adds a descriptor to the request, which points into d.
func (t *scratch) addEntries(d *common.RateLimitDescriptor) {
	first := len(t.entries)
	for _, e := range d.GetEntries() {
		t.entries = append(t.entries, rules.Entry{Key: e.GetKey(), Value: e.GetValue()})
	}
	t.req.Descriptors = append(t.req.Descriptors, t.entries[first:len(t.entries):len(t.entries)])
}

// addAsks adds each descriptor's own hits, in place of the request's, and its ad-hoc limit. No hits are a peek.
func (t *scratch) addAsks(ctx context.Context, descriptors []*common.RateLimitDescriptor, s *Service) error {
	var adHoc [rules.MaxDescriptors]override // zero for a descriptor without one
	for i, d := range descriptors {
		ask := rules.Ask{Cost: t.req.EffectiveCost()}
		if hits := d.GetHitsAddend(); hits != nil {
			ask.Cost = hits.GetValue()
		}
		t.asks = append(t.asks, ask)
		if l := d.GetLimit(); l != nil {
			var err error
			if adHoc[i], err = overrideOf(i+1, l); err != nil {
				return err
			}
		}
	}
	t.req.Asks = t.asks
	if adHoc == [rules.MaxDescriptors]override{} {
		return nil
	}
	// Limits are kept for long: no invalid request adds one, nor one in a domain without rules.
	if err := t.req.Validate(); err != nil || !s.limiter.HasDomain(t.req.Domain) {
		return err
	}
	now, from := time.Now(), sourceOf(ctx)
	for i := range t.asks {
		if adHoc[i] == (override{}) {
			continue
		}
		if err := s.setLimit(&t.asks[i], adHoc[i], from, now); err != nil {
			return err
		}
	}
	return nil
}

// setLimit sets the ad-hoc limit of an ask, which a source charges at a time. A peek keeps nothing.
func (s *Service) setLimit(ask *rules.Ask, o override, from netip.Addr, now time.Time) (err error) {
	if ask.Cost == 0 {
		ask.Limit, err = s.overrides.Peek(o)
	} else {
		ask.Limit, err = s.overrides.Charge(o, from, now)
	}
	return err
}

// sourceOf returns the source of a gRPC request; all of HTTP have the same.
func sourceOf(ctx context.Context) netip.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		if tcp, ok := p.Addr.(*net.TCPAddr); ok {
			return limits.SourceOf(tcp.AddrPort().Addr())
		}
	}
	return netip.Addr{}
}

// MaxOverrides caps the ad-hoc limits that are kept, each with its own number or window. Package limits evicts.
const MaxOverrides = 512

// override is an ad-hoc limit: one that a request brings along.
type override struct {
	max    uint32
	window time.Duration
	tally  bool // in a compatible domain: all maxima of a window count together
}

const day = 24 * time.Hour

// windows are the lengths of units, as in rules. Requests and responses number units in the same way, but for the week,
// which has no name in requests; like envoyproxy/ratelimit, the service takes its number there as well.
var windows = [...]time.Duration{
	rls.RateLimitResponse_RateLimit_SECOND: time.Second,
	rls.RateLimitResponse_RateLimit_MINUTE: time.Minute,
	rls.RateLimitResponse_RateLimit_HOUR:   time.Hour,
	rls.RateLimitResponse_RateLimit_DAY:    day,
	rls.RateLimitResponse_RateLimit_WEEK:   7 * day,
	rls.RateLimitResponse_RateLimit_MONTH:  30 * day,
	rls.RateLimitResponse_RateLimit_YEAR:   365 * day,
}

// unitOf returns the unit of a window. All but whole units are UNKNOWN, which is 0: a client older than unit_multiplier
// would take "10 seconds" for one.
func unitOf(window time.Duration) rls.RateLimitResponse_RateLimit_Unit {
	return rls.RateLimitResponse_RateLimit_Unit(max(0, slices.Index(windows[:], window)))
}

// overrideOf reads the ad-hoc limit of descriptor n, counted from 1. Its errors wrap rules.ErrInvalidRequest.
func overrideOf(n int, l *common.RateLimitDescriptor_RateLimitOverride) (override, error) {
	unit := l.GetUnit()
	if unit <= 0 || int(unit) >= len(windows) {
		return override{}, invalid("the limit of descriptor %d is per %s: use a unit from SECOND to YEAR", n, unit)
	}
	times, window := uint32(1), windows[unit]
	if m := l.GetUnitMultiplier(); m != nil {
		times = m.GetValue()
	}
	if highest := int64(counters.MaxWindow / window); times == 0 || int64(times) > highest {
		return override{}, invalid("the limit of descriptor %d is per %d times %s: use 1 to %d", n, times, unit,
			highest)
	}
	return override{max: l.GetRequestsPerUnit(), window: time.Duration(times) * window}, nil
}

// limit makes the limit. No rule can have its meter's name: in rules, a percent sign comes before two digits.
func (o override) limit(a counters.Algorithm) (*counters.Limit, error) {
	if o.tally {
		m := counters.NewMeter(fmt.Sprintf("%%tally/%v", o.window), counters.FixedWindow, o.window)
		return counters.LimitConfig{Meter: m, Max: uint64(o.max), Tally: true}.New()
	}
	name := fmt.Sprintf("%%override/%d/%v", o.max, o.window)
	l, err := counters.NewLimit(counters.NewMeter(name, a, o.window), uint64(o.max))
	if err != nil {
		return nil, invalid("%v", err)
	}
	return l, nil
}
