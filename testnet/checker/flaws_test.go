package checker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/race"
)

var patterns = []string{"even", "skew", "burst"}

// A limiter that works breaks nothing: not under any pattern, nor where a region is cut off. Bursts that begin in a cut are left out:
// nobody can know of them, and the bound does not cover them.
func TestNoFlawBreaksNothing(t *testing.T) {
	seeds := uint64(race.Tenth(200))
	for _, pattern := range patterns {
		t.Run(pattern, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds {
				cut := pattern != "burst" && seed%2 == 1
				h, entries := play(t, flaw{}, pattern, cut, seed)
				r := judged(t, h, entries)
				if len(r.Broken()) > 0 || r.AgreeMs < 0 || r.Total.FalseRejections > 0 {
					t.Fatalf("seed %d:\n%s", seed, text(t, r))
				}
				if r.Total.Denied == 0 || r.Total.ExcessPct == 0 || len(r.Phases) == 1 && cut {
					t.Fatalf("seed %d: a run in which nothing was limited shows nothing:\n%s", seed, text(t, r))
				}
			}
		})
	}
}

// onlyOwn leaves nothing of a frame, as if it had held nothing.
func onlyOwn(*world, *simNode, simFrame) ([]counters.Slot, bool) { return nil, true }

// flaws are limiters that are broken, and what has to be named: under every pattern, and under the even one beside. What is admitted
// too much under a skew may stay within the bound, which then is as wide.
var flaws = []struct {
	flaw
	cut   bool
	names []Invariant
	even  []Invariant
}{
	{flaw{name: "no gossip at all", frame: func(*world, *simNode, simFrame) ([]counters.Slot, bool) { return nil, false }},
		false, []Invariant{Bounded, Agreement}, nil},
	{flaw{name: "frames are heard and not merged", frame: onlyOwn}, false, []Invariant{Bounded, Agreement}, nil},
	{flaw{name: "every delta counts twice", frame: twice}, false, []Invariant{Truth, Compliant}, []Invariant{Agreement, Growth}},
	{flaw{name: "a node that forgets", disturb: forget}, false, []Invariant{Growth}, []Invariant{Agreement, Bounded}},
	{flaw{name: "denies from 90 % on", decide: thrifty}, false, []Invariant{Compliant}, nil},
	{flaw{name: "goes on admitting after the heal", frame: deafAfterHeal, longer: 6 * time.Second}, true, []Invariant{Agreement}, []Invariant{Bounded}},
	{flaw{name: "a clock one window ahead", ahead: worldWindow}, false, []Invariant{Agreement}, []Invariant{Bounded, Growth}},
}

// twice counts each delta under a second birth as well.
func twice(_ *world, _ *simNode, f simFrame) ([]counters.Slot, bool) {
	slots := slices.Clone(f.slots)
	for _, s := range f.slots {
		s.Birth += 1000
		slots = append(slots, s)
	}
	return slots, true
}

// forget makes a node lose all that it counted, as if other keys had needed the room: what is over its limit would go last, and a real
// table would keep it.
func forget(w *world) {
	n := w.nodes[w.rand.IntN(len(w.nodes))]
	w.losses++
	n.table = counters.NewTable(counters.Config{Origin: counters.Origin(len(w.nodes)*w.losses + n.number + 1), Memory: counters.MinMemory})
}

// thrifty denies what would use more than 90 % of the limit.
func thrifty(n *simNode, l *counters.Limit, key counters.Key, now int64) counters.Decision {
	d := n.table.Take(l, key, 0, now)
	if used := l.Max() - d.Remaining; used+1 > l.Max()*9/10 {
		d.Allowed = false
		return d
	}
	return n.table.Take(l, key, 1, now)
}

// deafAfterHeal merges nothing from the other side of a cut once it has healed.
func deafAfterHeal(w *world, to *simNode, f simFrame) ([]counters.Slot, bool) {
	crosses := (w.nodes[f.from].region == cutRegion) != (to.region == cutRegion)
	if crosses && w.now >= w.start+int64(cutTo) {
		return nil, true
	}
	return f.slots, true
}

// Every flaw is found under every pattern, and named.
func TestFlawsAreNamed(t *testing.T) {
	for _, f := range flaws {
		for _, pattern := range patterns {
			t.Run(f.name+"/"+pattern, func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(5) {
					h, entries := play(t, f.flaw, pattern, f.cut, seed)
					r := judged(t, h, entries)
					got := invariants(r)
					for _, name := range f.names {
						if got[name] == 0 {
							t.Errorf("seed %d: %s is not named, only %v:\n%s", seed, name, got, text(t, r))
						}
					}
				}
			})
		}
	}
}

// invariants counts the violations by what they broke.
func invariants(r *Report) map[Invariant]int {
	out := make(map[Invariant]int)
	for _, v := range r.Broken() {
		out[v.Invariant] += v.Times
	}
	return out
}

func text(t testing.TB, r *Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// What a flaw does not break is not named: a finding has to point to its cause.
func TestFlawsAreToldApart(t *testing.T) {
	for _, f := range flaws {
		h, entries := play(t, f.flaw, "even", f.cut, 1)
		got := slices.Sorted(maps.Keys(invariants(judged(t, h, entries))))
		want := slices.Sorted(slices.Values(slices.Concat(f.names, f.even)))
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s breaks %v, want %v", f.name, got, want)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	h, entries := play(b, flaw{}, "even", true, 1)
	b.ReportAllocs()
	for b.Loop() {
		judged(b, h, entries)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(entries)), "ns/entry")
}
