package rlsapi

import (
	"math"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/httpapi"
	"github.com/edgelimit/edgelimit/node/rules"
)

// entry is the answer to one descriptor with all that it points to.
type entry struct {
	status rls.RateLimitResponse_DescriptorStatus
	limit  rls.RateLimitResponse_RateLimit
	reset  durationpb.Duration
}

// response says what was decided.
func (s *Service) response(q *question) *rls.RateLimitResponse {
	n := len(q.req.Descriptors)
	entries := make([]entry, n)
	resp := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK, Statuses: make([]*rls.RateLimitResponse_DescriptorStatus, n)}
	for i := range entries {
		entries[i].fill(&q.layers[i], q.met[i])
		resp.Statuses[i] = &entries[i].status
	}
	for i := range q.layers {
		if !q.layers[i].Allowed {
			resp.OverallCode = rls.RateLimitResponse_OVER_LIMIT
		}
	}
	var retryAfter int64
	q.fields, retryAfter = s.headers.Append(q.fields[:0], q.layers)
	if resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT {
		resp.RawBody = httpapi.Denial(q.layers, retryAfter)
		q.fields = append(q.fields, httpapi.Field{Name: "Content-Type", Value: httpapi.ProblemType})
	}
	resp.ResponseHeadersToAdd = headerValues(q.fields)
	resp.DynamicMetadata = metadataOf(q.met, resp.Statuses)
	return resp
}

// fill says what was decided of a descriptor, and by which rule; nil: none.
func (e *entry) fill(d *counters.Decision, met *rules.Rule) {
	e.status.Code = rls.RateLimitResponse_OK
	if !d.Allowed || d.Waived && d.Mode == counters.Quota {
		e.status.Code = rls.RateLimitResponse_OVER_LIMIT
	}
	if d.Rule == "" {
		if met != nil { // nothing limits it: the rule is unlimited, or its allow list names who asks
			e.status.LimitRemaining = math.MaxUint32
		}
		return
	}
	e.limit.Name, e.limit.RequestsPerUnit, e.limit.Unit = d.Rule, clamp(d.Limit), unitOf(d.Window)
	e.status.CurrentLimit, e.status.LimitRemaining = &e.limit, clamp(d.Remaining)
	e.reset.Seconds, e.reset.Nanos = int64(d.ResetAfter/time.Second), int32(d.ResetAfter%time.Second)
	e.status.DurationUntilReset = &e.reset
}

func clamp(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

// unitOf is the unit of a window. Others than whole units are UNKNOWN: clients that are older than unit_multiplier would take "10 seconds"
// for one.
func unitOf(window time.Duration) rls.RateLimitResponse_RateLimit_Unit {
	switch window {
	case time.Second:
		return rls.RateLimitResponse_RateLimit_SECOND
	case time.Minute:
		return rls.RateLimitResponse_RateLimit_MINUTE
	case time.Hour:
		return rls.RateLimitResponse_RateLimit_HOUR
	case day:
		return rls.RateLimitResponse_RateLimit_DAY
	case 7 * day:
		return rls.RateLimitResponse_RateLimit_WEEK
	case 30 * day:
		return rls.RateLimitResponse_RateLimit_MONTH
	case 365 * day:
		return rls.RateLimitResponse_RateLimit_YEAR
	}
	return rls.RateLimitResponse_RateLimit_UNKNOWN
}

func headerValues(fields []httpapi.Field) []*core.HeaderValue {
	if len(fields) == 0 {
		return nil
	}
	values, pointers := make([]core.HeaderValue, len(fields)), make([]*core.HeaderValue, len(fields))
	for i, f := range fields {
		values[i].Key, values[i].Value = f.Name, f.Value
		pointers[i] = &values[i]
	}
	return pointers
}

// metadataOf is what the rules tell others whose descriptors are OK, taken together under "metadata", as envoyproxy/ratelimit has it: maps
// are merged, and of anything else that several say, it is the first one's. It is nil if none says anything.
func metadataOf(met []*rules.Rule, statuses []*rls.RateLimitResponse_DescriptorStatus) *structpb.Struct {
	var all map[string]any
	for i, r := range met {
		if r == nil || len(r.Metadata) == 0 || statuses[i].Code != rls.RateLimitResponse_OK {
			continue
		}
		if all == nil {
			all = make(map[string]any)
		}
		mergeInto(all, r.Metadata)
	}
	if all == nil {
		return nil
	}
	told, err := structpb.NewStruct(map[string]any{"metadata": all})
	if err != nil { // it holds what no JSON can: a rule file cannot say such a thing
		return nil
	}
	return told
}

// mergeInto adds what dst lacks. Maps of src are copied, not shared.
func mergeInto(dst, src map[string]any) {
	for key, value := range src {
		from, isMap := value.(map[string]any)
		to, both := dst[key].(map[string]any)
		switch _, taken := dst[key]; {
		case isMap && both:
			mergeInto(to, from)
		case taken:
		case isMap:
			to = make(map[string]any, len(from))
			mergeInto(to, from)
			dst[key] = to
		default:
			dst[key] = value
		}
	}
}
