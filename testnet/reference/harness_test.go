package reference

import (
	"slices"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

type response = rls.RateLimitResponse

// changes are responses that differ from fullResponse in one field.
var changes = []struct {
	field  string
	change func(*response)
}{
	{"overall_code", func(r *response) { r.OverallCode = 2 }},
	{"raw_body", func(r *response) { r.RawBody = nil }},
	{"statuses[0].code", func(r *response) { r.Statuses[0].Code = 2 }},
	{"statuses[0].current_limit", func(r *response) { r.Statuses[0].CurrentLimit.Reset() }},
	{"statuses[0].current_limit.name", func(r *response) { r.Statuses[0].CurrentLimit.Name = "" }},
	{"statuses[0].limit_remaining", func(r *response) { r.Statuses[0].LimitRemaining = 0 }},
	{"statuses[0].duration_until_reset.nanos", func(r *response) { r.Statuses[0].DurationUntilReset.Nanos = 1 }},
	{"statuses[0].quota", func(r *response) { r.Statuses[0].Quota = new(rls.RateLimitResponse_Quota) }},
	{"statuses[1]", func(r *response) {
		r.Statuses = append(r.Statuses, new(rls.RateLimitResponse_DescriptorStatus))
	}},
	{"response_headers_to_add[0].key", func(r *response) { r.ResponseHeadersToAdd[0].Key = "x" }},
	{"request_headers_to_add[0].key", func(r *response) { r.RequestHeadersToAdd = r.ResponseHeadersToAdd }},
	{`dynamic_metadata.fields["a"].bool_value`, func(r *response) {
		r.DynamicMetadata.Fields["a"] = structpb.NewBoolValue(false)
	}},
	{"unknown", func(r *response) { r.ProtoReflect().SetUnknown([]byte{0xf8, 0x7f, 1}) }},
}

func fullResponse() *response {
	return &response{
		OverallCode: rls.RateLimitResponse_OK, RawBody: []byte("body"),
		Statuses: []*rls.RateLimitResponse_DescriptorStatus{{
			Code: rls.RateLimitResponse_OK, LimitRemaining: 3, DurationUntilReset: durationpb.New(time.Second),
			CurrentLimit: &rls.RateLimitResponse_RateLimit{Name: "n", RequestsPerUnit: 4, Unit: 3},
		}},
		ResponseHeadersToAdd: []*core.HeaderValue{{Key: "k", Value: "v"}},
		DynamicMetadata:      &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewBoolValue(true)}},
	}
}

// Whatever two responses do not share, compare finds, and where.
func TestCompare(t *testing.T) {
	for _, test := range changes {
		theirs, ours, changed := make(answer), make(answer), fullResponse()
		test.change(changed)
		theirs.addMessage("", fullResponse().ProtoReflect())
		ours.addMessage("", changed.ProtoReflect())
		found := compare(theirs, ours)
		if !slices.ContainsFunc(found, func(d difference) bool { return d.field == test.field }) {
			t.Errorf("%s: found %v", test.field, found)
		}
		decides := test.field == "overall_code" || test.field == "statuses[0].code"
		if decides != slices.ContainsFunc(found, difference.decides) {
			t.Errorf("%s: want %v for whether it decides", test.field, decides)
		}
	}
}

func TestPause(t *testing.T) {
	at := func(minute, second, milli int) time.Time {
		return time.Date(2026, 1, 1, 0, minute, second, milli*1e6, time.UTC)
	}
	for _, test := range []struct {
		now, last time.Time
		window    time.Duration
		until     time.Time
	}{
		{now: at(0, 5, 500), last: at(0, 5, 400), until: at(0, 5, 500)},
		{now: at(0, 5, 5), last: at(0, 4, 900), until: at(0, 5, 30)},
		{now: at(0, 5, 970), last: at(0, 5, 900), until: at(0, 6, 30)},
		{now: at(0, 59, 800), last: at(0, 59, 700), until: at(1, 1, 30)},
		{now: at(1, 0, 500), last: at(0, 59, 700), until: at(1, 1, 30)},
		{now: at(0, 5, 500), last: at(0, 5, 400), window: time.Second, until: at(0, 6, 30)},
		{now: at(0, 6, 500), last: at(0, 5, 400), window: time.Second, until: at(0, 6, 500)},
		{now: at(0, 5, 500), last: at(0, 5, 400), window: time.Minute, until: at(1, 0, 30)},
	} {
		if got := test.now.Add(pause(test.now, test.last, test.window)); !got.Equal(test.until) {
			t.Errorf("%v after %v, %v: until %v, want %v", test.now, test.last, test.window, got, test.until)
		}
	}
}

func TestProxiesOnly(t *testing.T) {
	for goproxy, want := range map[string]string{
		"https://proxy.golang.org,direct": "https://proxy.golang.org", "direct": "", "off": "", "": "",
		"https://a.example|https://b.example,direct": "https://a.example,https://b.example",
	} {
		if got := proxiesOnly(goproxy); got != want {
			t.Errorf("%q: %q, want %q", goproxy, got, want)
		}
	}
}
