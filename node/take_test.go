package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/httpapi"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Tables of two nodes hash keys with seeds of their own.
func TestNodesHaveSeedsOfTheirOwn(t *testing.T) {
	if a, b := rand.Uint64(), rand.Uint64(); a == b || a == 0 || b == 0 {
		t.Errorf("seeds %d and %d", a, b)
	}
}

const overdrawn = `
domain: test
descriptors:
  - {key: client, rate_limit: {name: client, unit: hour, requests_per_unit: 10, overdraw: charge}}
  - {key: plain, rate_limit: {name: plain, unit: hour, requests_per_unit: 10}}
`

// In the library a rule says that its limit may be overdrawn. A cost of 1 does not overdraw it, nor is a rule that
// says nothing overdrawn.
func TestOverdraw(t *testing.T) {
	n := idle(t, overdrawn)
	for _, step := range []struct {
		rule string
		cost uint64
		want string
	}{
		{"client", 7, "true 3"}, {"client", 5, "false 0"}, {"client", 1, "false 0"},
		{"plain", 7, "true 3"}, {"plain", 5, "false 3"}, {"plain", 50, "false 3"}, {"plain", 3, "true 0"},
	} {
		d := take(t, n, Request{Rule: step.rule, Identity: "x", Cost: step.cost})
		if got := fmt.Sprint(d.Allowed, " ", d.Remaining); got != step.want {
			t.Errorf("%s, a cost of %d: %s, want %s", step.rule, step.cost, got, step.want)
		}
	}
	for range 100 {
		take(t, n, Request{Rule: "client", Identity: "x"})
	}
	used := uint64(0)
	for _, s := range n.Slots() {
		if strings.HasSuffix(s.Meter.Rule, "client") {
			used += s.Count
		}
	}
	if used != 12 {
		t.Errorf("%d are used, want 7, which were admitted, and the 5 of the overdraft", used)
	}
}

// A check with a request_id that is sent again overdraws its limit once.
func TestAnOverdraftIsChargedOnce(t *testing.T) {
	n := idle(t, overdrawn)
	api := httpapi.New(n, httpapi.Options{})
	body := `{"rule":"client","identity":"x","cost":12,"request_id":"a"}`
	for range 3 {
		answer := httptest.NewRecorder()
		api.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(body)))
		if !strings.Contains(answer.Body.String(), `"allowed":false`) {
			t.Errorf("%d: %s", answer.Code, answer.Body)
		}
	}
	if slots := n.Slots(); len(slots) != 1 || slots[0].Count != 12 {
		t.Errorf("%+v, want 12 counted once", slots)
	}
}

func TestTakeUnmatched(t *testing.T) {
	n := idle(t, layered)
	for _, req := range []Request{ask(by("nobody", "x")),
		ask([]rules.Entry{{Key: "client", Value: "x"}, {Key: "deeper", Value: "y"}}),
		ask(by("nobody", "x"), by("nothing", "y")),
		{Domain: "unheard of", Descriptors: [][]rules.Entry{by("client", "x")}}} {
		if d := take(t, n, req); d != (Decision{Allowed: true}) {
			t.Errorf("%v: %+v, want allowed by no rule", req, d)
		}
	}
	if keys := n.table.Stats().Keys; keys != 0 {
		t.Errorf("requests that meet no rule left %d counters", keys)
	}
}

func TestTakeUnlimited(t *testing.T) {
	n := idle(t, layered)
	for range 1000 {
		if d := take(t, n, ask(by("plan", "partner"))); d != (Decision{Allowed: true}) {
			t.Fatalf("got %+v", d)
		}
	}
	if keys := n.table.Stats().Keys; keys != 0 {
		t.Errorf("unlimited requests left %d counters", keys)
	}
	for r, tally := range n.policy.Load().tallies {
		if r.Name == "partner" && tally.allowed.Load() != 1000 {
			t.Errorf("%d requests counted, want 1000", tally.allowed.Load())
		}
	}
	// A rule without a limit has none to tell of, wherever it stands.
	for _, req := range []Request{ask(by("plan", "partner"), by("client", "x")),
		ask(by("client", "y"), by("plan", "partner"))} {
		if d := take(t, n, req); d.Rule != "per_client" || d.Remaining != 9 {
			t.Errorf("beside an unlimited layer: %+v", d)
		}
	}
}

