package sim

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// The judge of records, put to runs whose cause is known: limiters that work, and limiters with a flaw.

// judgedPatterns are those under which each flaw is played.
var judgedPatterns = []Pattern{Even, Skew, Flash}

// flaw is how a limiter is broken; the zero value is one that is not.
type flaw struct {
	name    string
	hooks   func(*hooks)
	prepare func(*cluster)
	longer  time.Duration // by how much the traffic lasts longer, so that the flaw shows
	pattern Pattern       // the only one under which it shows; empty: all of judgedPatterns
}

const (
	cutFrom = 4 * time.Second
	cutTo   = 8 * time.Second
)

// verdictOf plays six nodes in three regions under a flaw, and has the record judged.
func verdictOf(t *testing.T, f flaw, pattern Pattern, cut bool, seed uint64) *judge.Report {
	t.Helper()
	o := DefaultOptions()
	o.Nodes, o.Limit, o.Window, o.Pattern, o.Compliant, o.Seed = 2, 300, 5*time.Second, pattern, 1, seed
	o.Duration, o.WANDelay = 11*time.Second+f.longer, 40*time.Millisecond
	if cut {
		o.Partitions, o.OnPartition = []Partition{{A: 2, From: cutFrom, Until: cutTo}}, counters.Local
	}
	h := noHooks()
	if f.hooks != nil {
		f.hooks(&h)
	}
	prepare := f.prepare
	if prepare == nil {
		prepare = func(*cluster) {}
	}
	header, entries, err := recordRun(t.Context(), o, h, prepare)
	testkit.Must(t, err)
	r, err := judge.Judge(header, func(yield func(record.Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	})
	testkit.Must(t, err)
	return r
}

func verdictText(t *testing.T, r *judge.Report) string {
	t.Helper()
	var b strings.Builder
	testkit.Must(t, r.WriteText(&b))
	return b.String()
}

// broken counts the violations by what they broke.
func broken(r *judge.Report) map[judge.Invariant]int {
	out := make(map[judge.Invariant]int)
	for _, v := range r.Violations {
		out[v.Invariant] += v.Times
	}
	return out
}

// A limiter that works breaks nothing: not under any pattern, nor where a region is partitioned. Bursts that begin in a
// partition are left out: nobody can know of them, and the bound does not cover them.
func TestNoFlawBreaksNothing(t *testing.T) {
	seeds := uint64(200)
	for _, pattern := range judgedPatterns {
		t.Run(string(pattern), func(t *testing.T) {
			t.Parallel()
			exceeded := uint64(0)
			for seed := range seeds {
				cut := pattern != Flash && seed%2 == 1
				r := verdictOf(t, flaw{}, pattern, cut, seed)
				if len(r.Violations) > 0 || r.AgreeMs < 0 || r.Total.FalseRejections > 0 {
					t.Fatalf("seed %d:\n%s", seed, verdictText(t, r))
				}
				if r.Total.ExcessPct > 0 {
					exceeded++
				} else if cut || pattern == Flash {
					t.Errorf("seed %d: nothing exceeds the limit, which shows nothing of the bound", seed)
				}
				if r.Total.Denied == 0 || len(r.Phases) == 1 && cut {
					t.Fatalf("seed %d: a run in which nothing was limited shows nothing:\n%s", seed, verdictText(t, r))
				}
			}
			if exceeded < seeds*3/4 {
				t.Errorf("the limit was exceeded in %d of %d runs: that shows little of the bound", exceeded, seeds)
			}
		})
	}
}

type named = []judge.Invariant

// flaws are limiters that are broken, and what the judge has to name: that, and nothing else.
var flaws = []struct {
	flaw
	cut   bool
	names named
}{
	// The bound covers peers that are unreachable: without gossip it holds.
	{flaw{name: "no gossip at all", hooks: func(h *hooks) {
		h.arrives = func(*node, event) bool { return false }
	}}, false, named{judge.Agreement}},
	{flaw{name: "frames are received and not merged", hooks: func(h *hooks) {
		h.counts = func(n *node) gossip.Counts { return mergeNothing{n.table} }
	}}, false, named{judge.Agreement, judge.Bounded}},
	{flaw{name: "every delta counts twice", hooks: func(h *hooks) {
		h.counts = func(n *node) gossip.Counts { return mergeTwice{n.table} }
	}}, false, named{judge.Agreement, judge.Growth, judge.Truth, judge.Compliant}},
	{flaw{name: "a node that forgets", prepare: forget}, false, named{judge.Agreement, judge.Growth, judge.Bounded}},
	// The steady client reaches 87 % of the limit, as a sliding window counts it for a sub-window longer; bursts 95 %.
	{flaw{name: "denies from 86 % on", hooks: func(h *hooks) { h.take = thrifty(86) }}, false, named{judge.Compliant}},
	{flaw{name: "denies from 94 % on", hooks: func(h *hooks) { h.take = thrifty(94) }, pattern: CompliantBurst}, false,
		named{judge.Compliant}},
	{flaw{name: "goes on admitting after the heal", hooks: func(h *hooks) {
		healed, home := false, map[counters.Origin]*node(nil)
		h.counts = func(n *node) gossip.Counts { return deafAfterHeal{n.table, n, &healed, &home} }
		take := h.take
		h.take = func(c *cluster, n *node, client int) counters.Decision {
			home, healed = c.home, c.now >= c.startAt+int64(cutTo)
			return take(c, n, client)
		}
	}, longer: 6 * time.Second}, true, named{judge.Agreement, judge.Bounded}},
	// Where it is one window ahead, others count what it admitted a window later, within the run: that breaks more.
	{flaw{name: "a clock three windows ahead", prepare: func(c *cluster) {
		c.nodes[len(c.nodes)-1].skew += 3 * int64(c.opt.Window)
	}}, false, named{judge.Agreement}},
}

// mergeTwice counts each delta under a second birth as well.
type mergeTwice struct{ *counters.Table }

func (m mergeTwice) MergeRises(slots []counters.Slot, now int64, rises *counters.Rises) int {
	again := slices.Clone(slots)
	for i := range again {
		again[i].Birth += 1000
	}
	return m.Table.MergeRises(append(again, slots...), now, rises)
}

// forget replaces the table of a node at random every half second: as if other keys had needed the room.
func forget(c *cluster) {
	r := c.opt.stream(drawRecord)
	origin := counters.Origin(1000)
	var again func()
	again = func() {
		n := c.nodes[r.IntN(len(c.nodes))]
		origin++
		n.table = counters.NewTable(counters.Config{Origin: origin, Memory: counters.MinMemory})
		c.after(time.Second/2, again)
	}
	c.after(lead, again)
}

// thrifty denies what would use more than a part of the limit, in percent.
func thrifty(percent uint64) func(*cluster, *node, int) counters.Decision {
	return func(c *cluster, n *node, client int) counters.Decision {
		d := n.table.Take(c.limit, c.keys[client], 0, c.clock(n))
		if used := c.limit.Max() - d.Remaining; used+1 > c.limit.Max()*percent/100 {
			d.Allowed = false
			return d
		}
		return c.take(n, client)
	}
}

// deafAfterHeal merges nothing from the other side of a partition once it has healed.
type deafAfterHeal struct {
	*counters.Table
	node   *node
	healed *bool
	home   *map[counters.Origin]*node
}

func (d deafAfterHeal) MergeRises(slots []counters.Slot, now int64, rises *counters.Rises) int {
	if *d.healed {
		cut := func(n *node) bool { return n.region == 1 }
		slots = slices.DeleteFunc(slices.Clone(slots), func(s counters.Slot) bool {
			return cut(d.node) != cut((*d.home)[s.Origin])
		})
	}
	return d.Table.MergeRises(slots, now, rises)
}

// namesOnly fails unless the verdict names what the flaw breaks, and nothing else: a finding has to point to its
// cause.
func (f flaw) namesOnly(t *testing.T, r *judge.Report, names named) {
	t.Helper()
	got, want := slices.Sorted(maps.Keys(broken(r))), slices.Sorted(slices.Values(names))
	if !slices.Equal(got, want) {
		t.Errorf("%s breaks %v, want %v:\n%s", f.name, got, want, verdictText(t, r))
	}
}

// The judge finds every flaw under every pattern, and names it.
func TestFlawsAreNamed(t *testing.T) {
	for _, f := range flaws {
		patterns := judgedPatterns
		if f.pattern != "" {
			patterns = []Pattern{f.pattern}
		}
		for _, pattern := range patterns {
			t.Run(f.name+"/"+string(pattern), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(5) {
					f.namesOnly(t, verdictOf(t, f.flaw, pattern, f.cut, seed), f.names)
				}
			})
		}
	}
}

func TestFlawsAreDistinguished(t *testing.T) {
	for _, f := range flaws {
		f.namesOnly(t, verdictOf(t, f.flaw, cmp.Or(f.pattern, Even), f.cut, 1), f.names)
	}
}
