package rlsapi

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// FuzzRequest: whatever bytes come, they are refused or answered with one status for each descriptor, and what the
// limiter is asked is within what rules accept. Answers can be encoded.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		"\x0a\x04edge\x12\x0f\x0a\x0d\x0a\x06client\x12\x03a=b",
		"\x0a\x04edge\x12\x14\x0a\x0d\x0a\x06client\x12\x03a=b\x12\x04\x08\x05\x10\x03\x18\x07",
		"\x0a\x04edge\x12\x13\x0a\x0d\x0a\x06client\x12\x03a=b\x1a\x02\x08\x00",
		"\x0a\x04edge\x12\x11\x0a\x0d\x0a\x06client\x12\x03a=b\x20\x01",
		"\x12\x00\x12\x00", "\x0a\xff\xff\xff\xff\x0f", "",
	} {
		f.Add([]byte(seed), uint64(1), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, number uint64, allowed bool) {
		var req rls.RateLimitRequest
		if proto.Unmarshal(body, &req) != nil {
			return
		}
		d := counters.Decision{
			Allowed: allowed, Rule: "r", Limit: number, Remaining: number / 2, Mode: counters.Mode(number % 5),
			Waived: allowed && number%2 == 0,
		}
		limiter := &fake{said: d, met: []*rules.Rule{{Metadata: map[string]any{"a": 1.0}}}}
		s := newQuiet(limiter, Options{})
		resp, err := s.ShouldRateLimit(t.Context(), &req)
		if err != nil {
			if resp != nil || status.Code(err) != codes.InvalidArgument ||
				s.Stats() != (Stats{Invalid: 1, Overrides: s.Stats().Overrides}) {
				t.Fatalf("%v, %v, %+v", resp, err, s.Stats())
			}
			return
		}
		asked := &limiter.asked
		if n := len(asked.Descriptors); n != len(req.Descriptors) || n > rules.MaxDescriptors ||
			asked.Asks != nil && len(asked.Asks) != n {
			t.Fatalf("asked %+v of %v", asked, &req)
		}
		for i, entries := range asked.Descriptors {
			if len(entries) != len(req.Descriptors[i].Entries) || len(entries) > rules.MaxEntries {
				t.Fatalf("asked %v of %v", entries, req.Descriptors[i])
			}
		}
		if len(resp.Statuses) != len(req.Descriptors) ||
			(resp.OverallCode == rls.RateLimitResponse_OK) != (allowed || len(req.Descriptors) == 0) {
			t.Fatalf("%v of %v", resp, &req)
		}
		if resp.RawBody != nil && !json.Valid(resp.RawBody) {
			t.Fatalf("body %s", resp.RawBody)
		}
		if _, err := proto.Marshal(resp); err != nil {
			t.Fatal(err)
		}
		if again, err := newQuiet(limiter, Options{}).ShouldRateLimit(t.Context(), &req); err != nil ||
			!proto.Equal(again, resp) {
			t.Fatalf("at first %v, then %v, %v", resp, again, err)
		}
	})
}

// FuzzJSON is the same of what comes to /json.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"domain":"edge","descriptors":[{"entries":[{"key":"client","value":"a"}]}],"hitsAddend":2}`,
		`{"domain":"edge","descriptors":[{"entries":[{"key":"k"}],"limit":{"requestsPerUnit":5,"unit":"HOUR",` +
			`"unitMultiplier":2},"hitsAddend":"0"}]}`,
		`{"descriptors":[{"isNegativeHits":true}]}`, `{}`, `null`, `[`, `{"domain":"\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s := newQuiet(&fake{said: counters.Decision{Allowed: true, Rule: "r", Limit: 5}}, Options{})
		answer, allowed, err := s.JSON(t.Context(), body)
		if err != nil {
			if status.Code(s.statusOf(t.Context(), err)) != codes.InvalidArgument || answer != nil || allowed {
				t.Fatalf("%s, %v, %v", answer, allowed, err)
			}
			return
		}
		if !json.Valid(answer) || !allowed {
			t.Fatalf("%s, %v", answer, allowed)
		}
	})
}

// Whatever bytes come, nothing breaks, what gRPC's own codec can read is read as it reads it, and what is repaired
// holds nothing but UTF-8.
func FuzzCodec(f *testing.F) {
	f.Add([]byte("\n\x04edge\x12\x0b\n\t\n\x01a\x12\x04\xff\xfek\xe2"))
	f.Add([]byte("\n\x04edge\x12\x08\n\x06\n\x01a\x12\x01b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var own, plain rls.RateLimitRequest
		err := codec{encoding.GetCodecV2("proto")}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &own)
		switch base := proto.Unmarshal(b, &plain); {
		case base == nil && (err != nil || !proto.Equal(&own, &plain)):
			t.Errorf("it reads %v, %v where gRPC reads %v", &own, err, &plain)
		case err == nil:
			for _, d := range own.GetDescriptors() {
				for _, e := range d.GetEntries() {
					if !utf8.ValidString(e.GetKey()) || !utf8.ValidString(e.GetValue()) {
						t.Errorf("%q is no UTF-8", e)
					}
				}
			}
		}
	})
}
