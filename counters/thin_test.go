package counters_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

// horizon is that of the examples: H is 300 ms.
const horizon = 200 * time.Millisecond

// sentWith is a slot that tells a demand as well.
func sentWith(
	l *counters.Limit, key counters.Key, at int64, origin counters.Origin, count uint64, demand float32,
) counters.Slot {
	s := slotOf(l, key, at, origin, 0, count)
	s.Demand, s.CompleteThrough = demand, at
	return s
}

// clustered returns a table of origin 1 that has peers 2, 3 and so on, and knows the limits.
func clustered(peers int, limits ...*counters.Limit) *counters.Table {
	table := least(1)
	table.SetCluster(peers, horizon)
	table.Know(limits)
	return table
}

// millionOf is a limit of a million in ten seconds.
func millionOf(t rapid.TB, a counters.Algorithm) *counters.Limit {
	return newLimit(t, counters.NewMeter("million", a, 10*time.Second), 1e6)
}

// crowded is a table that knows 960 000 of a million from two peers who are asked for 500 000 a second each, and were
// heard 100 ms ago.
func crowded(l *counters.Limit) *counters.Table {
	table := clustered(2, l)
	mergeCrowd(table, l)
	return table
}

// mergeCrowd has a table know what crowded does.
func mergeCrowd(table *counters.Table, l *counters.Limit) {
	table.Merge([]counters.Slot{sentWith(l, 1, start, 2, 480e3, 500e3), sentWith(l, 1, start, 3, 480e3, 500e3)}, start)
	table.SetWatermark(2, after(-100*time.Millisecond))
	table.SetWatermark(3, after(-100*time.Millisecond))
}

// admits asks n times, and returns how often it was admitted.
func admits(table *counters.Table, l *counters.Limit, n int, cost uint64, now int64) (admitted int) {
	for range n {
		if table.Take(l, 1, cost, now).Allowed {
			admitted++
		}
	}
	return admitted
}

// Worked examples of p = (L - V - U + R) / (D + Lambda*H), with L of a million: of a thousand requests the part p is
// admitted.
func TestThinningAdmitsThePartThatFits(t *testing.T) {
	window := millionOf(t, counters.SlidingWindow)
	local := with(t, window, func(c *counters.LimitConfig) { c.OnPartition = counters.Local })
	for _, test := range []struct {
		name  string
		limit *counters.Limit
		cost  uint64
		more  func(table *counters.Table)
		want  float64
	}{
		// D = 2*500k/s * 100ms = 100k, Lambda*H = 1M/s * 300ms = 300k
		{"two peers", window, 1, nil, 40e3 / 400e3},
		{"a cost of three", window, 3, nil, 40e3 / 400e3},
		{"a fixed window", millionOf(t, counters.FixedWindow), 1, nil, 40e3 / 400e3},
		// a tenth of a second's refill comes back three times in H
		{"a bucket", millionOf(t, counters.TokenBucket), 1, nil, (40e3 + 30e3) / 400e3},
		// its own 10 000 in each of two intervals of 100 ms are 100k/s
		{"demand of its own", window, 1, func(table *counters.Table) {
			table.Merge([]counters.Slot{sentWith(window, 2, start, 2, 940e3, 500e3),
				sentWith(window, 2, start, 3, 0, 500e3)}, after(-200*time.Millisecond))
			for now := after(-200 * time.Millisecond); now <= start; now += 1e8 {
				table.DrainDirty(now)
				for range 100 {
					if now < start {
						table.Take(window, 2, 100, now)
					}
				}
			}
		}, 40e3 / (100e3 + 1.1e6*0.3)},
		// of 100 000 in the sub-window that leaves, three tenths go within H
		{"some of it leaves", window, 1, func(table *counters.Table) {
			old := sentWith(window, 2, after(-10*time.Second), 2, 100e3, 0)
			table.Merge([]counters.Slot{old, sentWith(window, 2, start, 2, 430e3, 500e3),
				sentWith(window, 2, start, 3, 430e3, 500e3)}, start)
		}, (40e3 + 30e3) / 400e3},
		// peer 3, asked for 5k/s, has not been heard for 2 s: it is taken to have admitted 10 000 since
		{"one is not heard", window, 1, func(table *counters.Table) {
			table.Merge([]counters.Slot{sentWith(window, 2, start, 2, 480e3, 500e3),
				sentWith(window, 2, start, 3, 480e3, 5e3)}, start)
			table.SetWatermark(3, after(-2*time.Second))
		}, (40e3 - 10e3) / (50e3 + 505e3*0.3)},
		{"one is not heard, and each side is for itself", local, 1,
			func(table *counters.Table) {
				table.Merge([]counters.Slot{sentWith(window, 2, start, 2, 480e3, 500e3),
					sentWith(window, 2, start, 3, 480e3, 5e3)}, start)
				table.SetWatermark(3, after(-2*time.Second))
			}, 40e3 / (50e3 + 150e3)},
		{"just 95 % of it used", window, 1, func(table *counters.Table) {
			table.Merge([]counters.Slot{sentWith(window, 2, start, 2, 949e3, 5e6),
				sentWith(window, 2, start, 3, 0, 5e6)}, start)
		}, 1},
		{"room for all that comes", window, 1, func(table *counters.Table) {
			table.Merge([]counters.Slot{sentWith(window, 2, start, 2, 960e3, 50e3),
				sentWith(window, 2, start, 3, 0, 49e3)}, start)
		}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			table, key := crowded(test.limit), counters.Key(1)
			if test.more != nil {
				test.more(table)
				key = 2
			}
			admitted := 0
			for range 1000 {
				if table.Take(test.limit, key, test.cost, start).Allowed {
					admitted++
				}
			}
			if want := 1000 * test.want; math.Abs(float64(admitted)-want) > 1+want/100 {
				t.Errorf("%d of 1000 were admitted, want %.1f", admitted, want)
			}
		})
	}
}

