package rlsapi

import (
	"math"
	"net/http"
	"slices"
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
	var retryAfter int64
	t.fields, retryAfter = s.headers.Append(t.fields[:0], t.layers)
	if slices.ContainsFunc(t.layers, func(d counters.Decision) bool { return !d.Allowed }) {
		resp.OverallCode = rls.RateLimitResponse_OVER_LIMIT
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
		if r != nil && len(r.Metadata) > 0 && statuses[i].Code == rls.RateLimitResponse_OK {
			if all == nil {
				all = make(map[string]any)
			}
			mergeInto(all, r.Metadata)
		}
	}
	if all == nil {
		return nil
	}
	merged, _ := structpb.NewStruct(map[string]any{"metadata": all}) // nil for a value that JSON, so a rule file, lacks
	return merged
}

// mergeInto adds what dst lacks. Maps of src are copied, not shared.
func mergeInto(dst, src map[string]any) {
	for key, value := range src {
		from, isMap := value.(map[string]any)
		_, taken := dst[key]
		if isMap && !taken {
			dst[key] = make(map[string]any, len(from))
		}
		if to, both := dst[key].(map[string]any); isMap && both {
			mergeInto(to, from)
		} else if !taken {
			dst[key] = value
		}
	}
}
