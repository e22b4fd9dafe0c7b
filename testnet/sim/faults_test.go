package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "the only seed of TestFaults to run; 0 runs all")
	simSeeds = flag.Int("sim.seeds", 200, "how many seeds TestFaults runs, a tenth of them with the race detector")
)

// randomFaults draws a cluster, its traffic, and what befalls it.
func randomFaults(seed uint64) Options {
	r := rand.New(rand.NewPCG(seed, 0x6661756c7473))
	between := func(least, largest time.Duration) time.Duration {
		return least + time.Duration(r.Int64N(int64(largest-least)+1))
	}
	o := Options{
		Seed: seed, Regions: 1 + r.IntN(3), Nodes: 1 + r.IntN(3), Method: counters.SlidingWindow, Strategy: Proof,
		Limit: uint64(20 + r.IntN(300)), Window: []time.Duration{20 * time.Second, 30 * time.Second}[r.IntN(2)],
		Interval: []time.Duration{50, 100, 100, 200}[r.IntN(4)] * time.Millisecond,
		Load:     0.3 + 4*r.Float64(), Pattern: Patterns[r.IntN(len(Patterns))], Keys: 1 + r.IntN(3),
		Duration: between(12*time.Second, 26*time.Second),
		WANDelay: between(0, 150*time.Millisecond), LANDelay: between(0, 5*time.Millisecond), Jitter: r.Float64(),
		Loss: 0.3 * r.Float64(), Duplicate: 0.2 * r.Float64(), Reorder: 0.2 * r.Float64(), Store: r.IntN(2) == 0,
	}
	o.Nodes = max(o.Nodes, 3-o.Regions)
	if seed%4 == 0 {
		o.Strategy = Plain
	}
	if r.IntN(3) == 0 {
		o.Skew = between(0, o.Window/100)
	}
	when := func() (from, until time.Duration) {
		from = between(0, o.Duration-time.Second)
		return from, min(from+between(100*time.Millisecond, 8*time.Second), o.Duration+time.Second)
	}
	outages := func(largest int) (out []Outage) {
		for range r.IntN(largest + 1) {
			from, until := when()
			out = append(out, Outage{r.IntN(o.Total()), from, until})
		}
		return out
	}
	o.Pauses, o.Crashes = outages(2), outages(2)
	if o.Store {
		o.Keys *= 1 + r.IntN(4) // more slots than the few by which a reconciler looks for a loss
		for range r.IntN(4) {
			f := StoreFault{Kind: StoreFaultKinds[r.IntN(len(StoreFaultKinds))], Region: r.IntN(o.Regions + 1)}
			if f.From, f.Until = when(); !f.Kind.hasEnd() {
				f.Until = f.From
			}
			o.StoreFaults = append(o.StoreFaults, f)
		}
	}
	for range r.IntN(3) {
		p := Partition{A: r.IntN(o.Regions + 1), B: r.IntN(o.Regions + 1), OneWay: r.IntN(2) == 0}
		if p.From, p.Until = when(); p.validate(o.Regions) == nil {
			o.Partitions = append(o.Partitions, p)
		}
	}
	if r.IntN(2) == 0 {
		o.Method = Algorithms[r.IntN(len(Algorithms))]
	}
	o.Compliant = r.IntN(2)
	return o
}

