package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// short are the default options for a few seconds of a small cluster.
func short(change func(*Options)) Options {
	o := DefaultOptions()
	o.Nodes, o.Limit, o.Window, o.Duration = 2, 200, 2*time.Second, 6*time.Second
	if change != nil {
		change(&o)
	}
	return o
}

func run(t *testing.T, o Options) *Report {
	t.Helper()
	r, err := Run(t.Context(), o, nil)
	testkit.Must(t, err)
	if r.Offered != r.Admitted+r.Denied {
		t.Errorf("%d offered, but %d admitted and %d denied", r.Offered, r.Admitted, r.Denied)
	}
	return r
}

func encoded(t *testing.T, r *Report) []byte {
	t.Helper()
	b, err := json.Marshal(r)
	testkit.Must(t, err)
	return b
}

// The same options give the same run, byte for byte; another seed gives another one.
func TestRunsRepeat(t *testing.T) {
	everything := short(func(o *Options) {
		o.Duplicate, o.Reorder, o.Skew, o.Keys, o.Store = 0.1, 0.1, 20*time.Millisecond, 5, true
		o.Partitions = []Partition{{A: 1, From: time.Second, Until: 2 * time.Second}}
		o.Pauses = []Outage{{1, time.Second, 3 * time.Second}}
		o.Crashes = []Outage{{2, time.Second, 2 * time.Second}, {5, 3 * time.Second, 4 * time.Second}}
		for i, k := range StoreFaultKinds {
			from := time.Duration(i) * 2 * time.Second
			f := StoreFault{Kind: k, Region: i % 2, From: from, Until: from}
			if k.hasEnd() {
				f.Until += 3 * time.Second
			}
			o.StoreFaults = append(o.StoreFaults, f)
		}
		o.Window, o.Duration = 10*time.Second, 25*time.Second
	})
	owners := large(func(o *Options) {
		o.Compliant = 1
		o.NodeFaults = []NodeFault{{Kind: OwnerDown, Region: 2, From: time.Second, Until: 4 * time.Second}}
	})
	all := []Options{everything, owners, short(nil)}
	for seed := range uint64(10) {
		all = append(all, randomFaults(seed+1))
	}
	for i, o := range all {
		first := run(t, o)
		a, b := encoded(t, first), encoded(t, run(t, o))
		if !bytes.Equal(a, b) {
			t.Errorf("options %d: two runs differ\n%s\n%s", i, a, b)
		}
		o.Seed += 1000
		if other := run(t, o); other.EventHash == first.EventHash {
			t.Errorf("options %d: two seeds went the same way", i)
		}
	}
}

// One node knows everything, and so do many who hear of each request before the next: both decide as the oracle does.
func TestEqualsTheOracle(t *testing.T) {
	for _, o := range []Options{
		short(func(o *Options) { o.Regions, o.Nodes, o.Load, o.Strategy = 1, 1, 5, Proof }),
		short(func(o *Options) {
			o.WANDelay, o.LANDelay, o.Loss, o.Limit, o.Window, o.Strategy = 0, 0, 0, 20, 10*time.Second, Plain
			var lines strings.Builder
			for i := range 200 { // twice the limit, and an interval and more between two of them
				fmt.Fprintf(&lines, "%g,%d,%d\n", float64(i)*0.25, i%3, i%2)
			}
			o.Trace, o.Duration = readAll(t, lines.String()), 50*time.Second
		}),
	} {
		c, err := newCluster(o, noHooks())
		testkit.Must(t, err)
		testkit.Must(t, c.offer(t.Context(), func(time.Duration) {}))
		r := c.report(c.settle())
		if r.Admitted != r.OracleAdmitted || r.NetPct != 0 || r.PeakPct != 0 || r.ObservedPct > 0 || r.Needless != 0 ||
			!r.OK {
			t.Errorf("it differs from the oracle: %s", encoded(t, r))
		}
		if r.Denied < r.Offered/3 {
			t.Errorf("only %d of %d denied: that shows little", r.Denied, r.Offered)
		}
	}
}

