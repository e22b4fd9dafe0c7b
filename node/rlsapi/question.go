package rlsapi

import (
	"fmt"
	"sync"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/httpapi"
	"github.com/edgelimit/edgelimit/node/rules"
)

// question is the memory of one request, used again by later ones.
type question struct {
	req     rules.Request
	entries []rules.Entry // what req.Descriptors point into
	asks    []rules.Ask
	met     []*rules.Rule // of each descriptor
	layers  []counters.Decision
	fields  []httpapi.Field
}

var questions = sync.Pool{New: func() any { return new(question) }}

func takeQuestion() *question { return questions.Get().(*question) }

// giveBack lets go of all strings, rules and limits, and keeps their memory.
func (q *question) giveBack() {
	clear(q.entries)
	clear(q.req.Descriptors)
	clear(q.asks)
	clear(q.met)
	clear(q.layers)
	clear(q.fields)
	*q = question{req: rules.Request{Descriptors: q.req.Descriptors[:0]}, entries: q.entries[:0], asks: q.asks[:0], met: q.met[:0],
		layers: q.layers[:0], fields: q.fields[:0]}
	questions.Put(q)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", rules.ErrInvalidRequest, fmt.Sprintf(format, args...))
}

// translate makes the question of a request, which is not to be changed meanwhile. Its errors wrap rules.ErrInvalidRequest, or
// limits.ErrFull.
func (q *question) translate(req *rls.RateLimitRequest, s *Service) error {
	descriptors := req.GetDescriptors()
	if len(descriptors) > rules.MaxDescriptors {
		return invalid("%d descriptors, at most %d are allowed", len(descriptors), rules.MaxDescriptors)
	}
	q.req.Domain, q.req.Cost = req.GetDomain(), uint64(req.GetHitsAddend())
	special := false
	for i, d := range descriptors {
		if err := q.addEntries(i+1, d); err != nil {
			return err
		}
		special = special || d.GetHitsAddend() != nil || d.GetLimit() != nil
		if d.GetIsNegativeHits() {
			return invalid("descriptor %d has hits below zero: what was charged is not given back", i+1)
		}
	}
	if special {
		if err := q.addAsks(descriptors, s); err != nil {
			return err
		}
	}
	q.met = append(q.met, make([]*rules.Rule, len(descriptors))...)
	return nil
}

// addEntries adds the descriptor with the number n, counted from 1.
func (q *question) addEntries(n int, d *common.RateLimitDescriptor) error {
	if len(d.GetEntries()) > rules.MaxEntries {
		return invalid("descriptor %d has %d entries, at most %d are allowed", n, len(d.GetEntries()), rules.MaxEntries)
	}
	first := len(q.entries)
	for _, e := range d.GetEntries() {
		q.entries = append(q.entries, rules.Entry{Key: e.GetKey(), Value: e.GetValue()})
	}
	q.req.Descriptors = append(q.req.Descriptors, q.entries[first:len(q.entries):len(q.entries)])
	return nil
}

// addAsks adds what each descriptor asks for by itself: its own hits, of which none are a peek, in place of the request's; and a limit.
func (q *question) addAsks(descriptors []*common.RateLimitDescriptor, s *Service) error {
	var brought [rules.MaxDescriptors]override
	brings := false
	for i, d := range descriptors {
		ask := rules.Ask{Cost: q.req.EffectiveCost()}
		if hits := d.GetHitsAddend(); hits != nil {
			ask.Cost = hits.GetValue()
		}
		if l := d.GetLimit(); l != nil {
			var err error
			if brought[i], err = overrideOf(i+1, l); err != nil {
				return err
			}
			brings = true
		}
		q.asks = append(q.asks, ask)
	}
	q.req.Asks = q.asks
	if !brings {
		return nil
	}
	// A limit is kept for long: not for a request that makes no sense, nor where none is met.
	if err := q.req.Validate(); err != nil || !s.limiter.HasDomain(q.req.Domain) {
		return err
	}
	now := s.now()
	for i, d := range descriptors {
		if d.GetLimit() != nil {
			var err error
			if q.asks[i].Limit, err = s.overrides.Get(brought[i], now); err != nil {
				return err
			}
		}
	}
	return nil
}