func TestTakeLimits(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		n := idle(t, layered)
		for i := range uint64(3) {
			want := Decision{
				Allowed: true, Rule: "per_endpoint", Window: 10 * time.Second, Limit: 3, Remaining: 2 - i,
				ResetAfter: 11 * time.Second,
			}
			if i == 0 { // one alone is an even share, which counts until the sub-window begins to leave
				want.ResetAfter = 10 * time.Second
			}
			// the bubble's clock begins at the start of a sub-window
			if d := take(t, n, ask(by("endpoint", "/a"))); d != want {
				t.Errorf("request %d: got %+v, want %+v", i+1, d, want)
			}
		}
		d := take(t, n, ask(by("endpoint", "/a")))
		if d.Allowed || d.Rule != "per_endpoint" || d.Remaining != 0 || d.RetryAfter != 10*time.Second {
			t.Errorf("the fourth of three: %+v", d)
		}
		if d := take(t, n, ask(by("endpoint", "/b"))); !d.Allowed || d.Remaining != 2 {
			t.Errorf("another identity pays for the first: %+v", d)
		}
		time.Sleep(d.RetryAfter)
		if d := take(t, n, ask(by("endpoint", "/a"))); !d.Allowed {
			t.Errorf("denied after the wait that it was told: %+v", d)
		}
	})
}

// Who waits as told is not too early, although the time of decisions may be a little behind.
func TestTakeIsExact(t *testing.T) {
	n := launch(t, quiet(`
domain: test
descriptors: [{key: client, rate_limit: {unit: second, requests_per_unit: 5000, algorithm: token_bucket, burst: 1}}]
`)).ready(t)
	req := ask(by("client", "x"))
	denials := 0
	for range 300 {
		d := take(t, n.Node, req)
		after := n.clock.Now()
		if d.Allowed {
			continue
		}
		denials++
		for n.clock.Now() < after+int64(d.RetryAfter) {
			runtime.Gosched()
		}
		if d := take(t, n.Node, req); !d.Allowed {
			t.Fatalf("after waiting as it was asked to: %+v", d)
		}
	}
	if denials == 0 {
		t.Error("nothing was denied")
	}
}

func TestTakeBlocked(t *testing.T) {
	if d := take(t, idle(t, layered), ask(by("plan", "banned"))); d.Allowed || d.RetryAfter != counters.Never ||
		d.Rule != "banned" {
		t.Errorf("got %+v", d)
	}
}

func TestTakeCost(t *testing.T) {
	n := idle(t, layered)
	for _, step := range []struct {
		cost      uint64
		allowed   bool
		remaining uint64
	}{{4, true, 6}, {7, false, 6}, {6, true, 0}, {0, false, 0}, {11, false, 0}} {
		d := take(t, n, Request{Rule: "test/client", Identity: "x", Cost: step.cost})
		if d.Allowed != step.allowed || d.Remaining != step.remaining ||
			(step.cost > 10) != (d.RetryAfter == counters.Never) {
			t.Errorf("cost %d: %+v", step.cost, d)
		}
	}
}

// One way of naming a counter is as good as the other.
func TestTakeByRuleOrDescriptors(t *testing.T) {
	n := idle(t, layered)
	take(t, n, ask(by("client", "x")))
	take(t, n, Request{Rule: "test/client", Identity: "x"})
	if d := take(t, n, Request{Rule: "per_client", Identity: "x", Domain: "test"}); d.Remaining != 7 {
		t.Errorf("after three requests %d of 10 are left", d.Remaining)
	}
	if d := take(t, n, Request{Rule: "per_other", Identity: "x", Domain: "other"}); d.Remaining != 9 {
		t.Errorf("a rule of the same key in another domain shares its count: %d left", d.Remaining)
	}
}