// Each fault acts, and none of them changes when and where requests come.
func TestFaultsAct(t *testing.T) {
	const second = time.Second
	plain := run(t, short(func(o *Options) { o.Loss, o.Strategy = 0, Plain }))
	for _, test := range []struct {
		name   string
		change func(*Options)
		shows  func(r *Report) bool
	}{
		{"loss", func(o *Options) { o.Loss = 0.3 },
			func(r *Report) bool { return r.StalenessP99Millis > 2*plain.StalenessP99Millis }},
		{"delay", func(o *Options) { o.WANDelay = 500 * time.Millisecond }, func(r *Report) bool {
			return r.StalenessP50Millis > plain.StalenessP50Millis+400 && r.ObservedPct > plain.ObservedPct
		}},
		{"duplication", func(o *Options) { o.Duplicate = 0.5 },
			func(r *Report) bool { return r.EventHash != plain.EventHash }},
		{"reordering", func(o *Options) { o.Reorder = 0.5 },
			func(r *Report) bool { return r.StalenessP99Millis > plain.StalenessP99Millis }},
		{"partition", func(o *Options) { o.Partitions = []Partition{{A: 2, From: second, Until: 5 * second}} },
			func(r *Report) bool {
				return r.PeakPct > 20 && r.BoundPct > 60 && r.HealMillis > 0 && r.StalenessP99Millis > 3000
			}},
		{"one-way partition", func(o *Options) {
			o.Partitions = []Partition{{A: 2, OneWay: true, From: second,
				Until: 5 * second}}
		}, func(r *Report) bool {
			return r.PeakPct > 5 && r.HealMillis > 0 && r.StalenessP99Millis > 3000
		}},
		{"skew", func(o *Options) { o.Skew = second }, func(r *Report) bool {
			return r.EventHash != plain.EventHash &&
				r.SkewMillis == 1000
		}},
		{"pause", func(o *Options) { o.Pauses = []Outage{{3, second, 4 * second}} },
			func(r *Report) bool { return r.Failed > 30 && r.StalenessP99Millis > 2000 }},
		{"crash", func(o *Options) { o.Crashes = []Outage{{3, second, 4 * second}} },
			func(r *Report) bool { return r.Failed > 30 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := short(func(o *Options) { o.Loss, o.Strategy = 0, Plain })
			test.change(&o)
			r := run(t, o)
			if !test.shows(r) {
				t.Errorf("it does not show: without %s\nwith %s", encoded(t, plain), encoded(t, r))
			}
			if r.Offered+r.Failed != plain.Offered {
				t.Errorf("%d requests came, without the fault %d", r.Offered+r.Failed, plain.Offered)
			}
			if !r.BoundHeld && o.Skew == 0 {
				t.Errorf("the bound did not hold: %s", encoded(t, r))
			}
		})
	}
}

// The store of a region outlives its nodes: one that crashed alone in its region comes back with its counts.
func TestStoreOutlivesNodes(t *testing.T) {
	var after [2]uint64
	for i, store := range []bool{false, true} {
		o := short(func(o *Options) {
			o.Regions, o.Nodes, o.Limit, o.Window, o.Duration, o.Load, o.Store = 1, 1, 100, 20*time.Second,
				10*time.Second, 2, store
			o.Crashes = []Outage{{0, 8 * time.Second, 9 * time.Second}}
		})
		h := noHooks()
		var c *cluster
		h.restarted = func(n *node) {
			c.after(time.Millisecond, func() { after[i] = n.table.View(c.limit, c.keys[0], c.now) })
		}
		var err error
		if c, err = newCluster(o, h); err != nil {
			t.Fatal(err)
		}
		testkit.Must(t, c.offer(t.Context(), func(time.Duration) {}))
	}
	if after[0] != 0 || after[1] < 60 {
		t.Errorf("after the restart it counts %d without a store and %d with one, want 0 and most of some 75", after[0],
			after[1])
	}
}

func TestCompliantBurstsAreCompliant(t *testing.T) {
	o := short(func(o *Options) {
		o.Pattern, o.Keys, o.Limit, o.Window, o.Duration = CompliantBurst, 12, 100, 5*time.Second, 30*time.Second
	})
	r := run(t, o)
	if r.CompliantClients != 12 || r.CompliantOffered != r.Offered || r.FalseRejections != 0 || r.FalseRejectPct != 0 {
		t.Errorf("%s", encoded(t, r))
	}
	if w := r.PerSecond; w[len(w)-2].WindowOracle != 95 {
		t.Errorf("the fullest window holds %v of 100, want 95", w[len(w)-2].WindowOracle)
	}
}

