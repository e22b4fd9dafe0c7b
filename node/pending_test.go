package node

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// begin begins a request and fails the test if that is an error.
func begin(t *testing.T, n *Node, req *Request) (Decision, answer.Pending) {
	t.Helper()
	layers, pending, err := n.Begin(t.Context(), req, nil)
	testkit.Must(t, err)
	d := counters.VerdictOf(layers)
	d.Governing.Allowed = d.Allowed
	return d.Governing, pending
}

// respond is a request that gets a response, if it is let through.
func respond(t *testing.T, n *Node, resp rules.Response, descriptors ...[]rules.Entry) bool {
	t.Helper()
	req := ask(descriptors...)
	d, pending := begin(t, n, &req)
	if d.Allowed {
		pending.End(t.Context(), &resp, nil)
	}
	return d.Allowed
}

const logins = `{unit: hour, requests_per_unit: 10, charge_on: {status: [401, 403]}}`

// Ten wrong passwords, then no more; right ones are never counted, however many there are.
func TestFailedLogins(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		for _, algorithm := range []string{"sliding_window", "fixed_window", "sliding_log", "token_bucket"} {
			n := idle(t, single("rate_limit: "+strings.Replace(logins, "{", "{algorithm: "+algorithm+", ", 1)))
			user := by("client", "x")
			wrong, right := rules.Response{Status: http.StatusUnauthorized}, rules.Response{Status: http.StatusOK}
			for i := range 10 {
				for range 30 {
					if !respond(t, n, right, user) {
						t.Fatalf("%s: a right password is denied after %d wrong ones", algorithm, i)
					}
				}
				if !respond(t, n, wrong, user) {
					t.Fatalf("%s: wrong password %d is denied", algorithm, i+1)
				}
			}
			for _, resp := range []rules.Response{wrong, right} {
				if respond(t, n, resp, user) {
					t.Errorf("%s: after ten wrong passwords another try is let through", algorithm)
				}
			}
			if !respond(t, n, wrong, by("client", "y")) {
				t.Errorf("%s: somebody else is denied", algorithm)
			}
			if got := tallied(n, "test/client"); got != [3]uint64{11, 2, 0} {
				t.Errorf("%s: %v allowed, denied and waived, want what was charged and denied", algorithm, got)
			}
		}
	})
}

// Ten an hour in a bucket, and an hour after the last one is forgiven.
func TestAFailedLoginIsForgiven(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		n := idle(t, single("rate_limit: {algorithm: token_bucket, requests_per_unit: 10, "+
			"refill: {amount: 1, every: 1h}, charge_on: {status: [4xx]}}"))
		wrong := rules.Response{Status: http.StatusForbidden}
		tries := func() (passed int) {
			for passed < 50 && respond(t, n, wrong, by("client", "x")) {
				passed++
			}
			return passed
		}
		if got := tries(); got != 10 {
			t.Errorf("%d wrong passwords at first, want 10", got)
		}
		time.Sleep(time.Hour + time.Second)
		if got := tries(); got != 1 {
			t.Errorf("%d wrong passwords an hour later, want 1", got)
		}
	})
}

// The attack: all tries at once, before the first is answered. No more are let through than there is room for.
func TestParallelLogins(t *testing.T) {
	n := idle(t, single("rate_limit: "+logins))
	var begun, let sync.WaitGroup
	var through atomic.Int64
	answer := make(chan struct{})
	for range 200 {
		begun.Add(1)
		let.Go(func() {
			req := ask(by("client", "x"))
			layers, pending, err := n.Begin(t.Context(), &req, nil)
			begun.Done()
			<-answer
			if err == nil && counters.VerdictOf(layers).Allowed {
				through.Add(1)
				pending.End(t.Context(), &rules.Response{Status: http.StatusUnauthorized}, nil)
			}
		})
	}
	begun.Wait()
	if d, _ := begin(t, n, new(ask(by("client", "x")))); d.Allowed || d.RetryAfter <= 0 {
		t.Errorf("with ten under way: %+v", d)
	}
	close(answer)
	let.Wait()
	if through.Load() != 10 || len(n.pending.counts) != 0 {
		t.Errorf("%d of 200 are let through, want 10; %d remain under way", through.Load(), len(n.pending.counts))
	}
	if respond(t, n, rules.Response{Status: http.StatusUnauthorized}, by("client", "x")) {
		t.Error("another one is let through after that")
	}
}

