package node

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/regions/strict"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestStrictRuleIsDecidedByItsStore(t *testing.T) {
	n, here, there := strictNode(t, quiet(strictRules))
	other, _, _ := strictNode(t, quiet(strictRules))
	other.policy.Load().homes = n.policy.Load().homes
	for i, node := range []*Node{n, other, n, other} {
		d := layersOf(t, node, Request{}, "account")[0]
		if d.Allowed != (i < 3) || d.Rule != "account" || d.Limit != 3 || d.Remaining != uint64(max(0, 2-i)) ||
			d.Degraded {
			t.Errorf("request %d: %+v", i, d)
		}
	}
	here.expect(t, "test/account", 3, 4, 0)
	there.expect(t, "test/account", 0, 0, 0)
	if peek := layersOf(t, n, Request{Peek: true}, "world")[0]; !peek.Allowed || peek.Remaining != 2 {
		t.Errorf("a peek: %+v", peek)
	}
	there.expect(t, "test/world", 0, 1, 0)
}

// What is denied, banned, listed or blocked in memory costs the store nothing, and its layers report no numbers.
func TestWhatMemoryDeniesNeverReachesTheStore(t *testing.T) {
	n, here, _ := strictNode(t, quiet(strictRules))
	takeSome(t, n, "per_client", "v", 5)
	for range 3 {
		layers := layersOf(t, n, Request{}, "account", "client", "spend")
		for i, want := range []string{"", "per_client", ""} {
			if layers[i].Rule != want || layers[i].Allowed == (i == 1) {
				t.Errorf("layer %d: %+v", i, layers[i])
			}
		}
	}
	here.expect(t, "test/account", 0, 0, 0)
	for address, allowed := range map[string]bool{"192.0.2.1": true, "192.0.2.2": false} {
		if d := take(t, n, ask(by("address", address))); d.Allowed != allowed || d.Degraded {
			t.Errorf("%s: %+v", address, d)
		}
	}
	if d := take(t, n, ask(by("blocked", "v"))); d.Allowed {
		t.Errorf("a limit of 0: %+v", d)
	}
	here.expect(t, "test/account", 0, 0, 0)
	layersOf(t, n, Request{}, "ban")
	if d := layersOf(t, n, Request{}, "ban")[0]; d.Allowed || d.Banned || d.RetryAfter < 10*time.Minute {
		t.Errorf("the denial: %+v", d)
	}
	for range 3 {
		if d := layersOf(t, n, Request{}, "ban", "account")[0]; d.Allowed || !d.Banned || d.Rule != "ban" {
			t.Errorf("banned: %+v", d)
		}
	}
	here.expect(t, "test/ban", 1, 2, 0)
}

// A request is charged in all layers or in none, whoever decides on them, and whoever denies.
func TestAllOrNothingAcrossStores(t *testing.T) {
	n, here, there := strictNode(t, quiet(strictRules))
	all := []string{"world", "client", "account"}
	for i := range 3 {
		layers := layersOf(t, n, Request{}, all...)
		if v := counters.VerdictOf(layers); v.Allowed != (i < 2) {
			t.Errorf("request %d: %+v", i, layers)
		}
		if i == 2 && (layers[2].Remaining != 1 || layers[1].Remaining != 3 || !layers[2].Allowed) {
			t.Errorf("layers of a denied request: %+v", layers)
		}
	}
	here.expect(t, "test/account", 2, 3, 1) // the own region's is asked first
	there.expect(t, "test/world", 2, 3, 0)
	if used := spent(t, n, "per_client", "v"); used != 2 {
		t.Errorf("the node counts %d", used)
	}
	layersOf(t, n, Request{}, "account")
	layersOf(t, n, Request{}, all...) // denied by the first store: the second one is not asked
	here.expect(t, "test/account", 3, 5, 1)
	there.expect(t, "test/world", 2, 3, 0)
}

func TestStoreGivesBackWhatMemoryThenDenies(t *testing.T) {
	n, here, _ := strictNode(t, quiet(strictRules))
	here.during = func() { takeSome(t, n, "per_client", "v", 5) } // others come while the store is asked
	layers := layersOf(t, n, Request{}, "account", "client")
	if layers[1].Allowed || !layers[0].Allowed || layers[0].Remaining != 3 {
		t.Errorf("%+v", layers)
	}
	here.expect(t, "test/account", 0, 1, 1)
	if d := layersOf(t, n, Request{Cost: 3, Overdraw: true}, "account", "client")[1]; d.Allowed {
		t.Errorf("%+v", d)
	}
	here.expect(t, "test/account", 3, 1, 1) // it counts all the same
}