// Rejections of a client that keeps to its limit are told, and so is that the bound did not hold.
func TestReportTellsWhatIsWrong(t *testing.T) {
	c, err := newCluster(short(func(o *Options) { o.Keys = 2 }), noHooks())
	testkit.Must(t, err)
	for i := range int64(10) {
		c.recorder.decision(0, c.startAt+i*1e8, false) // keeps to it, and is denied
	}
	for i := range int64(210) {
		c.recorder.decision(1, c.startAt+1e9+i, true) // more than the limit, and nobody exports a bound
	}
	c.now = c.endAt
	r := c.report(-1)
	if r.OK || r.FalseRejections != 10 || r.FalseRejectPct != 100 || r.CompliantClients != 1 || r.BoundHeld ||
		r.BoundViolations != 1 ||
		r.ObservedPct != 5 || r.PeakPct != 5 ||
		r.AgreeMillis != -1 ||
		r.Needless != 10 {
		t.Errorf("%s", encoded(t, r))
	}
	for i, want := range []string{"bound", "10 requests", "agree"} {
		if len(r.Wrong) != 3 || !strings.Contains(r.Wrong[i], want) {
			t.Fatalf("it says %q", r.Wrong)
		}
	}
	c.recorder.exported(c.startAt+2e9, 0.05)
	if n := c.recorder.violations(0); n != 0 {
		t.Errorf("%d intervals beyond a bound that came a second later", n)
	}
	c.recorder.bound = nil
	c.recorder.exported(c.startAt+4e9, 0.05)
	if n := c.recorder.violations(0); n != 1 {
		t.Errorf("a bound that came three seconds later speaks for an interval: %d", n)
	}
	if n := c.recorder.violations(0.05); n != 0 {
		t.Errorf("%d intervals beyond what is excused", n)
	}
}

// A run begins when it is told to, whatever the seed.
func TestStart(t *testing.T) {
	for seed := range uint64(5) {
		o := short(func(o *Options) { o.Start, o.Seed = 1_700_000_000*int64(time.Second)+5, seed })
		c, err := newCluster(o, noHooks())
		testkit.Must(t, err)
		if c.startAt != o.Start || c.endAt != o.Start+int64(o.Duration) || c.startAt-c.now != int64(lead+2*o.WANDelay) {
			t.Errorf("it goes from %d to %d, and the nodes run from %d on", c.startAt, c.endAt, c.now)
		}
	}
}

func TestRunStops(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var last time.Duration
	_, err := Run(ctx, short(nil), func(done time.Duration) {
		if last = done; done >= 2*time.Second {
			stop()
		}
	})
	if !errors.Is(err, context.Canceled) || last < 2*time.Second || last > 3*time.Second {
		t.Errorf("it ended at %v with %v", last, err)
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Regions = 0 }, "0 regions"},
		{func(o *Options) { o.Regions, o.Nodes = 1000, 1000 }, "1000 regions of 1000 nodes"},
		{func(o *Options) { o.Regions, o.Nodes = math.MaxInt, math.MaxInt }, "nodes in all"},
		{func(o *Options) { o.Limit = 0 }, "a limit of 0"},
		{func(o *Options) { o.Limit = math.MaxUint64 }, "is above"},
		{func(o *Options) { o.Window = 0 }, "window"},
		{func(o *Options) { o.Interval = time.Millisecond }, "an interval of 1ms"},
		{func(o *Options) { o.Load = math.NaN() }, "a load of NaN"},
		{func(o *Options) { o.Load = math.Inf(1) }, "a load of +Inf"},
		{func(o *Options) { o.Pattern = "odd" }, "pattern"},
		{func(o *Options) { o.Strategy = "odd" }, "strategy"},
		{func(o *Options) { o.Method = 99 }, "unknown algorithm 99"},
		{func(o *Options) { o.Compliant = -1 }, "-1 clients beside"},
		{func(o *Options) { o.Compliant = 5000 }, "5000 clients beside"},
		{func(o *Options) { o.Burst = time.Second }, "bursts are for"},
		{func(o *Options) { o.BurstAt = OnOne }, "bursts are for"},
		{func(o *Options) { o.Pattern, o.Burst = CompliantBurst, time.Minute }, "a burst of 1m0s"},
		{func(o *Options) { o.Pattern, o.BurstAt = CompliantBurst, "odd" }, `bursts at "odd"`},
		{func(o *Options) { o.Method, o.Limit = counters.SlidingLog, 1e6 }, "the maximum of a sliding log"},
		{func(o *Options) { o.Keys = 0 }, "0 keys"},
		{func(o *Options) { o.Pattern, o.Keys = CompliantBurst, 5000 }, "5000 keys"},
		{func(o *Options) {
			o.Pattern, o.Limit, o.Window, o.Duration = CompliantBurst, 1e9, time.Hour, time.Second
		}, "bursts of 1 clients"},
		{func(o *Options) { o.Duration = 0 }, "a duration of 0s"},
		{func(o *Options) { o.Start = 1 }, "a start 1ns after the epoch"},
		{func(o *Options) { o.Limit, o.Load, o.Duration = 1e9, 10_000, time.Hour }, "million requests"},
		{func(o *Options) { o.Loss = 1.5 }, "a loss of 1.5"},
		{func(o *Options) { o.Loss = math.NaN() }, "a loss of NaN"},
		{func(o *Options) { o.WANDelay = -1 }, "delays"},
		{func(o *Options) { o.Skew = -1 }, "skew"},
		{func(o *Options) { o.Partitions = []Partition{{A: 9, Until: 1}} }, "there are 3 regions"},
		{func(o *Options) { o.Crashes = []Outage{{99, 0, 1}} }, "outage of node 99"},
		{func(o *Options) { o.StoreFaults = []StoreFault{{Kind: "odd"}} }, "want one of [down"},
		{func(o *Options) { o.NodeFaults = []NodeFault{{Kind: "odd", Until: 1}} }, "want one of [owner"},
		{func(o *Options) { o.NodeFaults = []NodeFault{{Kind: Rolling, Region: 4, Until: 1}} }, "there are 3"},
		{func(o *Options) { o.NodeFaults = []NodeFault{{Kind: Rolling, From: 1, Until: 1}} }, "an end after"},
		{func(o *Options) { o.StoreFaults = []StoreFault{{Kind: StoreFlush, Region: 4}} }, "flush/4@0s: there are 3"},
		{func(o *Options) { o.StoreFaults = []StoreFault{{Kind: StoreDown, From: 1, Until: 1}} }, "an end after"},
		{func(o *Options) { o.StoreFaults = []StoreFault{{Kind: StoreFlush, From: 1, Until: 2}} }, "an end after"},
		{func(o *Options) { o.StoreFaults = []StoreFault{{Kind: StoreFlush, From: -1, Until: -1}} }, "an end after"},
		{func(o *Options) { o.StoreFaults = []StoreFault{{Kind: StoreSlow, Until: 1e18}} }, "at most 24h"},
		{func(o *Options) { o.Store, o.Window = true, time.Second }, "10s and longer"},
		{func(o *Options) { o.Trace = readAll(t, "0,a,1\n0,b,1\n0,c,1\n0,d,1\n") }, "the trace names more"},
	} {
		o := DefaultOptions()
		test.change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("want %q, got %v", test.want, err)
		}
		if _, err := Run(t.Context(), o, nil); err == nil {
			t.Errorf("%q: it runs", test.want)
		}
	}
	if _, err := ParseAlgorithm("sliding_window"); err != nil {
		t.Error(err)
	}
	if _, err := ParseAlgorithm("guesswork"); err == nil || !strings.Contains(err.Error(), "sliding_window") {
		t.Errorf("%v", err)
	}
}

