package rlsapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// fake is a limiter that says what it was told to, of every descriptor the same.
type fake struct {
	said  counters.Decision
	more  []counters.Decision // of parents
	met   []*rules.Rule
	err   error
	asked rules.Request // the last one
}

func (f *fake) Compatible(string) bool { return false }

func (f *fake) HasDomain(name string) bool { return name != "elsewhere" }

func (f *fake) DecideMet(
	_ context.Context, req *rules.Request, layers []counters.Decision, met []*rules.Rule,
) ([]counters.Decision, error) {
	if len(layers) != 0 || len(met) != len(req.Descriptors) {
		panic("layers of another request")
	}
	f.asked = rules.Request{Domain: req.Domain, Cost: req.Cost, Asks: append([]rules.Ask(nil), req.Asks...)}
	for i := range req.Descriptors {
		f.asked.Descriptors = append(f.asked.Descriptors, append([]rules.Entry(nil), req.Descriptors[i]...))
		layers = append(layers, f.said)
	}
	copy(met, f.met)
	return append(layers, f.more...), f.err
}

// newQuiet returns a service of which every answer is known in advance.
func newQuiet(l Limiter, opt Options) *Service {
	opt.Logger = slog.New(slog.DiscardHandler)
	s := New(l, opt)
	s.headers = quietHeaders(opt.Headers)
	return s
}

func quietHeaders(families []string) *answer.Headers {
	h, _ := answer.NewHeaders(families, func() time.Time { return time.Unix(1_700_000_000, 1) },
		func() float64 { return 0 })
	return h
}

// descriptor is one of so many entries: k0=v0, k1=v1.
func descriptor(entries int) *common.RateLimitDescriptor {
	made := new(common.RateLimitDescriptor)
	for i := range entries {
		made.Entries = append(made.Entries,
			&common.RateLimitDescriptor_Entry{Key: fmt.Sprint("k", i), Value: fmt.Sprint("v", i)})
	}
	return made
}

func oneDescriptor() *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{descriptor(1)}}
}

func respond(t *testing.T, s *Service, req *rls.RateLimitRequest) *rls.RateLimitResponse {
	t.Helper()
	resp, err := s.ShouldRateLimit(t.Context(), req)
	testkit.Must(t, err)
	return resp
}

// What is asked of the limiter is what the request says, and nothing of the request before.
func TestQuestion(t *testing.T) {
	f := &fake{said: counters.Decision{Allowed: true}}
	s := newQuiet(f, Options{})
	long := &rls.RateLimitRequest{
		Domain:      "long",
		HitsAddend:  7,
		Descriptors: []*common.RateLimitDescriptor{descriptor(3), descriptor(1), descriptor(2)},
	}
	respond(t, s, long)
	want := rules.Request{Domain: "long", Cost: 7, Descriptors: [][]rules.Entry{
		{
			{Key: "k0", Value: "v0"},
			{Key: "k1", Value: "v1"},
			{Key: "k2", Value: "v2"},
		}, {{Key: "k0", Value: "v0"}}, {{Key: "k0", Value: "v0"}, {Key: "k1", Value: "v1"}},
	}}
	if !reflect.DeepEqual(f.asked, want) {
		t.Errorf("asked %+v, want %+v", f.asked, want)
	}
	respond(t, s, oneDescriptor())
	want = rules.Request{Domain: "d", Descriptors: [][]rules.Entry{{{Key: "k0", Value: "v0"}}}}
	if !reflect.DeepEqual(f.asked, want) {
		t.Errorf("asked %+v, want %+v", f.asked, want)
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		err    error
		code   codes.Code
		failed uint64
	}{
		{fmt.Errorf("%w: odd", rules.ErrInvalidRequest), codes.InvalidArgument, 0},
		{context.DeadlineExceeded, codes.DeadlineExceeded, 1},
		{context.Canceled, codes.Canceled, 1},
		{errors.New("a secret"), codes.Internal, 1},
	} {
		s := newQuiet(&fake{err: tt.err}, Options{})
		resp, err := s.ShouldRateLimit(t.Context(), oneDescriptor())
		if resp != nil || status.Code(err) != tt.code || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v, %v", tt.err, resp, err)
		}
		if got := s.Stats(); got != (Stats{Failed: tt.failed, Invalid: 1 - tt.failed}) {
			t.Errorf("%v: %+v", tt.err, got)
		}
		if _, _, err := s.JSON(t.Context(),
			[]byte(`{"domain":"d","descriptors":[{"entries":[{"key":"k"}]}]}`)); !errors.Is(
			err, tt.err) {
			t.Errorf("in JSON: %v, want %v", err, tt.err)
		}
	}
}