func TestDecideLayers(t *testing.T) {
	n := idle(t, layered)
	req := ask(by("client", "x"), by("nobody", "y"), by("endpoint", "/a"), by("plan", "partner"), by("nameless", "z"))
	got, err := n.Decide(t.Context(), &req, nil)
	testkit.Must(t, err)
	var names []string
	for _, d := range got {
		if !d.Allowed || d.Degraded {
			t.Errorf("got %+v", d)
		}
		names = append(names, d.Rule)
	}
	if want := []string{"per_client", "", "per_endpoint", "", "test/nameless"}; !reflect.DeepEqual(names, want) {
		t.Errorf("layers of %q, want %q", names, want)
	}
}

// A request that one layer denies is charged in none.
func TestAllOrNothing(t *testing.T) {
	n := idle(t, layered)
	req := ask(by("client", "x"), by("endpoint", "/a"), by("plan", "partner"))
	for i := range 10 {
		layers, err := n.Decide(t.Context(), &req, nil)
		testkit.Must(t, err)
		if layers[1].Allowed != (i < 3) || !layers[0].Allowed || !layers[2].Allowed {
			t.Errorf("request %d: %+v", i+1, layers)
		}
	}
	if got := take(t, n, Request{Rule: "test/client", Identity: "x", Peek: true}).Remaining; got != 7 {
		t.Errorf("%d of 10 left for the client of 3 admitted requests", got)
	}
	if d := take(t, n, req); d.Allowed || d.Rule != "per_endpoint" || d.RetryAfter <= 0 {
		t.Errorf("Take speaks for the request with %+v", d)
	}
	tallies := map[string][2]uint64{}
	for r, tally := range n.policy.Load().tallies {
		tallies[r.FullName] = [2]uint64{tally.allowed.Load(), tally.denied.Load()}
	}
	want := map[string][2]uint64{"test/client": {3, 0}, "test/endpoint": {3, 8}, "test/plan=partner": {3, 0},
		"test/plan=banned": {}, "test/nameless": {}, "other/client": {}}
	if !reflect.DeepEqual(tallies, want) {
		t.Errorf("allowed and denied:\n got %v\nwant %v", tallies, want)
	}
}

// The layer that is closest to its limit speaks for a request that passes.
func TestTakeGoverns(t *testing.T) {
	n := idle(t, layered)
	if d := take(t, n, ask(by("client", "x"), by("endpoint", "/a"))); d.Rule != "per_endpoint" {
		t.Errorf("2 of 3 left and 9 of 10 left, but %q speaks", d.Rule)
	}
	take(t, n, Request{Rule: "test/client", Identity: "y", Cost: 9})
	if d := take(t, n, ask(by("endpoint", "/b"), by("client", "y"))); d.Rule != "per_client" || d.Remaining != 0 {
		t.Errorf("none of 10 left and 2 of 3 left, but %+v speaks", d)
	}
	if d := take(t, n, ask(by("nobody", "x"), by("endpoint", "/c"))); d.Rule != "per_endpoint" {
		t.Errorf("a layer without a rule speaks: %+v", d)
	}
}

// A request that is admitted waits for its turn in every queue that it meets, whichever layer speaks for it.
func TestTakeTellsTheLongestDelay(t *testing.T) {
	n := idle(t, `
domain: test
descriptors:
  - key: client
    rate_limit: {window: 100s, requests_per_unit: 10, algorithm: leaky_bucket, queue: true}
  - key: endpoint
    rate_limit: {window: 1h, requests_per_unit: 2}
`)
	both := ask(by("client", "x"), by("endpoint", "/a"))
	if d := take(t, n, both); !d.Allowed || d.Delay != 0 {
		t.Errorf("the first in the queue: %+v", d)
	}
	if d := take(t, n, both); !d.Allowed || d.Rule != "test/endpoint" || d.Delay < 5*time.Second ||
		d.Delay > 10*time.Second {
		t.Errorf("the second in the queue, where one leaves in 10 s: %+v", d)
	}
	if d := take(t, n, both); d.Allowed || d.Delay != 0 {
		t.Errorf("denied by the endpoint's limit: %+v", d)
	}
}