func TestStrictOverdraw(t *testing.T) {
	n, here, _ := strictNode(t, quiet(strictRules))
	if d := layersOf(t, n, Request{Cost: 12}, "spend")[0]; d.Allowed {
		t.Errorf("%+v", d)
	}
	here.expect(t, "test/spend", 12, 1, 0)
	takeSome(t, n, "per_client", "v", 5)
	layersOf(t, n, Request{Cost: 4}, "spend", "client")
	here.expect(t, "test/spend", 16, 1, 0)
	if here.reports != 1 {
		t.Errorf("%d reports", here.reports)
	}
}

func TestStrictShadow(t *testing.T) {
	n, here, _ := strictNode(t, quiet(strictRules))
	for i := range 3 {
		if d := layersOf(t, n, Request{}, "shadow")[0]; !d.Allowed || d.Waived != (i > 0) {
			t.Errorf("request %d: %+v", i, d)
		}
	}
	here.expect(t, "test/shadow", 1, 3, 0)
	n.Shadow(true)
	for i := range 4 {
		d := layersOf(t, n, Request{}, "account")[0]
		if !d.Allowed || d.Waived != (i > 2) || d.Mode != counters.Shadow {
			t.Errorf("with the kill switch, request %d: %+v", i, d)
		}
	}
	here.down = strict.ErrUnavailable
	if d := layersOf(t, n, Request{OnFailure: rules.FailClosed}, "account")[0]; !d.Allowed || !d.Waived || !d.Failed {
		t.Errorf("closed, with the kill switch: %+v", d)
	}
}

func TestStrictResponses(t *testing.T) {
	n, here, _ := strictNode(t, quiet(strictRules))
	req := ask(by("login", "v"))
	begin := func() (allowed bool, end func(status int)) {
		layers, pending, err := n.Begin(t.Context(), &req, nil)
		testkit.Must(t, err)
		if pending == nil {
			return layers[0].Allowed, nil
		}
		return layers[0].Allowed, func(status int) { pending.End(t.Context(), &rules.Response{Status: status}, nil) }
	}
	_, first := begin()
	_, second := begin()
	if allowed, _ := begin(); allowed {
		t.Error("a third passes while two are under way, of a limit of 2")
	}
	first(http.StatusOK)
	second(http.StatusUnauthorized)
	here.Lock()
	if here.used["test/login"] != 1 {
		t.Errorf("charged %d", here.used["test/login"])
	}
	here.Unlock()
	_, third := begin()
	here.down = strict.ErrUnavailable
	third(http.StatusUnauthorized)
	if lost := n.policy.Load().homes["here"].unreported.Load(); lost != 1 {
		t.Errorf("%d charges were lost", lost)
	}
	if allowed, _ := begin(); allowed { // local: the node has counted both
		t.Error("a fourth passes")
	}
}

// What is charged is answered, to a client that has gone too: it would report again, and be charged twice.
func TestReportOfAClientThatHasGone(t *testing.T) {
	n, here, _ := strictNode(t, quiet(strictRules))
	ctx, cancel := context.WithCancel(t.Context())
	here.during = cancel
	req := ask(by("spend", "v"))
	req.Cost = 4
	layers, err := n.Report(ctx, &req, nil)
	if err != nil || len(layers) != 1 || layers[0].Remaining != 6 {
		t.Errorf("%+v, %v", layers, err)
	}
	here.expect(t, "test/spend", 4, 1, 0)
}

// No lock is held while a store is asked, by requests that wait for their turn in a queue either; who leaves it gives
// the turn back.
func TestStrictQueue(t *testing.T) {
	cfg := quiet(strictRules)
	cfg.Queues.MaxRequests = 2
	n, here, _ := strictNode(t, cfg)
	here.delay = time.Hour
	began, resume := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	here.during = func() {
		if !once.Swap(true) {
			close(began)
			<-resume
		}
	}
	req := ask(by("turn", "v"))
	type result struct {
		allowed bool
		pending interface {
			End(context.Context, *rules.Response, []Decision) []Decision
		}
	}
	results := make(chan result)
	begin := func() {
		own := req
		layers, pending, err := n.Begin(t.Context(), &own, nil)
		if err != nil {
			t.Error(err)
		}
		results <- result{layers[0].Allowed, pending}
	}
	go begin()
	<-began
	go begin()
	second := <-results // while the first one waits for the store
	close(resume)
	first := <-results
	if !first.allowed || !second.allowed || first.pending == nil || second.pending == nil {
		t.Fatalf("%+v, %+v", first, second)
	}
	if waiting, _, _ := n.queued(); waiting != 2 {
		t.Errorf("%d wait", waiting)
	}
	go begin()
	if third := <-results; third.allowed {
		t.Error("a third one has a place")
	}
	first.pending.End(t.Context(), nil, nil)
	second.pending.End(t.Context(), nil, nil)
	here.Lock()
	defer here.Unlock()
	if waiting, bytes, denied := n.queued(); waiting != 0 || bytes != 0 || denied != 1 || here.refunded != 2 ||
		here.used["test/turn"] != 0 {
		t.Errorf("%d wait, with %d bytes, %d denied, %d refunds, %d used", waiting, bytes, denied, here.refunded,
			here.used["test/turn"])
	}
}

