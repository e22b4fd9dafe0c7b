package gossip

import (
	"bytes"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// The simulation has to be able to fail, and to fail twice in the same way.

func TestSimulationRepeatsItself(t *testing.T) {
	for seed := uint64(1); seed <= 6; seed++ {
		a, b := simulate(seed, sabotage{}), simulate(seed, sabotage{})
		if !bytes.Equal(a.trace.Sum(nil), b.trace.Sum(nil)) {
			t.Errorf("seed %d: two runs sent different messages (%d and %d)", seed, a.messages, b.messages)
		}
		if a.messages < 100 || len(a.delivered) < 100 {
			t.Errorf("seed %d: only %d messages sent, %d delivered", seed, a.messages, len(a.delivered))
		}
	}
	if a, b := simulate(1, sabotage{}), simulate(2, sabotage{}); bytes.Equal(a.trace.Sum(nil), b.trace.Sum(nil)) {
		t.Error("two seeds sent the same messages")
	}
}

func TestSimulationCatches(t *testing.T) {
	for _, test := range []struct {
		name      string
		sabotage  func() sabotage
		invariant []string // each is violated under some seed
	}{
		{"counts that add up", func() sabotage {
			return sabotage{counts: func(t *counters.Table) Counts { return &adding{t, make(map[remoteSlot]uint64)} }}
		}, []string{"truth", "I1", "I3"}},
		{"counts of which the last one wins", func() sabotage {
			return sabotage{counts: func(t *counters.Table) Counts { return &lastWins{t, make(map[remoteSlot]counters.Slot)} }}
		}, []string{"I2", "I3"}},
		{"counts that drop every tenth", func() sabotage {
			return sabotage{counts: func(t *counters.Table) Counts { return &dropping{Table: t} }}
		}, []string{"I1", "complete"}},
		{"a cell that never arrives at one node", func() sabotage {
			return sabotage{swallow: func(to *simNode, data []byte) bool {
				return to.place == 1 && mentions(data, 1)
			}}
		}, []string{"I1", "rest"}},
		{"nothing arrives that is sent again", func() sabotage {
			return sabotage{swallow: swallowOld()}
		}, []string{"I1", "rest"}},
		{"a table that starts anew when a member leaves", func() sabotage {
			return sabotage{left: func(n *simNode) {
				n.table = counters.NewTable(counters.Config{Origin: n.origin, Memory: counters.MinMemory})
				n.counts, n.replica.counts = n.table, n.table
			}}
		}, []string{"I2", "I7"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			missing := test.invariant
			caught := make(map[string]error)
			for seed := uint64(1); seed <= 20 && len(missing) > 0; seed++ {
				maps.Copy(caught, simulate(seed, test.sabotage()).wrong)
				missing = slices.DeleteFunc(slices.Clone(missing), func(i string) bool { return caught[i] != nil })
			}
			if len(missing) > 0 {
				t.Errorf("no seed violates %v, only %v", missing, slices.Sorted(maps.Keys(caught)))
			}
		})
	}
}

// mentions reports whether the frame says anything of the key.
func mentions(data []byte, key counters.Key) bool {
	f, err := decodeFrame(data)
	return err == nil && slices.ContainsFunc(f.groups, func(g group) bool {
		return slices.ContainsFunc(g.unpack(f.sent), func(s counters.Slot) bool { return s.Key == key })
	})
}

// swallowOld swallows every frame that is not the newest of its origin, and snapshots that are not the first.
func swallowOld() func(*simNode, []byte) bool {
	type pair struct {
		from   counters.Origin
		to     counters.Origin
		isSnap bool
	}
	newest := make(map[pair]uint64)
	return func(to *simNode, data []byte) bool {
		f, err := decodeFrame(data)
		if err != nil || f.kind == beacon {
			return false
		}
		p := pair{f.origin, to.origin, f.kind == snapshot}
		known, ok := newest[p]
		if ok && (f.tick <= known || p.isSnap) {
			return true
		}
		newest[p] = f.tick
		return false
	}
}

// remoteSlot is a slot without its count.
type remoteSlot struct {
	meter  counters.Meter
	key    counters.Key
	index  int64
	origin counters.Origin
	birth  uint32
}

func remote(s counters.Slot) remoteSlot {
	return remoteSlot{*s.Meter, s.Key, s.Index, s.Origin, s.Birth}
}

// adding takes counts for what was admitted since the last ones.
type adding struct {
	*counters.Table
	sums map[remoteSlot]uint64
}

func (a *adding) Merge(slots []counters.Slot, now int64) int {
	sums := slices.Clone(slots)
	for i, s := range slots {
		a.sums[remote(s)] += s.Count
		sums[i].Count = a.sums[remote(s)]
	}
	return a.Table.Merge(sums, now)
}

// lastWins keeps the count that came last.
type lastWins struct {
	*counters.Table
	last map[remoteSlot]counters.Slot
}

func (l *lastWins) Merge(slots []counters.Slot, _ int64) int {
	for _, s := range slots {
		if s.Origin != l.Origin() {
			m := *s.Meter
			s.Meter = &m
			l.last[remote(s)] = s
		}
	}
	return 0
}

func (l *lastWins) Snapshot(now int64, limit int) []counters.Slot {
	slots := l.Table.Snapshot(now, limit)
	for _, s := range l.last {
		if s.Index >= s.Meter.Index(now)-int64(s.Meter.SubWindows()) {
			slots = append(slots, s)
		}
	}
	return slots
}

// dropping loses every tenth slot that comes, once.
type dropping struct {
	*counters.Table
	came int
}

func (d *dropping) Merge(slots []counters.Slot, now int64) (novel int) {
	for i := range slots {
		if d.came++; d.came%10 != 0 {
			novel += d.Table.Merge(slots[i:i+1], now)
		}
	}
	return novel
}

func (l *lastWins) Heard(counters.Origin, int64)  {}
func (l *lastWins) SetCluster(int, time.Duration) {}
func (l *lastWins) SetRegion(int, time.Duration)  {}