// What is told of a bucket is a quota that it keeps: what it holds, in the time in which that comes back.
func TestTakeTellsTheQuotaOfABucket(t *testing.T) {
	n := idle(t, `
domain: test
descriptors:
  - key: plain
    rate_limit: {unit: minute, requests_per_unit: 100, algorithm: token_bucket}
  - key: burst
    rate_limit: {unit: minute, requests_per_unit: 100, algorithm: token_bucket, burst: 20}
  - key: refill
    rate_limit: {requests_per_unit: 10, algorithm: leaky_bucket, refill: {amount: 1, every: 1h}}
  - key: blocked
    rate_limit: {unit: minute, requests_per_unit: 0, algorithm: leaky_bucket}
`)
	for key, want := range map[string]string{"plain": "100 in 1m0s", "burst": "20 in 12s", "refill": "10 in 10h0m0s",
		"blocked": "0 in 1m0s"} {
		d := take(t, n, ask(by(key, "x")))
		if got := fmt.Sprintf("%d in %v", d.Limit, d.Window); got != want || d.Allowed == (key == "blocked") {
			t.Errorf("%s: %s, want %s: %+v", key, got, want, d)
		}
	}
}

// What peers count for a bucket is debited as it comes, also before anybody has asked this node for it: the table knows
// the rules.
func TestTheTableKnowsTheRules(t *testing.T) {
	n := idle(t,
		"domain: test\ndescriptors: [{key: client, rate_limit: {algorithm: token_bucket, unit: hour, "+
			"requests_per_unit: 3600}}]")
	l := (*n.limits.Load())["test/client"]
	m := l.Meter()
	now := m.Index(time.Now().UnixNano())*int64(time.Hour) + int64(30*time.Minute)
	n.table.Merge([]counters.Slot{{Meter: &m, Key: 1, Index: m.Index(now), Origin: 7, Birth: 1, Count: 1000,
		CompleteThrough: now}},
		now)
	if v := n.table.View(l, 1, now); v != 1000 {
		t.Errorf("%d of 1000 tokens that were taken just now are known of", v)
	}
}

func TestPeekLeavesNoTrace(t *testing.T) {
	n := idle(t, layered)
	peek := ask(by("client", "x"), by("endpoint", "/a"))
	peek.Peek = true
	for range 20 {
		if d := take(t, n, peek); !d.Allowed || d.Remaining != d.Limit {
			t.Fatalf("got %+v", d)
		}
	}
	if keys := n.table.Stats().Keys; keys != 0 {
		t.Errorf("peeking left %d counters", keys)
	}
	take(t, n, Request{Rule: "test/client", Identity: "x", Cost: 10})
	if d := take(t, n, peek); d.Allowed || d.Rule != "per_client" || d.RetryAfter <= 0 {
		t.Errorf("a peek that would be denied: %+v", d)
	}
	for r, tally := range n.policy.Load().tallies {
		if tally.denied.Load() != 0 {
			t.Errorf("a peek was counted as a denial of %s", r)
		}
	}
}

func TestTakeErrors(t *testing.T) {
	n := idle(t, layered+"---\ndomain: third\ndescriptors: [{key: client, rate_limit: {name: per_client, "+
		"window: 1m, requests_per_unit: 10}}]\n")
	tooMany := make([][]rules.Entry, rules.MaxDescriptors+1)
	for i := range tooMany {
		tooMany[i] = by("client", fmt.Sprint(i))
	}
	for _, test := range []struct {
		name string
		req  Request
		want error
	}{
		{"empty", Request{}, rules.ErrInvalidRequest},
		{"unknown rule", Request{Rule: "nonsense", Identity: "x"}, rules.ErrUnknownRule},
		{"rule of another domain", Request{Rule: "per_endpoint", Identity: "x", Domain: "other"}, rules.ErrUnknownRule},
		{"ambiguous rule", Request{Rule: "per_client", Identity: "x"}, rules.ErrInvalidRequest},
		{"no identity", Request{Rule: "per_endpoint"}, rules.ErrInvalidRequest},
		{"too many descriptors", ask(tooMany...), rules.ErrInvalidRequest},
		{"cost beyond all limits", Request{Rule: "test/client", Identity: "x", Cost: counters.MaxLimit + 1},
			rules.ErrInvalidRequest},
	} {
		t.Run(test.name, func(t *testing.T) {
			if d, err := n.Take(t.Context(), test.req); !errors.Is(err, test.want) || d != (Decision{}) {
				t.Errorf("Take: %+v, %v; want %v", d, err, test.want)
			}
			before := []Decision{{Rule: "earlier"}}
			if got, err := n.Decide(t.Context(), &test.req, before); !errors.Is(err, test.want) ||
				!reflect.DeepEqual(got, before) {
				t.Errorf("Decide: %+v, %v; want %v", got, err, test.want)
			}
		})
	}
	if keys := n.table.Stats().Keys; keys != 0 {
		t.Errorf("refused requests left %d counters", keys)
	}
	req := ask(tooMany[:rules.MaxDescriptors]...)
	if layers, err := n.Decide(t.Context(), &req, nil); err != nil || len(layers) != rules.MaxDescriptors {
		t.Errorf("%d layers, %v", len(layers), err)
	}
}