func TestJSONRefuses(t *testing.T) {
	for _, body := range []string{`[]`, `{"domain":1}`, `{"domian":"d"}`, `{"hitsAddend":-1}`, `{"domain":"d"}{}`,
		`null`} {
		f := &fake{err: rules.ErrInvalidRequest} // of null, which is an empty request
		_, _, err := newQuiet(f, Options{}).JSON(t.Context(), []byte(body))
		if !errors.Is(err, rules.ErrInvalidRequest) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// The headers are those of the HTTP API, over all layers, also those that have no status.
func TestHeaders(t *testing.T) {
	allowed := counters.Decision{
		Allowed: true, Rule: "child", Window: time.Minute, Limit: 10, Remaining: 9, ResetAfter: 30 * time.Second,
	}
	parent := counters.Decision{
		Allowed: true, Rule: "parent", Window: time.Hour, Limit: 10, Remaining: 1, ResetAfter: 90 * time.Second,
	}
	for _, families := range [][]string{nil, {answer.Draft11}, {answer.LegacyEpoch}, {answer.HeadersOff}} {
		var opt Options
		opt.Headers = families
		resp := respond(t, newQuiet(&fake{said: allowed, more: []counters.Decision{parent}}, opt), oneDescriptor())
		headers := quietHeaders(families)
		want, _ := headers.Append(nil, []counters.Decision{allowed, parent})
		if len(resp.ResponseHeadersToAdd) != len(want) || len(resp.Statuses) != 1 {
			t.Fatalf("%v: %v, want %v", families, resp, want)
		}
		for i, h := range resp.ResponseHeadersToAdd {
			if h.Key != want[i].Name || h.Value != want[i].Value {
				t.Errorf("%v: %v, want %v", families, h, want[i])
			}
		}
	}
	denied := counters.Decision{
		Rule: "r", Window: time.Minute, Limit: 10, RetryAfter: 1500 * time.Millisecond,
		ResetAfter: 61500 * time.Millisecond,
	}
	s := newQuiet(&fake{said: denied}, Options{})
	resp := respond(t, s, oneDescriptor())
	headers := make(map[string]string)
	for _, h := range resp.ResponseHeadersToAdd {
		headers[h.Key] = h.Value
	}
	if headers["Retry-After"] != "2" || headers["X-Ratelimit-Reset"] != "62" ||
		!strings.Contains(string(resp.RawBody), `"retry_after":2`) {
		t.Errorf("%v %s", headers, resp.RawBody)
	}
	if got := resp.Statuses[0].DurationUntilReset.AsDuration(); got != denied.ResetAfter {
		t.Errorf("until reset: %v", got)
	}
	if got := s.Stats(); got != (Stats{OverLimit: 1}) {
		t.Errorf("%+v", got)
	}
}

// A denial by a layer without a status, a parent's, is one of the request.
func TestDenialByAParent(t *testing.T) {
	resp := respond(
		t,
		newQuiet(&fake{said: counters.Decision{Allowed: true, Rule: "child"},
			more: []counters.Decision{{Rule: "parent"}}}, Options{}),
		oneDescriptor(),
	)
	if resp.OverallCode != rls.RateLimitResponse_OVER_LIMIT || resp.Statuses[0].Code != rls.RateLimitResponse_OK {
		t.Errorf("%v", resp)
	}
}

func TestMetadata(t *testing.T) {
	one := &rules.Rule{
		Metadata: map[string]any{
			"team":  "one",
			"list":  []any{1.5, true, nil, map[string]any{"x": "y"}},
			"quota": map[string]any{"name": "one"},
		},
	}
	two := &rules.Rule{
		Metadata: map[string]any{
			"team":  "two",
			"more":  2.0,
			"quota": map[string]any{"name": "two", "of": "b"},
			"list":  map[string]any{},
		},
	}
	f := &fake{said: counters.Decision{Allowed: true}, met: []*rules.Rule{nil, one, new(rules.Rule), two}}
	req := &rls.RateLimitRequest{
		Domain:      "d",
		Descriptors: []*common.RateLimitDescriptor{descriptor(1), descriptor(1), descriptor(1), descriptor(1)},
	}
	got := respond(t, newQuiet(f, Options{}), req).DynamicMetadata.AsMap()
	want := map[string]any{
		"metadata": map[string]any{"team": "one", "more": 2.0, "list": []any{1.5, true, nil, map[string]any{"x": "y"}},
			"quota": map[string]any{"name": "one", "of": "b"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if len(one.Metadata) != 3 || len(one.Metadata["quota"].(map[string]any)) != 1 {
		t.Error("the rules' metadata was written to")
	}
	f.said.Allowed = false
	if got := respond(t, newQuiet(f, Options{}), req).DynamicMetadata; got != nil {
		t.Errorf("of what is over its limit: %v", got)
	}
	f.said.Allowed, f.met = true, nil
	if got := respond(t, newQuiet(f, Options{}), req).DynamicMetadata; got != nil {
		t.Errorf("without any: %v", got)
	}
}

func TestOverrides(t *testing.T) {
	var learned atomic.Int64
	var opt Options
	opt.Algorithm, opt.Learn = counters.FixedWindow, func(all []*counters.Limit) { learned.Store(int64(len(all))) }
	f := &fake{said: counters.Decision{Allowed: true}}
	s := newQuiet(f, opt)
	domain := "elsewhere"
	bring := func(most uint32) error {
		req := oneDescriptor()
		req.Domain = cmp.Or(domain, req.Domain)
		req.HitsAddend = 3
		req.Descriptors = append(req.Descriptors, descriptor(1))
		req.Descriptors[1].Limit = &common.RateLimitDescriptor_RateLimitOverride{
			RequestsPerUnit: most, Unit: envoytype.RateLimitUnit_HOUR,
		}
		_, err := s.ShouldRateLimit(t.Context(), req)
		return err
	}
	for most := range uint32(MaxOverrides + 1) {
		testkit.Must(t, bring(most))
	}
	if got := s.Stats().Overrides; got != 0 || learned.Load() != 0 {
		t.Errorf("%d limits are kept of a domain that is not there", got)
	}
	domain = ""
	for most := range uint32(MaxOverrides) {
		testkit.Must(t, bring(most))
	}
	l := f.asked.Asks[1].Limit
	want := counters.Meter{
		Rule: "%override/511/1h0m0s", Algorithm: counters.FixedWindow, Window: time.Hour, Sub: time.Hour,
	}
	if l.Meter() != want || l.Max() != 511 || f.asked.Asks[0] != (rules.Ask{Cost: 3}) || f.asked.Asks[1].Cost != 3 {
		t.Errorf("%+v", f.asked.Asks)
	}
	if err := bring(511); err != nil || f.asked.Asks[1].Limit != l {
		t.Errorf("the same one again: %v", err)
	}
	for _, body := range []string{ // a peek makes no room, one more that is charged does
		`{"domain":"d","descriptors":[{"entries":[{"key":"k"}],"hitsAddend":"0","limit":{"requestsPerUnit":7,` +
			`"unit":"DAY"}}]}`,
		`{"domain":"d","descriptors":[{"entries":[{"key":"k"}],"limit":{"requestsPerUnit":8,"unit":"DAY"}}]}`,
	} {
		if _, allowed, err := s.JSON(t.Context(), []byte(body)); !allowed || err != nil {
			t.Errorf("one more: %v, %v", allowed, err)
		}
	}
	if got := s.Stats(); got.Overrides != MaxOverrides || got.Evicted != 1 || learned.Load() == 0 || got.Failed != 0 ||
		got.OK != 2*MaxOverrides+4 {
		t.Errorf("%+v, %d are known", got, learned.Load())
	}
}

// A limit that the default algorithm cannot hold is refused.
func TestOverrideOfALog(t *testing.T) {
	var opt Options
	opt.Algorithm = counters.SlidingLog
	req := oneDescriptor()
	req.Descriptors[0].Limit = &common.RateLimitDescriptor_RateLimitOverride{
		RequestsPerUnit: counters.MaxLog + 1, Unit: envoytype.RateLimitUnit_HOUR,
	}
	if _, err := newQuiet(&fake{}, opt).ShouldRateLimit(t.Context(), req); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v", err)
	}
}

func TestUnknownHeadersPanic(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	New(&fake{}, Options{Headers: []string{"nonsense"}})
}