// randomOwnerFaults draws what befalls 30 nodes in 6 regions, where owners add up, in short runs.
func randomOwnerFaults(seed uint64) Options {
	r := rand.New(rand.NewPCG(seed, 0x6f776e657273))
	between := func(least, largest time.Duration) time.Duration {
		return least + time.Duration(r.Int64N(int64(largest-least)+1))
	}
	o := Options{
		Seed: seed, Regions: 6, Nodes: 5, Method: counters.SlidingWindow, Strategy: Proof, Compliant: r.IntN(2),
		Limit: uint64(50 + r.IntN(300)), Window: 20 * time.Second, Interval: 100 * time.Millisecond,
		Load: 0.3 + 4*r.Float64(), Pattern: Patterns[r.IntN(len(Patterns))], Keys: 1 + r.IntN(2),
		Duration: between(5*time.Second, 10*time.Second),
		WANDelay: between(0, 150*time.Millisecond), LANDelay: between(0, 5*time.Millisecond), Jitter: r.Float64(),
		Loss: 0.3 * r.Float64(), Duplicate: 0.2 * r.Float64(), Reorder: 0.2 * r.Float64(),
	}
	if r.IntN(4) == 0 {
		o.Skew = between(0, o.Window/100)
	}
	when := func() (from, until time.Duration) {
		from = between(0, o.Duration-time.Second)
		return from, from + between(100*time.Millisecond, 5*time.Second)
	}
	for range r.IntN(3) {
		from, until := when()
		o.Pauses = append(o.Pauses, Outage{r.IntN(o.Total()), from, until})
	}
	for range r.IntN(3) {
		from, until := when()
		o.Crashes = append(o.Crashes, Outage{r.IntN(o.Total()), from, until})
	}
	for range r.IntN(3) {
		f := NodeFault{Kind: NodeFaultKinds[r.IntN(len(NodeFaultKinds))], Region: 1 + r.IntN(o.Regions)}
		f.From, f.Until = when()
		o.NodeFaults = append(o.NodeFaults, f)
	}
	for range r.IntN(3) {
		p := Partition{A: r.IntN(o.Regions + 1), B: r.IntN(o.Regions + 1), OneWay: r.IntN(3) == 0}
		if p.From, p.Until = when(); p.validate(o.Regions) == nil {
			o.Partitions = append(o.Partitions, p)
		}
	}
	return o
}

// TestFaults plays random faults, seed by seed.
func TestFaults(t *testing.T) { playSeeds(t, randomFaults) }

// TestOwnerFaults is TestFaults where owners add up.
func TestOwnerFaults(t *testing.T) { playSeeds(t, randomOwnerFaults) }

func playSeeds(t *testing.T, draw func(seed uint64) Options) {
	first, last := uint64(1), uint64(*simSeeds)
	if *simSeed != 0 {
		first, last = *simSeed, *simSeed
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			o := draw(seed)
			j, err := judged(o, noHooks())
			testkit.Must(t, err)
			if _, err := j.play(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := j.failure(); err != nil {
				t.Errorf("%+v\nplay it again with\n\tgo test ./testnet/sim -run '%s' -sim.seed=%d\n%v", o,
					t.Name(), seed, err)
			}
		})
	}
}

// Faults are drawn of every kind, or TestFaults would show little.
func TestRandomFaultsAreOfEveryKind(t *testing.T) {
	kinds := make(map[string]int)
	count := func(kind string, is bool) {
		if is {
			kinds[kind]++
		}
	}
	const seeds = 200
	for seed := range uint64(seeds) {
		o := randomFaults(seed + 1)
		if err := o.Validate(); err != nil {
			t.Fatalf("seed %d: %v", seed+1, err)
		}
		count("pauses", len(o.Pauses) > 0)
		count("crashes", len(o.Crashes) > 0)
		count("stores", o.Store)
		for _, f := range o.StoreFaults {
			count("store "+string(f.Kind), true)
		}
		count("skews", o.Skew > 0)
		count("partitions", slices.ContainsFunc(o.Partitions, func(p Partition) bool { return !p.OneWay }))
		count("one-way partitions", slices.ContainsFunc(o.Partitions, func(p Partition) bool { return p.OneWay }))
		count("clients beside the load", o.Compliant > 0)
		count(string(o.Pattern), true)
		count(o.Method.String(), true)
	}
	for _, kind := range append([]string{"pauses", "crashes", "stores", "skews", "partitions", "one-way partitions",
		"clients beside the load"},
		"even", "skew", "hotspot", "flash", "compliant-burst") {
		if kinds[kind] < seeds/10 {
			t.Errorf("%s in %d of %d seeds", kind, kinds[kind], seeds)
		}
	}
	for _, k := range StoreFaultKinds {
		if kinds["store "+string(k)] < seeds/25 {
			t.Errorf("%s of a store %d times in %d seeds", k, kinds["store "+string(k)], seeds)
		}
	}
	for _, a := range Algorithms {
		if kinds[a.String()] < seeds/25 {
			t.Errorf("%s in %d of %d seeds", a, kinds[a.String()], seeds)
		}
	}
}