// Decide appends: what is there already is of another request.
func TestDecideAppends(t *testing.T) {
	n := idle(t, layered)
	layers := []Decision{{Rule: "earlier"}, {Rule: "denied before", Limit: 1}}
	first := Request{Rule: "test/client", Identity: "x"}
	second := ask(by("endpoint", "/a"), by("client", "x"))
	var err error
	for _, req := range []*Request{&first, &second} {
		if layers, err = n.Decide(t.Context(), req, layers); err != nil {
			t.Fatal(err)
		}
	}
	if layers[0] != (Decision{Rule: "earlier"}) || layers[1] != (Decision{Rule: "denied before", Limit: 1}) {
		t.Errorf("what was there was changed: %+v", layers[:2])
	}
	if len(layers) != 5 || layers[2].Rule != "per_client" || layers[3].Rule != "per_endpoint" ||
		layers[4].Remaining != 8 {
		t.Errorf("got %+v", layers)
	}
	for r, tally := range n.policy.Load().tallies { // the denial that was there before is not of these requests
		if r.FullName == "test/client" && tally.allowed.Load() != 2 {
			t.Errorf("%d allowed requests counted for %s, want 2", tally.allowed.Load(), r)
		}
	}
}

func TestDecideDoesNotAllocate(t *testing.T) {
	n := idle(t, perClient)
	var room [4]Decision
	for name, req := range map[string]*Request{
		"descriptor": {Domain: "test", Descriptors: [][]rules.Entry{by("client", "192.0.2.1")}},
		"rule":       {Rule: "per_client", Identity: "192.0.2.1"},
		"peek":       {Rule: "per_client", Identity: "192.0.2.1", Peek: true},
	} {
		decide := func() {
			if _, err := n.Decide(t.Context(), req, room[:0]); err != nil {
				t.Fatal(err)
			}
		}
		decide()
		if allocs := testing.AllocsPerRun(500, decide); allocs != 0 {
			t.Errorf("a decision by %s allocates %v times", name, allocs)
		}
	}
}

// However many ask at once, a node alone admits the limit and no more.
func TestConcurrentTakesAreExact(t *testing.T) {
	n := idle(t, perClient)
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 250 {
				d, err := n.Take(t.Context(), Request{Rule: "per_client", Identity: "x"})
				if err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got := allowed.Load(); got != 1000 {
		t.Errorf("2000 requests at once under a limit of 1000: %d admitted", got)
	}
}

func TestSampleRulesAreTheDefault(t *testing.T) {
	n := idle(t, "")
	if d := take(t, n, Request{Rule: "per_ip", Identity: "192.0.2.1"}); !d.Allowed || d.Limit != 100 ||
		d.Remaining != 99 {
		t.Errorf("got %+v", d)
	}
}

func TestRulesAreRead(t *testing.T) {
	cfg := quiet("")
	cfg.Rules = []string{write(t, "r.yaml", strings.ReplaceAll(perClient, "1000", "7"))}
	n, err := New(cfg)
	testkit.Must(t, err)
	if d := take(t, n, Request{Rule: "per_client", Identity: "x"}); d.Limit != 7 {
		t.Errorf("got %+v", d)
	}
}

func BenchmarkDecide(b *testing.B) {
	n := idle(b, perClient)
	defer start(func(ctx context.Context) { _ = n.clock.Run(ctx) })()
	req := Request{Domain: "test", Descriptors: [][]rules.Entry{by("client", "192.0.2.1")}}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		var room [4]Decision
		for pb.Next() {
			if _, err := n.Decide(b.Context(), &req, room[:0]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
