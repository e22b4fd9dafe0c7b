package node

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/regions/strict"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// fakeShared is a sharedStore in memory, of windows that never end.
type fakeShared struct {
	sync.Mutex
	used     map[string]uint64 // by rule
	calls    int
	reports  int
	refunded int
	down     error
	during   func() // is called before each decision, without the lock
	delay    time.Duration
}

func (f *fakeShared) take(_ context.Context, asks []strict.Ask) ([]Decision, func(), error) {
	if f.during != nil {
		f.during()
	}
	f.Lock()
	defer f.Unlock()
	if f.calls++; f.down != nil {
		return nil, nil, f.down
	}
	decisions, passes := make([]Decision, len(asks)), true
	for i, a := range asks {
		m, d := a.Limit.Meter(), &decisions[i]
		*d = Decision{Rule: m.Rule, Window: m.Window, Limit: a.Limit.Max(), Mode: a.Mode}
		left := a.Limit.Max() - min(f.used[m.Rule], a.Limit.Max())
		d.Allowed, d.Remaining = max(a.Cost, 1)+a.Pending <= left, left
		if d.Allowed {
			d.Delay = f.delay
		} else {
			d.RetryAfter = max(a.Limit.Refills(max(a.Cost, 1)+a.Pending-left), time.Minute)
			d.Waived = a.Mode == counters.Shadow
			d.Allowed = d.Waived
		}
		passes = passes && d.Allowed
	}
	charged := make(map[string]uint64)
	for i, a := range asks {
		d, rule := &decisions[i], a.Limit.Meter().Rule
		if passes && !d.Waived || !passes && a.Overdraw && !d.Allowed {
			charged[rule] += a.Cost
			f.used[rule] += a.Cost
			d.Remaining -= min(a.Cost, d.Remaining)
		}
	}
	return decisions, sync.OnceFunc(func() {
		f.Lock()
		defer f.Unlock()
		f.refunded++
		for rule, cost := range charged {
			f.used[rule] -= cost
		}
	}), nil
}

func (f *fakeShared) Report(_ context.Context, asks []strict.Ask) error {
	f.Lock()
	defer f.Unlock()
	f.reports++
	for _, a := range asks {
		if f.down == nil {
			f.used[a.Limit.Meter().Rule] += a.Cost
		}
	}
	return f.down
}

func (f *fakeShared) Stats() strict.Stats {
	return strict.Stats{Calls: uint64(f.calls), Open: f.down != nil}
}
func (f *fakeShared) Close(context.Context) error { return nil }

// expect compares what is used of a rule, and how often the store was asked and gave back.
func (f *fakeShared) expect(t *testing.T, rule string, used uint64, calls, refunded int) {
	t.Helper()
	f.Lock()
	defer f.Unlock()
	if f.used[rule] != used || f.calls != calls || f.refunded != refunded {
		t.Errorf("%s: %d used, %d calls, %d refunds; want %d, %d, %d", rule, f.used[rule], f.calls, f.refunded, used,
			calls, refunded)
	}
}

// strictNode is a node that asks fakes for the strict rules of the regions here and there.
func strictNode(t testing.TB, cfg Config) (n *Node, here, there *fakeShared) {
	t.Helper()
	n, err := New(cfg)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = n.Close() })
	here, there = &fakeShared{used: make(map[string]uint64)}, &fakeShared{used: make(map[string]uint64)}
	n.policy.Load().homes = map[string]*home{
		"here": {region: "here", store: here}, "there": {region: "there", store: there},
	}
	return n, here, there
}

const strictRules = `
domain: test
descriptors:
  - {key: client, rate_limit: {name: per_client, window: 1h, requests_per_unit: 5}}
  - key: account
    rate_limit: {name: account, window: 1h, requests_per_unit: 3,
      consistency: strict, home_region: here}
  - {key: world, rate_limit: {name: world, window: 1h, requests_per_unit: 2, consistency: strict, home_region: there}}
  - key: local
    rate_limit: {name: local, window: 1h, requests_per_unit: 2,
      consistency: strict, home_region: there, on_failure: local}
  - key: closed
    rate_limit: {name: closed, window: 1h, requests_per_unit: 3,
      consistency: strict, home_region: there, on_failure: closed}
  - key: open
    rate_limit: {name: open, window: 1h, requests_per_unit: 3,
      consistency: strict, home_region: there, on_failure: open}
  - key: shadow
    shadow_mode: true
    rate_limit: {name: shadow, window: 1h, requests_per_unit: 1,
      consistency: strict, home_region: here}
  - key: ban
    rate_limit: {name: ban, window: 1h, requests_per_unit: 1,
      consistency: strict, home_region: here, ban: 10m}
  - key: blocked
    rate_limit: {name: blocked, window: 1h, requests_per_unit: 0,
      consistency: strict, home_region: here}
  - key: spend
    rate_limit: {name: spend, window: 1h, requests_per_unit: 10,
      consistency: strict, home_region: here, overdraw: charge}
  - key: login
    rate_limit: {name: login, window: 1h, requests_per_unit: 2,
      consistency: strict, home_region: here, charge_on: {status: [401]}, on_failure: local}
  - key: turn
    rate_limit: {name: turn, algorithm: leaky_bucket, queue: true, window: 1h, requests_per_unit: 3,
      consistency: strict, home_region: here}
  - key: unknown
    rate_limit: {name: unknown, window: 1h, requests_per_unit: 3,
      consistency: strict, home_region: nowhere, on_failure: closed}
  - key: address
    allow: [192.0.2.1]
    deny: [192.0.2.2]
    rate_limit: {name: address, window: 1h, requests_per_unit: 3, consistency: strict, home_region: here}
`

// layersOf decides on a request for the same value of each key.
func layersOf(t *testing.T, n *Node, req Request, keys ...string) []Decision {
	t.Helper()
	req.Domain = "test"
	for _, k := range keys {
		req.Descriptors = append(req.Descriptors, []rules.Entry{{Key: k, Value: "v"}})
	}
	layers, err := n.Decide(t.Context(), &req, nil)
	testkit.Must(t, err)
	return layers
}