// The attack: a client that leaves before each answer has its tries counted.
func TestLeavingClientsAreCharged(t *testing.T) {
	for after, want := range map[string]int{"charge_on: {status: [401]}": 10, "cost_from: header X-Cost": 10,
		"cost_from: response_bytes": 10, "cost_from: duration": 5} {
		n, passed := idle(t, single("rate_limit: {unit: hour, requests_per_unit: 10, "+after+"}")), 0
		for passed < 20 && respond(t, n, rules.Response{Duration: 2 * time.Millisecond}, by("client", "x")) {
			passed++
		}
		if passed != want {
			t.Errorf("%s: %d requests pass whose client does not wait, want %d", after, passed, want)
		}
	}
}

// What was let through and is not charged makes room again: a right password, and a client that hangs up.
func TestPendingEnds(t *testing.T) {
	n := idle(t, single("rate_limit: {unit: hour, requests_per_unit: 1, charge_on: {status: [401]}}"))
	for i, resp := range []*rules.Response{{Status: http.StatusOK}, nil, {Status: http.StatusUnauthorized}} {
		req := ask(by("client", "x"))
		d, pending := begin(t, n, &req)
		if !d.Allowed {
			t.Fatalf("request %d is denied: %+v", i, d)
		}
		other, second := begin(t, n, new(ask(by("client", "x"))))
		if other.Allowed || second != nil {
			t.Errorf("request %d: another beside it: %+v", i, other)
		}
		pending.End(t.Context(), resp, nil)
		pending.End(t.Context(), &rules.Response{Status: http.StatusUnauthorized}, nil) // does nothing
	}
	if respond(t, n, rules.Response{Status: http.StatusOK}, by("client", "x")) {
		t.Error("a request passes after one that was charged")
	}
}

// Bytes, milliseconds and headers are charged as they come, and a full limit is overdrawn by one response only.
func TestCostFrom(t *testing.T) {
	for _, test := range []struct {
		from  string
		resp  rules.Response
		left  uint64
		price uint64 // unpriced responses
	}{
		{"response_bytes", rules.Response{Status: 200, Bytes: 600}, 400, 0},
		{"response_bytes", rules.Response{Status: 200, Bytes: 1 << 60}, 0, 0},
		{"duration", rules.Response{Status: 200, Duration: 250*time.Millisecond + 1}, 749, 0},
		{"duration", rules.Response{Status: 200, Duration: -time.Second}, 1000, 0},
		{"header x-rl-cost", rules.Response{Status: 200, Header: http.Header{"X-Rl-Cost": {" 300 "}}}, 700, 0},
		{"header x-rl-cost", rules.Response{Status: 200, Header: http.Header{"X-Rl-Cost": {"0"}}}, 1000, 0},
		{"header x-rl-cost", rules.Response{Status: 200, Header: http.Header{"X-Rl-Cost": {"-5"}}}, 999, 1},
		{"header x-rl-cost", rules.Response{Status: 200, Header: http.Header{"X-Rl-Cost": {"1", "2"}}}, 999, 1},
		{"header x-rl-cost", rules.Response{Status: 200, Header: http.Header{}}, 999, 1},
	} {
		n := idle(t, single("rate_limit: {unit: hour, requests_per_unit: 1000, cost_from: "+test.from+"}"))
		req := ask(by("client", "x"), by("nobody", "x"))
		d, pending := begin(t, n, &req)
		after := pending.End(t.Context(), &test.resp, nil)
		if !d.Allowed || d.Remaining != 1000 || len(after) != 2 || after[0].Remaining != test.left {
			t.Errorf("%s, %+v: before %+v, after %+v, want %d left", test.from, test.resp, d, after, test.left)
		}
		if got := n.monitor.Unpriced.Total(); got != test.price {
			t.Errorf("%s, %+v: %d unpriced responses, want %d", test.from, test.resp, got, test.price)
		}
	}
}