// What begins to leave the window only within H is not lent: neither the next sub-window of one that slides, nor all
// that a fixed one holds.
func TestThinningLendsNothingThatDoesNotLeaveYet(t *testing.T) {
	for _, a := range []counters.Algorithm{counters.SlidingWindow, counters.SlidingLog, counters.FixedWindow} {
		l := newLimit(t, counters.NewMeter("thousand", a, 10*time.Second), 1000)
		table := clustered(2, l)
		now := after(9900 * time.Millisecond) // what was counted in the first second begins to leave in a tenth of one
		table.Merge([]counters.Slot{
			sentWith(l, 1, start, 2, 960, 0), sentWith(l, 1, now, 2, 1, 800), sentWith(l, 1, now, 3, 1, 800),
		}, now)
		table.SetWatermark(2, now)
		table.SetWatermark(3, now)
		// p = (1000 - 962) / (1600/s * 300 ms) to begin with, and less as less is left
		if got := admits(table, l, 1000, 1, now); got < 32 || got > 34 {
			t.Errorf("%v: %d of 1000 were admitted, want 38 * (1 - exp(-1000/480))", a, got)
		}
	}
}

// D goes by what was sent of the key last, where that is younger than what is known of all keys; and by the newest of
// what was sent, in whatever order it comes.
func TestThinningGoesByTheNewestReport(t *testing.T) {
	l := millionOf(t, counters.SlidingWindow)
	sent := func(count uint64, demand float32, at time.Duration) counters.Slot {
		s := sentWith(l, 1, start, 2, count, demand)
		s.SentAt = after(at)
		return s
	}
	for _, test := range []struct {
		name  string
		slots []counters.Slot
		want  float64
	}{
		// D = 1M/s * 50ms, Lambda*H = 1M/s * 300ms; it is known of all keys as of a second ago
		{"younger", []counters.Slot{sent(960e3, 1e6, -50*time.Millisecond)}, 40e3 / 350e3},
		{"older", []counters.Slot{sent(960e3, 1e6, -2*time.Second)}, 40e3 / 1.3e6},
		{"from a clock that is ahead", []counters.Slot{sent(960e3, 1e6, time.Minute)}, 40e3 / 300e3},
		{"at a time that is unknown", []counters.Slot{sent(960e3, 1e6, -time.Duration(start))}, 40e3 / 1.3e6},
		{"late", []counters.Slot{sent(960e3, 1e6, -50*time.Millisecond), sent(950e3, 9e6, -90*time.Millisecond)},
			40e3 / 350e3},
		{"in turn", []counters.Slot{sent(950e3, 9e6, -90*time.Millisecond), sent(960e3, 1e6, -50*time.Millisecond)},
			40e3 / 350e3},
	} {
		table := clustered(1, l)
		for _, s := range test.slots {
			table.Merge([]counters.Slot{s}, start)
		}
		table.SetWatermark(2, after(-time.Second))
		if got, want := float64(admits(table, l, 1000, 1, start)), 1000*test.want; math.Abs(got-want) > 2 {
			t.Errorf("%s: %v of 1000 were admitted, want %.1f", test.name, got, want)
		}
	}
}

