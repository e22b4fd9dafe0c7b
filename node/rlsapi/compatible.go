package rlsapi

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/ratelimit"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Answers in domains that are compatible with envoyproxy/ratelimit. The decisions are package rules' (compatible.go).

// refusal is the text of an error as envoyproxy/ratelimit writes it. It wraps rules.ErrInvalidRequest.
type refusal string

func (r refusal) Error() string { return string(r) }

func (r refusal) Unwrap() error { return rules.ErrInvalidRequest }

// unitless is how a request without a unit is refused: envoyproxy/ratelimit fails in the middle of it.
const unitless = refusal("the unit of a limit in the request is unknown")

// overflow is how more hits are refused than its Redis can count.
const overflow = refusal("hits_addend: ERR increment or decrement would overflow")

// The errors of requests that ask for nothing, which that server calls service errors.
const (
	noDomain      = refusal("rate limit domain must not be empty")
	noDescriptors = refusal("rate limit descriptor list must not be empty")
)

// decideCompatibly answers a request in a compatible domain. It may have any number of descriptors; those of one
// decision are decided together. A request that is refused charges nothing.
func (s *Service) decideCompatibly(
	ctx context.Context, in *rls.RateLimitRequest, t *scratch,
) (*rls.RateLimitResponse, error) {
	known := s.limiter.HasDomain(in.GetDomain())
	if err := checkCompatibly(in, known); err != nil {
		if s.stats != nil && (err == noDomain || err == noDescriptors) {
			s.stats.ServiceErrors.Add(1)
		}
		return nil, err
	}
	if s.stats != nil && !known {
		s.stats.DomainNotFound(in.GetDomain(), len(in.Descriptors))
	}
	x, err := s.interplayOf(ctx, in, t, known)
	if err != nil {
		return nil, err
	}
	a, first := newCompatibleAnswer(s, in), 0
	for part := range slices.Chunk(in.Descriptors, rules.MaxDescriptors) {
		if err = t.translateCompatibly(ctx, in, part, s, known, false); err != nil {
			return nil, err
		}
		x.apply(t, first)
		first += len(part)
		if t.layers, err = s.limiter.DecideMet(ctx, &t.req, t.layers[:0], t.met); err != nil {
			return nil, err
		}
		a.add(t, part)
	}
	return a.finish(), nil
}

// checkCompatibly returns why a request is refused, a refusal; nil if it is not. known: its domain has rules.
func checkCompatibly(in *rls.RateLimitRequest, known bool) error {
	switch {
	case in.GetDomain() == "":
		return noDomain
	case len(in.GetDescriptors()) == 0:
		return noDescriptors
	}
	for _, d := range in.Descriptors {
		unit := d.GetLimit().GetUnit()
		if d.GetLimit() != nil && known && (unit <= 0 || int(unit) >= len(windows)) {
			return unitless
		}
	}
	return nil
}

// translateCompatibly turns some descriptors of a checked request into t.req, which points into them; peek: charging
// nothing.
func (t *scratch) translateCompatibly(
	ctx context.Context, in *rls.RateLimitRequest, descriptors []*common.RateLimitDescriptor, s *Service,
	known, peek bool,
) error {
	clear(t.met)
	t.entries, t.asks, t.met = t.entries[:0], t.asks[:0], append(t.met[:0], make([]*rules.Rule, len(descriptors))...)
	t.req = rules.Request{Domain: in.GetDomain(), Cost: max(uint64(in.GetHitsAddend()), 1),
		Descriptors: t.req.Descriptors[:0]}
	now, from := time.Now(), sourceOf(ctx)
	for _, d := range descriptors {
		t.addEntries(d)
		ask := rules.Ask{Cost: hitsOf(in, d)}
		if peek {
			ask.Cost = 0
		}
		if l := d.GetLimit(); l != nil && known {
			o := override{max: l.GetRequestsPerUnit(), window: windows[l.GetUnit()], tally: true}
			if err := s.setLimit(&ask, o, from, now); err != nil {
				return err
			}
		}
		t.asks = append(t.asks, ask)
	}
	t.req.Asks = t.asks
	return nil
}

// compatibleAnswer gathers the response to a request.
type compatibleAnswer struct {
	*Service
	in       *rls.RateLimitRequest
	resp     *rls.RateLimitResponse
	metadata map[string]any // of the rules that admitted

	over               bool // a rule that is no quota denies
	quotas, quotasFull int
	remaining          uint32 // of tightest
	tightest           *rls.RateLimitResponse_DescriptorStatus
}

func newCompatibleAnswer(s *Service, in *rls.RateLimitRequest) *compatibleAnswer {
	return &compatibleAnswer{Service: s, in: in, remaining: math.MaxUint32,
		resp: &rls.RateLimitResponse{Statuses: make([]*rls.RateLimitResponse_DescriptorStatus, 0, len(in.Descriptors))}}
}