// The invariants can fail.
func TestFaultsCatches(t *testing.T) {
	for _, test := range []struct {
		name     string
		sabotage func(*hooks)
		want     []string // each is violated under some seed
	}{
		{"counts that add up", func(h *hooks) {
			h.counts = func(n *node) gossip.Counts { return &adding{n.table, make(map[slotID]uint64)} }
		}, []string{"I3 truth", "I3", "I1"}},
		{"nothing arrives at one node", func(h *hooks) {
			h.arrives = func(n *node, _ event) bool { return n.place != 0 }
		}, []string{"I1"}},
		{"a third of what comes is not merged", func(h *hooks) {
			h.counts = func(n *node) gossip.Counts { return &dropping{Table: n.table, every: 3} }
		}, []string{"I1"}},
		{"nothing that comes is merged", func(h *hooks) {
			h.counts = func(n *node) gossip.Counts { return mergeNothing{n.table} }
		}, []string{"I1", "I5"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			missing := test.want
			for seed := uint64(1); seed <= 30 && len(missing) > 0; seed++ {
				h := noHooks()
				test.sabotage(&h)
				j, err := judged(randomFaults(seed), h)
				testkit.Must(t, err)
				if _, err := j.play(t.Context()); err != nil {
					t.Fatal(err)
				}
				missing = slices.DeleteFunc(slices.Clone(missing), func(i string) bool { return j.wrong[i] != nil })
			}
			if len(missing) > 0 {
				t.Errorf("no seed violates %v", missing)
			}
		})
	}
}

// adding takes counts for what was admitted since the last ones.
type adding struct {
	*counters.Table
	sums map[slotID]uint64
}

func (a *adding) MergeRises(slots []counters.Slot, now int64, rises *counters.Rises) int {
	sums := slices.Clone(slots)
	for i, s := range slots {
		id := identify(&s)
		a.sums[id] += s.Count
		sums[i].Count = a.sums[id]
	}
	return a.Table.MergeRises(sums, now, rises)
}

// dropping loses every nth slot that comes.
type dropping struct {
	*counters.Table
	every, came int
}

func (d *dropping) MergeRises(slots []counters.Slot, now int64, rises *counters.Rises) (novel int) {
	for i := range slots {
		if d.came++; d.came%d.every != 0 {
			novel += d.Table.MergeRises(slots[i:i+1], now, rises)
		}
	}
	return novel
}

// mergeNothing merges nothing.
type mergeNothing struct{ *counters.Table }

func (mergeNothing) MergeRises([]counters.Slot, int64, *counters.Rises) int { return 0 }

// A node that crashed gets no part of the limit a minute later, as its clients are other nodes' by then. Where a region
// is cut off, it does.
func TestDemandsOfCrashedNodesAreForgotten(t *testing.T) {
	const gone, until = 15 * time.Second, 115 * time.Second
	for _, test := range []struct {
		name        string
		change      func(*Options)
		least, most float64 // admitted in the last 30 s, of what the oracle admits
	}{
		{"a node", func(o *Options) { o.Crashes = []Outage{{1, gone, until}} }, 0.98, 1.01},
		{"a region", func(o *Options) { o.Partitions = []Partition{{A: 2, From: gone, Until: until}} }, 0.85, 1.02},
	} {
		o := DefaultOptions()
		o.Nodes, o.Duration = 3, until
		test.change(&o)
		r, err := Run(t.Context(), o, nil)
		testkit.Must(t, err)
		var admitted, oracle float64
		for _, s := range r.PerSecond {
			if s.T > until-30*time.Second {
				admitted += s.Admitted
				oracle += s.Oracle
			}
		}
		if part := admitted / oracle; part < test.least || part > test.most {
			t.Errorf("%s is silent: %.3f of the limit is admitted, want %v to %v", test.name, part, test.least,
				test.most)
		}
	}
}