// What one layer of a request would admit and another denies costs no credit, and saves none beyond the next request;
// what all admit costs it once.
func TestThinningOfLayers(t *testing.T) {
	l, none := millionOf(t, counters.SlidingWindow), limitNamed(t, "none", 0)
	table := crowded(l)
	both := []counters.Charge{
		{Limit: l, Key: 1, Cost: 1},
		{Limit: limitNamed(t, "wide", counters.MaxLimit), Key: 1, Cost: 1},
	}
	admitted := 0
	for range 1000 {
		if allAllowed(table.TakeAll(both, start, nil)) {
			admitted++
		}
	}
	if admitted < 98 || admitted > 102 || table.View(l, 1, start) != 960e3+uint64(admitted) {
		t.Errorf("%d of 1000 were admitted in both layers, and %d are counted; want 100", admitted,
			table.View(l, 1, start)-960e3)
	}
	for range 10_000 {
		table.TakeAll([]counters.Charge{{Limit: l, Key: 1, Cost: 1}, {Limit: none, Key: 1, Cost: 1}}, start, nil)
	}
	for i := range 2 { // what was saved is a request and what it takes to go on evenly
		if n := admits(table, l, 1, 1, start); i == 0 && n != 1 {
			t.Error("what another layer denied has cost this one its credit")
		}
	}
	if n := admits(table, l, 1000, 1, start); n < 97 || n > 102 {
		t.Errorf("%d of 1000 were admitted after many that another layer denied, want 100", n)
	}
}

// Layers that were admitted before the key became an offender owe nothing.
func TestLayersBeforeTheProofOweNothing(t *testing.T) {
	l := millionOf(t, counters.SlidingWindow)
	table := clustered(1, l)
	table.Merge([]counters.Slot{sentWith(l, 1, start, 2, 900e3, 1e6)}, start)
	table.SetWatermark(2, start)
	if ds := table.TakeAll([]counters.Charge{{Limit: l, Key: 1, Cost: 49e3}}, start, nil); !ds[0].Allowed {
		t.Fatalf("49 000 of the 50 000 that nobody has to prove anything for: %+v", ds[0])
	}
	table.Merge([]counters.Slot{sentWith(l, 1, start, 2, 911e3, 1e6)}, start) // 40 000 are left, of 300 000 that come
	if n := admits(table, l, 1000, 1, start); n < 130 || n > 135 {
		t.Errorf("%d of 1000 were admitted, want 133", n)
	}
}

// A request that can never fit proves nothing, and brings no credit.
func TestWhatCanNeverFitIsNoProof(t *testing.T) {
	l := millionOf(t, counters.SlidingWindow)
	for _, cost := range []uint64{1e6 + 1, math.MaxUint64 - 960e3, math.MaxUint64} {
		table := crowded(l)
		// more than the room there is, if it were an offender
		table.Merge([]counters.Slot{sentWith(l, 2, start, 2, 100e3, 5e6)}, start)
		for key := range counters.Key(3) {
			layer := []counters.Charge{{Limit: l, Key: key, Cost: cost}}
			if table.Take(l, key, cost, start).Allowed || table.TakeAll(layer, start, nil)[0].Allowed {
				t.Errorf("a cost of %d was admitted to key %d", cost, key)
			}
		}
		if w := table.HotKeyState(l, 2); w.Until != 0 {
			t.Errorf("a cost of %d makes an offender", cost)
		}
		if n := admits(table, l, 1000, 1, start); n < 98 || n > 102 {
			t.Errorf("after a cost of %d %d of 1000 were admitted, want 100", cost, n)
		}
	}
}

