package rlsapi

import (
	"math"
	"net/http"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
)

// entry is the status of one descriptor with all that it points to.
type entry struct {
	status rls.RateLimitResponse_DescriptorStatus
	limit  rls.RateLimitResponse_RateLimit
	reset  durationpb.Duration
}

// response returns the response to a decided request.
func (s *Service) response(t *scratch) *rls.RateLimitResponse {
	n := len(t.req.Descriptors)
	entries := make([]entry, n)
	resp := &rls.RateLimitResponse{
		OverallCode: rls.RateLimitResponse_OK, Statuses: make([]*rls.RateLimitResponse_DescriptorStatus, n),
	}
	for i := range entries {
		entries[i].fill(&t.layers[i], t.met[i])
		resp.Statuses[i] = &entries[i].status
	}
	for i := range t.layers {
		if !t.layers[i].Allowed {
			resp.OverallCode = rls.RateLimitResponse_OVER_LIMIT
		}
	}
	var retryAfter int64
	t.fields, retryAfter = s.headers.Append(t.fields[:0], t.layers)
	if resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT {
		resp.RawBody = answer.NewDenial(http.StatusTooManyRequests, t.layers, retryAfter).JSON()
		t.fields = append(t.fields, answer.Field{Name: "Content-Type", Value: answer.ProblemType})
	}
	resp.ResponseHeadersToAdd = headerValues(t.fields)
	resp.DynamicMetadata = metadataOf(t.met, resp.Statuses)
	return resp
}

// fill sets the status of a descriptor by its decision and its matching rule; nil: none.
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

// unitOf returns the unit of a window. All but whole units are UNKNOWN: a client older than unit_multiplier would take
// "10 seconds" for one.
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

func headerValues(fields []answer.Field) []*core.HeaderValue {
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

// metadataOf merges the metadata of the rules whose descriptors are OK under "metadata", as envoyproxy/ratelimit does:
// maps are merged; of other values the first wins. It is nil without any metadata.
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
	merged, err := structpb.NewStruct(map[string]any{"metadata": all})
	if err != nil { // a value that JSON lacks: no rule file has one
		return nil
	}
	return merged
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