// add adds the statuses of descriptors that were decided in t.
func (a *compatibleAnswer) add(t *scratch, descriptors []*common.RateLimitDescriptor) {
	entries := make([]entry, len(descriptors))
	for i := range entries {
		e, d, met := &entries[i], &t.layers[i], t.met[i]
		a.resp.Statuses = append(a.resp.Statuses, &e.status)
		if t.asks[i].Limit != nil {
			met = nil // the descriptor's own limit has no name, no mode and no metadata
		}
		over := e.fillCompatibly(d, met)
		if d.Rule == "" && met != nil { // unlimited
			continue
		}
		a.judge(&e.status, over, met)
		if !over && met != nil && d.Rule != "" && a.ratelimit.DynamicMetadata &&
			ratelimit.KeepsMetadata(met, t.req.Descriptors[i]) {
			if a.metadata == nil {
				a.metadata = make(map[string]any)
			}
			mergeInto(a.metadata, met.Metadata)
		}
		if d.Rule != "" && d.Rule != rules.UnavailableName && a.stats != nil {
			hits := hitsOf(a.in, descriptors[i])
			a.stats.Count(&ratelimit.Hit{Domain: t.req.Domain, Entries: t.req.Descriptors[i], Rule: met, Limit: d.Limit,
				Before: d.Limit - d.Remaining + d.Excess - hits, Hits: hits})
		}
	}
}

// fillCompatibly sets the status of a descriptor by its decision and its matching rule, nil for none, and reports
// whether it is over the limit: a rule in shadow mode never is.
func (e *entry) fillCompatibly(d *counters.Decision, met *rules.Rule) (over bool) {
	if d.Rule == "" {
		if met != nil {
			e.status.LimitRemaining = math.MaxUint32
		}
		e.status.Code = rls.RateLimitResponse_OK
		return false
	}
	over = !d.Allowed || d.Waived && (d.Mode == counters.Shadow || d.Mode == counters.Quota)
	e.status.LimitRemaining = clamp(d.Remaining)
	if over {
		e.status.LimitRemaining = 0
	}
	over = over && (met == nil || met.Mode != counters.Shadow)
	e.status.Code = rls.RateLimitResponse_OK
	if over {
		e.status.Code = rls.RateLimitResponse_OVER_LIMIT
	}
	if met != nil {
		e.limit.Name = met.Given
	}
	e.limit.RequestsPerUnit, e.limit.Unit = clamp(d.Limit), unitOf(d.Window)
	e.reset.Seconds = int64((d.ResetAfter + time.Second - 1) / time.Second)
	e.status.CurrentLimit, e.status.DurationUntilReset = &e.limit, &e.reset
	return over
}

// judge adds a status to the overall code, and looks for the one that headers describe: that with the least remaining,
// or the last that denies.
func (a *compatibleAnswer) judge(status *rls.RateLimitResponse_DescriptorStatus, over bool, met *rules.Rule) {
	quota := a.ratelimit.QuotaMode || met != nil && (met.Mode == counters.Quota || met.Reference != nil &&
		met.Reference.QuotaMode)
	denies := over && !quota
	if status.CurrentLimit != nil && status.LimitRemaining < a.remaining || denies {
		a.tightest, a.remaining = status, status.LimitRemaining
	}
	a.over = a.over || denies
	if quota {
		a.quotas++
		if over {
			a.quotasFull++
		}
	}
}

// finish returns the response.
func (a *compatibleAnswer) finish() *rls.RateLimitResponse {
	resp := a.resp
	resp.OverallCode = rls.RateLimitResponse_OK
	if a.over || a.quotas > 0 && a.quotas == a.quotasFull {
		resp.OverallCode = rls.RateLimitResponse_OVER_LIMIT
	}
	if c := &a.ratelimit; c.Headers && a.tightest != nil {
		number := func(n uint64) string { return strconv.FormatUint(n, 10) }
		resp.ResponseHeadersToAdd = headerValues([]answer.Field{
			{Name: c.LimitHeader, Value: number(uint64(a.tightest.CurrentLimit.RequestsPerUnit))},
			{Name: c.RemainingHeader, Value: number(uint64(a.tightest.LimitRemaining))},
			{Name: c.ResetHeader, Value: number(uint64(a.tightest.DurationUntilReset.Seconds))},
		})
	}
	if resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT && a.shadow() {
		resp.OverallCode = rls.RateLimitResponse_OK
		if a.stats != nil {
			a.stats.GlobalShadow.Add(1)
		}
	}
	if a.ratelimit.DynamicMetadata {
		resp.DynamicMetadata = a.describe()
	}
	return resp
}

// describe returns the request as dynamic metadata, with the metadata of the rules that admitted it.
func (a *compatibleAnswer) describe() *structpb.Struct {
	var descriptors []any
	for _, d := range a.in.Descriptors {
		entries := []any{}
		for _, e := range d.GetEntries() {
			entries = append(entries, fmt.Sprintf("%s=%s", e.GetKey(), e.GetValue()))
		}
		fields := map[string]any{"entries": entries}
		if l := d.GetLimit(); l != nil {
			fields["limit"] = l.String()
		}
		if hits := d.GetHitsAddend(); hits != nil {
			fields["hitsAddend"] = hits.GetValue()
		}
		descriptors = append(descriptors, fields)
	}
	all := map[string]any{"domain": a.in.Domain, "descriptors": descriptors}
	if hits := a.in.GetHitsAddend(); hits != 0 {
		all["hitsAddend"] = hits
	}
	if len(a.metadata) > 0 {
		all["metadata"] = a.metadata
	}
	described, _ := structpb.NewStruct(all) // strings, numbers, and what a rule file can hold
	return described
}