// Whatever a peer says that it is asked for does no harm to others than the offender, and none that lasts.
func TestDemandThatIsALie(t *testing.T) {
	l := millionOf(t, counters.SlidingWindow)
	for _, lie := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, math.MaxFloat32, 1e-45} {
		table := crowded(l)
		table.Merge(
			[]counters.Slot{sentWith(l, 1, start, 4, 1, float32(lie)), sentWith(l, 2, start, 4, 100, float32(lie))},
			start)
		table.Merge([]counters.Slot{sentWith(l, 3, start, 4, 0, float32(lie))}, start)
		if n := admits(table, l, 1000, 1, start); n > 102 || !(lie > 1) && n < 98 {
			t.Errorf("%v: %d of 1000 were admitted, want 100, or where it is much, fewer", lie, n)
		}
		for range 1000 {
			if d := table.Take(l, 2, 1, start); !d.Allowed {
				t.Fatalf("%v: a key that proved nothing was denied: %+v", lie, d)
			}
		}
		// in a partition, reachable again, gone
		for _, watermark := range []int64{after(-time.Hour), after(2 * time.Second), counters.Gone} {
			table.SetWatermark(4, watermark)
			table.Take(l, 1, 1, after(15*time.Millisecond))
			w := table.HotKeyState(l, 1)
			for _, n := range []float64{w.Reachable, w.Unreachable, w.Estimate} {
				if !(n >= 0 && n < 1e15) {
					t.Errorf("%v: %+v", lie, w)
				}
			}
		}
		table.SetWatermark(2, after(30*time.Millisecond))
		table.Take(l, 1, 1, after(30*time.Millisecond))
		if w := table.HotKeyState(l, 1); w.PeerRates != 2 || w.Estimate != 0 || w.Unreachable != 0 {
			t.Errorf("%v: of a liar that is gone there is left: %+v", lie, w)
		}
	}
}

// An origin without a report yet has not been silent for ever.
func TestAPeerIsReachableOnceItSends(t *testing.T) {
	l := millionOf(t, counters.SlidingWindow)
	table := clustered(1, l)
	table.Merge([]counters.Slot{sentWith(l, 1, start, 2, 960e3, 400e3)}, start)
	if n := admits(table, l, 1000, 1, start); n < 330 || n > 336 { // 40k / (400k/s * 300ms)
		t.Errorf("%d of 1000 were admitted, want 333", n)
	}
	if w := table.HotKeyState(l, 1); w.Unreachable != 0 || w.Estimate != 0 {
		t.Errorf("a peer that just spoke is taken to be silent: %+v", w)
	}
}

// The flag lapses when what made it has left, and then all is as if it had not been.
func TestTheFlagLapses(t *testing.T) {
	l := millionOf(t, counters.TokenBucket)
	table := clustered(1, l)
	table.Merge([]counters.Slot{sentWith(l, 1, start, 2, 960e3, 1.5e6)}, start)
	speak := func(at time.Duration) {
		table.Merge([]counters.Slot{sentWith(l, 1, start, 2, 960e3, 1.5e6)}, after(at))
		table.SetWatermark(2, after(at))
	}
	speak(0)
	table.Take(l, 1, 1, start)
	if w := table.HotKeyState(l, 1); w.Until != start+int64(l.Lasts()) {
		t.Fatalf("an offender for %v, want %v", time.Duration(w.Until-start), l.Lasts())
	}
	// A third of the bucket is back, but two million a second may come.
	speak(3 * time.Second)
	if n := admits(table, l, 1000, 1, after(3*time.Second)); n < 812 || n > 832 { // (340k + 30k) / 450k
		t.Errorf("before the flag lapses %d of 1000 were admitted, want 822", n)
	}
	speak(10 * time.Second)
	if n := admits(table, l, 1000, 1, after(10*time.Second)); n != 1000 {
		t.Errorf("after the flag lapsed %d of 1000 were admitted", n)
	}
	// Not even a partition brings it back: that wants a new proof.
	if n := admits(table, l, 1000, 1, after(15*time.Second)); n != 1000 || table.HotKeyState(l, 1).Unreachable == 0 {
		t.Errorf("in a cut long after %d of 1000 were admitted (%+v)", n, table.HotKeyState(l, 1))
	}
}

