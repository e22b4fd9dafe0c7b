package counters_test

import (
	"math"
	"math/rand/v2"
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
		last := float32(math.Inf(1))
		for tenth := 31; tenth <= 100; tenth++ {
			for _, s := range table.DrainDirty(after(time.Duration(tenth) * 100 * time.Millisecond)).Slots {
				if tenth > 45 || s.Demand > 0.7*last {
					t.Errorf("nobody asks any more, and after %d tenths of a second reported is %+v", tenth, s)
				}
				last = s.Demand
			}
		}
		if last > 15 {
			t.Errorf("nobody asks any more, and reported last are %.0f a second", last)
		}
	}
}

// What a table reports of its demand adds up to what it was asked for: a report counts until the next one, for 1.2 s
// at most. It does however seldom it is asked, evenly or at random, for whatever cost, and however often it drains.
func TestReportedDemandAddsUp(t *testing.T) {
	for _, test := range []struct{ limit, cost uint64 }{{100, 3}, {1e9, 1e6}} {
		for _, interval := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, time.Second} {
			judge := func(rate float64, burst int, evenly bool, least, most float64) {
				l := limitNamed(t, "r", test.limit)
				reported, asked := reportedDemand(l, test.cost, interval, rate, burst, evenly)
				if ratio := reported / asked; ratio < least || ratio > most {
					t.Errorf("limit %d, cost %d, drained every %v, %v a second, bursts of %d, evenly %v: %.0f of %.0f",
						test.limit, test.cost, interval, rate, burst, evenly, reported, asked)
				}
			}
			for _, rate := range []float64{0.1, 0.5, 1, 3, 8, 13, 20, 100} {
				judge(rate, 1, true, 0.8, 1.25)
				judge(rate, 1, false, 0.8, 1.25)
			}
			for _, burst := range []int{2, 3, 4, 6, 10, 30} {
				judge(0.35, burst, true, 0.7, 1.3)
			}
		}
	}
}

// reportedDemand asks a table for a key that others used up, and returns the cost that it reports, and that it was
// asked for.
func reportedDemand(
	l *counters.Limit, cost uint64, interval time.Duration, rate float64, burst int, evenly bool,
) (reported, asked float64) {
	table := clustered(1, l)
	random, between := rand.New(rand.NewPCG(1, 2)), float64(time.Second)/rate
	next := start + int64(between/3)
	at, demand := start, float32(0)
	add := func(until int64) {
		reported += float64(demand) * min(time.Duration(until-at), 1200*time.Millisecond).Seconds()
	}
	now := start
	for lasts := int64(max(20, 60/rate)) * 1e9; now < start+lasts; now += int64(interval) {
		if (now-start)%1e9 == 0 {
			table.Merge([]counters.Slot{slotOf(l, 1, now, 2, 0, l.Max())}, now)
		}
		for ; next < now+int64(interval); asked += float64(cost) * float64(burst) {
			admits(table, l, burst, cost, next)
			if evenly {
				next += int64(between)
			} else {
				next += int64(between * random.ExpFloat64())
			}
		}
		for _, s := range table.DrainDirty(now + int64(interval)).Slots {
			add(now + int64(interval))
			at, demand = now+int64(interval), s.Demand
		}
	}
	add(now)
	return reported, asked
}

// A key of constant demand that becomes hot is reported as it is by the second interval after that.
func TestDemandOfANewHotKey(t *testing.T) {
	for _, interval := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} {
		for _, rate := range []int{300, 1000} {
			l := limitNamed(t, "r", uint64(10*rate))
			table := clustered(1, l)
			table.DrainDirty(start)
			var reported []float32
			end := after(10 * time.Second)
			for now := start + int64(interval); len(reported) < 2 && now < end; now += int64(interval) {
				admits(table, l, int(interval*time.Duration(rate)/time.Second), 1, now-1)
				for _, s := range table.DrainDirty(now).Slots {
					if s.Demand > 0 {
						reported = append(reported, s.Demand)
					}
				}
			}
			if len(reported) < 2 || reported[1] < 0.85*float32(rate) || reported[1] > 1.01*float32(rate) {
				t.Errorf("asked for %d a second, drained every %v: reported %v", rate, interval, reported)
			}
		}
	}
}

// One request for all of a limit is reported once, or twice, not in every interval.
func TestACostlyRequestIsNotRepeated(t *testing.T) {
	for _, interval := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} {
		l := limitNamed(t, "r", 10)
		table := clustered(1, l)
		table.DrainDirty(after(-interval))
		const keys = 1000
		for key := range counters.Key(keys) {
			table.Take(l, key, 10, start)
		}
		slots := 0
		for now := start; now < after(2*time.Second); now += int64(interval) {
			slots += len(table.DrainDirty(now).Slots)
		}
		if slots > 2*keys {
			t.Errorf("drained every %v: %d slots of %d requests", interval, slots, keys)
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
	for interval := range time.Duration(3) {
		now := after((interval - 1) * 100 * time.Millisecond)
		table.DrainDirty(now)
		admits(table, l, 1000, 100, now)
	}
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

// A hotKey goes when it is of no use any more, though the key is asked for on and on; that two tables have one does not
// keep them.
func TestAHotKeyGoesBeforeItsCell(t *testing.T) {
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
	if each := (st.Bytes - empty) / keys; each > 144+104+4*16+8 || st.Keys != keys || st.Evicted > 0 {
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