// Operators ban whom a strict rule counts, and whom other rules of the same request count. The store is not asked.
func TestManualBansOfStrictRules(t *testing.T) {
	n, here, _ := strictNode(t, quiet(strictRules))
	for _, rule := range []string{"per_client", "account", "turn"} {
		addBan(t, n, rule, "v", time.Hour)
	}
	for _, keys := range [][]string{
		{"client"}, {"account"}, {"client", "account"}, {"account", "client"}, {"spend", "client"}, {"turn"},
	} {
		denied := slices.ContainsFunc(layersOf(t, n, Request{}, keys...), func(d Decision) bool {
			return !d.Allowed && d.Banned && d.RetryAfter > 59*time.Minute
		})
		req := ask(by("turn", "v"))
		for _, k := range keys {
			req.Descriptors = append(req.Descriptors, by(k, "v"))
		}
		layers, pending, err := n.Begin(t.Context(), &req, nil)
		if err != nil || pending != nil || counters.VerdictOf(layers).Allowed || !denied {
			t.Errorf("%v: a ban denies: %v; held back: %+v, %v", keys, denied, layers, err)
		}
	}
	here.expect(t, "test/account", 0, 0, 0)
	here.expect(t, "test/spend", 0, 0, 0)
}

// A turn that a store gave is not another's: turns of other nodes lie between.
func TestStrictTurnsStayWhenOthersLeave(t *testing.T) {
	n, here, _ := strictNode(t, quiet(strictRules))
	var waiting []answer.Pending
	for i := range 3 {
		here.delay = time.Duration(i+1) * time.Hour
		req := ask(by("turn", "v"))
		_, pending, err := n.Begin(t.Context(), &req, nil)
		if err != nil || pending == nil {
			t.Fatal(pending, err)
		}
		waiting = append(waiting, pending)
	}
	var in *queue
	for _, q := range n.queues.byKey {
		in = q
	}
	before := in.end
	waiting[0].End(t.Context(), nil, nil)
	if !in.end.Equal(before) || time.Until(in.next) < 119*time.Minute {
		t.Errorf("the last turn moved by %v, the next one comes in %v", before.Sub(in.end), time.Until(in.next))
	}
	for _, p := range waiting[1:] {
		p.End(t.Context(), nil, nil)
	}
}

// Two nodes race for a strict limit under an approximate one: what was admitted is what each of them counts.
func TestStrictRace(t *testing.T) {
	const racing = `
domain: test
descriptors:
  - {key: client, rate_limit: {name: per_client, window: 1h, requests_per_unit: 300}}
  - key: account
    rate_limit: {name: account, window: 1h, requests_per_unit: 400,
      consistency: strict, home_region: here}
  - key: world
    rate_limit: {name: world, window: 1h, requests_per_unit: 450,
      consistency: strict, home_region: there}
`
	a, here, there := strictNode(t, quiet(racing))
	b, _, _ := strictNode(t, quiet(racing))
	b.policy.Load().homes = a.policy.Load().homes
	var admitted [2]atomic.Uint64
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			n := []*Node{a, b}[g%2]
			for range 100 {
				req := ask(by("client", "v"), by("account", "v"), by("world", "v"))
				layers, err := n.Decide(t.Context(), &req, nil)
				if err != nil {
					t.Error(err)
				} else if counters.VerdictOf(layers).Allowed {
					admitted[g%2].Add(1)
				}
			}
		})
	}
	all.Wait()
	sum := admitted[0].Load() + admitted[1].Load()
	if sum != 400 {
		t.Errorf("%d were admitted, of 400", sum)
	}
	if here.used["test/account"] != sum || there.used["test/world"] != sum {
		t.Errorf("the stores count %d and %d, and %d were admitted", here.used["test/account"],
			there.used["test/world"], sum)
	}
	for i, n := range []*Node{a, b} {
		if used := spent(t, n, "per_client", "v"); used != admitted[i].Load() {
			t.Errorf("node %d counts %d, and admitted %d", i, used, admitted[i].Load())
		}
	}
}

// Requests that meet no strict rule do not pay for those that others meet.
func TestOthersDoNotPayForStrictRules(t *testing.T) {
	n, _, _ := strictNode(t, quiet(strictRules))
	req, layers := ask(by("client", "v")), make([]Decision, 0, 4)
	if allocs := testing.AllocsPerRun(200, func() {
		if _, err := n.Decide(t.Context(), &req, layers); err != nil {
			t.Fatal(err)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
