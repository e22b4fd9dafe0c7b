package counters_test

import (
	"math"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Demand is sent when it changed by a third, and twice a second as long as somebody asks, although all is denied and
// nothing rises.
func TestDemandIsSentWhenItChanged(t *testing.T) {
	for _, own := range []uint64{0, 100} { // of the count that is sent with it
		l := limitNamed(t, "r", 100)
		table := clustered(1, l)
		if own > 0 {
			table.Take(l, 1, own, start)
		} else {
			table.Merge([]counters.Slot{slotOf(l, 1, start, 2, 0, 100)}, start)
		}
		table.DrainDirty(after(time.Millisecond))
		var sent []int // after which tenths of a second
		for tenth := 1; tenth <= 30; tenth++ {
			asked := 10
			if tenth > 20 {
				asked = 40
			}
			now := after(time.Duration(tenth) * 100 * time.Millisecond)
			admits(table, l, asked, 1, now-5e7)
			for _, s := range table.DrainDirty(now).Slots {
				if s.Count != own && s.Count != 0 || s.Origin != 1 || s.Demand <= 0 || s.Key != 1 {
					t.Errorf("denials tell %+v, want a count of %d", s, own)
				}
				sent = append(sent, tenth)
			}
		}
		if len(sent) == 0 || sent[0] != 1 {
			t.Fatalf("told after %v tenths of a second, want it from the first on", sent)
		}
		for i, last := 0, 0; i <= len(sent); i++ {
			next := 30
			if i < len(sent) {
				next = sent[i]
			}
			if next-last > 5 {
				t.Errorf("not told between %d and %d tenths of a second", last, next)
			}
			last = next
		}
		steady, rising := 0, 0
		for _, tenth := range sent {
			switch {
			case tenth > 10 && tenth <= 20:
				steady++
			case tenth == 21:
				rising++
			}
		}
		if steady != 2 || rising != 1 {
			t.Errorf("told after %v tenths of a second: want twice between the 10th and the 20th, and at the 21st",
				sent)
		}
		sent = nil
		if slots := table.DrainDirty(after(10 * time.Second)).Slots; len(slots) != 0 {
			t.Errorf("nobody asks any more, and told is %+v", slots)
		}
	}
}

// A demand with no count is heard.
func TestDemandWithoutACountIsReceived(t *testing.T) {
	l := limitNamed(t, "r", 100)
	table := clustered(1, l)
	if table.Merge([]counters.Slot{sentWith(l, 1, start, 2, 0, 30)}, start); table.HotKeyState(l, 1).PeerRates != 1 {
		t.Errorf("%+v", table.HotKeyState(l, 1))
	}
}

// The own demand that nobody adds to fades.
func TestDemandFades(t *testing.T) {
	l := millionOf(t, counters.SlidingWindow)
	table := crowded(l)
	table.DrainDirty(start)
	admits(table, l, 1000, 100, start)
	table.DrainDirty(after(100 * time.Millisecond)) // 1M/s
	for _, origin := range []counters.Origin{2, 3} {
		table.SetWatermark(origin, after(time.Second))
	}
	for _, test := range []struct {
		quiet time.Duration
		want  float64
	}{{0, 2e6}, {300 * time.Millisecond, 1e6 + 1e6/math.E}, {3 * time.Second, 1e6}} {
		now := after(100*time.Millisecond + horizon + test.quiet)
		// and so the sums are old
		table.Merge([]counters.Slot{sentWith(l, 1, start, 2, 1, 500e3), sentWith(l, 1, start, 3, 1, 500e3)}, now)
		table.SetWatermark(2, now)
		table.SetWatermark(3, now)
		table.Take(l, 1, 1, now)
		if w := table.HotKeyState(l, 1); math.Abs(w.Reachable-test.want) > test.want/50 {
			t.Errorf("after %v all are asked for %.0f a second, want %.0f", test.quiet, w.Reachable, test.want)
		}
	}
}

// A reachable peer that does not report a key for more than a second is not asked for it.
func TestPeerRatesExpire(t *testing.T) {
	l := millionOf(t, counters.SlidingWindow)
	table := crowded(l)
	for _, test := range []struct {
		since time.Duration
		rates int
	}{{0, 2}, {time.Second, 2}, {1190 * time.Millisecond, 2}, {1220 * time.Millisecond, 1}} {
		table.SetWatermark(2, after(test.since))
		table.Take(l, 1, 1, after(test.since+20*time.Millisecond))
		if w := table.HotKeyState(l, 1); w.PeerRates != test.rates {
			t.Errorf("heard after %v: %+v, want %d peer rates", test.since, w, test.rates)
		}
	}
}

// A watch goes when it is of no use any more, though the key is asked for on and on; that two tables have one does not
// keep them.
func TestAWatchGoesBeforeItsCell(t *testing.T) {
	d := newDuo(newLimit(t, counters.NewMeter("r", counters.SlidingWindow, 10*time.Second), 1000))
	d.run(15 * time.Second)
	for i, table := range d.tables {
		if w := table.HotKeyState(d.limit, 1); w == nil || w.PeerRates != 1 || w.Until == 0 {
			t.Fatalf("table %d, of an offender: %+v", i, w)
		}
	}
	d.every = [2]int64{200e6, 200e6}
	d.run(25 * time.Second)
	for i, table := range d.tables {
		if w := table.HotKeyState(d.limit, 1); w != nil {
			t.Errorf("table %d, when a tenth of the limit is used: %+v", i, w)
		}
		if view := table.View(d.limit, 1, d.now); view == 0 {
			t.Errorf("table %d: the key is not asked for", i)
		}
	}
}

// A flood of keys that are all over a limit of 1, and spoken of by two peers: what is known of a key stays small.
func TestAFloodOfOffenders(t *testing.T) {
	const keys, budget = 100_000, 64 << 20
	l := limitNamed(t, "r", 1)
	table := counters.NewTable(counters.Config{Origin: 1, Memory: budget})
	table.SetCluster(2, horizon)
	table.Know([]*counters.Limit{l})
	empty := table.Stats().Bytes
	for key := range counters.Key(keys) {
		table.Merge([]counters.Slot{sentWith(l, key, start, 2, 1, 5), sentWith(l, key, start, 3, 1, 5)}, start)
		for range 3 {
			if table.Take(l, key, 1, start).Allowed {
				t.Fatalf("key %d is over its limit", key)
			}
		}
	}
	table.DrainDirty(after(100 * time.Millisecond))
	st := table.Stats()
	if each := (st.Bytes - empty) / keys; each > 144+88+4*16+8 || st.Keys != keys || st.Evicted > 0 {
		t.Errorf("%d bytes a key, %+v", each, st)
	}
}

func BenchmarkTakeOfAnOffender(b *testing.B) {
	l := millionOf(b, counters.SlidingWindow)
	table := crowded(l)
	for origin := range counters.Origin(500) {
		table.Merge([]counters.Slot{sentWith(l, 1, start, 4+origin, 1, 1e3)}, start)
	}
	now := start
	b.ReportAllocs()
	for b.Loop() {
		now += 100
		table.Take(l, 1, 1, now)
	}
}