// A flag is not renewed for a key that nobody asked for when it lapsed.
func TestAFlagIsNotRenewedLater(t *testing.T) {
	l := millionOf(t, counters.TokenBucket)
	table := crowded(l)
	table.Take(l, 1, 1, start)
	if n := admits(table, l, 1000, 1, after(25*time.Second)); n != 1000 || table.HotKeyState(l, 1).Unreachable == 0 {
		t.Errorf("%d of 1000 were admitted (%+v)", n, table.HotKeyState(l, 1))
	}
}

// The sums over peers are made a few times in a horizon, not with each request.
func TestSumsAreMadeSeldom(t *testing.T) {
	l := millionOf(t, counters.SlidingWindow)
	table, sums := crowded(l), make(map[int64]bool)
	for i := range 2000 {
		table.Take(l, 1, 1, start+int64(horizon)*int64(i)/2000)
		sums[table.HotKeyState(l, 1).Summed] = true
	}
	if n := len(sums); n < 8 || n > 17 {
		t.Errorf("the sums were made %d times in a horizon, want about 16 times", n)
	}
}

// A clock that is set back or forward leaves no offender for longer than its time, and nothing denied for ever.
func TestClocksThatAreSet(t *testing.T) {
	for _, a := range algorithms {
		for _, by := range []time.Duration{-25 * time.Hour, -time.Hour, -time.Second, time.Hour, 25 * time.Hour} {
			for _, window := range []time.Duration{10 * time.Second, 24 * time.Hour} {
				l := newLimit(t, counters.NewMeter("r", a, window), 1000)
				table := clustered(2, l)
				noon := after(30 * time.Minute)
				table.Merge([]counters.Slot{sentWith(l, 1, noon, 2, 480, 500), sentWith(l, 1, noon, 3, 480, 500)}, noon)
				table.SetWatermark(2, noon)
				table.SetWatermark(3, after(30*time.Minute-3*time.Second))
				admits(table, l, 100, 1, noon)
				now := noon + int64(by)
				for i := range 50 {
					admits(table, l, 10, 1, now+int64(i)*1e8)
					table.DrainDirty(now + int64(i)*1e8)
					w := table.HotKeyState(l, 1)
					if w == nil {
						continue
					}
					if w.Until > max(now, noon)+50e8+int64(l.Lasts()) ||
						by < 0 && w.Until > noon+50e8+int64(l.Lasts()) {
						t.Errorf("%v of %v, by %v: an offender for %v", a, window, by, time.Duration(w.Until-now))
					}
					if largest := 2 * 500 * l.Lasts().Seconds(); !(w.Estimate >= 0 && w.Estimate <= largest) {
						t.Errorf("%v of %v, by %v: peers are taken to have admitted %v, at most %v", a, window, by,
							w.Estimate, largest)
					}
				}
				table.SetWatermark(2, counters.Gone)
				table.SetWatermark(3, counters.Gone)
				if n := admits(table, l, 1000, 1, max(now, noon)+2*int64(window)+60e8); n != 1000 {
					t.Errorf("%v of %v, by %v: when all has passed %d of 1000 were admitted", a, window, by, n)
				}
			}
		}
	}
}

// Where owners add up, many tables are asked once for a key whose limit is short. Together they admit the part that
// fits, and not each none of it.
func TestManyTablesAdmitThePartOfFewRequests(t *testing.T) {
	const tables = 500
	l, admitted := millionOf(t, counters.SlidingWindow), 0
	for n := range uint64(tables) {
		seed := n * 0x9e3779b97f4a7c15
		table := counters.NewTable(counters.Config{Origin: 1, Seed: seed, Memory: counters.MinMemory})
		table.SetCluster(2, horizon)
		table.Know([]*counters.Limit{l})
		table.SetOwners(new(counters.Owners))
		mergeCrowd(table, l)
		admitted += admits(table, l, 1, 1, start)
	}
	if want := 50.0; math.Abs(float64(admitted)-want) > 27 { // p is 0.1: four standard deviations
		t.Errorf("%d of %d tables admitted their only request, want about %g", admitted, tables, want)
	}
}