// The report's JSON has every name that was promised, and a test of a later version has to keep them.
func TestReportNames(t *testing.T) {
	var got map[string]any
	testkit.Must(t, json.Unmarshal(encoded(t, &Report{Redis: &StoreReport{}}), &got))
	for _, name := range []string{"offered", "admitted", "denied", "oracle_admitted", "net_over_admission_pct",
		"peak_over_admission_pct", "false_rejections",
		"false_reject_pct", "bound_pct", "heal_ms", "bytes_per_node_per_s", "messages_per_node_per_s", "bound_held",
		"event_hash", "redis", "ok"} {
		if _, ok := got[name]; !ok {
			t.Errorf("no %s", name)
		}
	}
	n := 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Report]()) {
		if !f.Anonymous {
			n++
		}
	}
	if len(got) != n-1 {
		t.Errorf("%d names for %d fields", len(got), n)
	}
}

func TestQueueOrder(t *testing.T) {
	var q queue
	const n = 1000
	for i := range int32(n) {
		q.push(int64(counters.Key(i)*7919%31), event{node: i})
	}
	lastAt, last := int64(-1), int32(-1)
	for range n {
		at, ok := q.next()
		popped, e := q.pop()
		if !ok || popped != at || at < lastAt || at == lastAt && e.node < last {
			t.Fatalf("%d at %d after %d at %d", e.node, at, last, lastAt)
		}
		lastAt, last = at, e.node
	}
	if _, ok := q.next(); ok {
		t.Error("it is not empty")
	}
}

func TestFlags(t *testing.T) {
	if o := DefaultOptions(); len(o.Flags()) > 0 {
		t.Errorf("the default options need %q", o.Flags())
	}
	o := DefaultOptions()
	o.Pattern, o.Keys, o.Method, o.Interval = Flash, 3, counters.LeakyQueue, 50*time.Millisecond
	o.Partitions = []Partition{{A: 1, Until: time.Second}, {A: 2, B: 1, OneWay: true, Until: time.Minute}}
	o.StoreFaults = []StoreFault{
		{Kind: StoreFlush, From: time.Second, Until: time.Second},
		{Kind: StoreStale, Region: 2, Until: time.Minute},
	}
	want := []string{"--interval", "50ms", "--algorithm", "leaky_queue", "--pattern", "flash", "--keys", "3",
		"--partition", "1/*@0s-1s", "--partition", "2>1@0s-1m0s",
		"--redis-fault", "flush@1s", "--redis-fault", "stale/2@0s-1m0s"}
	if got := o.Flags(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