// A rule that charges responses stands beside one that charges requests: each is charged once, by its own.
func TestRequestsAndResponses(t *testing.T) {
	n := idle(t, `domain: test
descriptors:
  - {key: client, rate_limit: {name: requests, unit: hour, requests_per_unit: 100}}
  - {key: user, rate_limit: {name: failures, unit: hour, requests_per_unit: 3, charge_on: {status: [401]}}}
  - {key: banned, rate_limit: {unit: hour, requests_per_unit: 0}}
`)
	both := [][]rules.Entry{by("client", "x"), by("user", "x")}
	for range 3 {
		respond(t, n, rules.Response{Status: http.StatusUnauthorized}, both...)
	}
	if c, u := spent(t, n, "requests", "x"), spent(t, n, "failures", "x"); c != 3 || u != 3 {
		t.Errorf("%d requests and %d failures are charged, want 3 each", c, u)
	}
	if respond(t, n, rules.Response{Status: http.StatusOK}, both...) {
		t.Error("a fourth try passes")
	}
	if c := spent(t, n, "requests", "x"); c != 3 {
		t.Errorf("a request that the failures deny is charged: %d", c)
	}
	if respond(t, n, rules.Response{Status: http.StatusUnauthorized}, by("user", "y"), by("banned", "x")) {
		t.Error("a banned client passes")
	}
	if len(n.pending.counts) != 0 {
		t.Errorf("a denied request is under way: %v", n.pending.counts)
	}
	// An application that reports by itself does so with the status, and charges the same.
	req := ask(by("user", "z"))
	req.Response = &rules.Response{Status: http.StatusUnauthorized}
	if _, err := n.Report(t.Context(), &req, nil); err != nil || spent(t, n, "failures", "z") != 1 {
		t.Errorf("a report with a status: %v, %d charged", err, spent(t, n, "failures", "z"))
	}
	req.Response = nil
	if _, err := n.Report(t.Context(), &req, nil); err != nil || spent(t, n, "failures", "z") != 1 {
		t.Errorf("a report without a status: %v, %d charged", err, spent(t, n, "failures", "z"))
	}
}

// Failures count on all nodes.
func TestFailedLoginsEverywhere(t *testing.T) {
	t.Parallel()
	start := func(id, region string, join ...string) *running {
		cfg := gossiping(id, region, join...)
		cfg.RuleSet = ruleSet(single("rate_limit: " + strings.Replace(logins, "{", "{name: logins, ", 1)))
		return launch(t, cfg).ready(t)
	}
	first := start("a", "eu")
	second := start("b", "us", "wan:"+first.Addr("wan"))
	third := start("c", "asia", "wan:"+first.Addr("wan"))
	nodes := []*running{first, second, third}
	allMembers(t, nodes...)
	wrong := rules.Response{Status: http.StatusUnauthorized}
	for i := range 10 {
		if !respond(t, nodes[i%3].Node, wrong, by("client", "x")) {
			t.Fatalf("wrong password %d is denied", i+1)
		}
	}
	for _, n := range nodes {
		testkit.Eventually(t, n.cfg.NodeID+" counts ten", func() bool { return spent(t, n.Node, "logins", "x") == 10 })
		if respond(t, n.Node, wrong, by("client", "x")) {
			t.Errorf("the eleventh passes at %s", n.cfg.NodeID)
		}
	}
}
