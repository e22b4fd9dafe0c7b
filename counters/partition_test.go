package counters_test

import (
	"math"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// duo is two tables of which one is asked for 100 a second and the other for 50, and which tell each other ten times a
// second.
type duo struct {
	limit    *counters.Limit
	tables   [2]*counters.Table
	every    [2]int64 // between two requests
	clump    int64    // so many of them come at once, of each side at another time; 0: one
	now      int64
	apart    bool
	admitted [3]oracle.Rolling // by each, and by both
}

func newDuo(l *counters.Limit) *duo {
	d := &duo{limit: l, every: [2]int64{10e6, 20e6}, now: start}
	for i := range d.tables {
		d.tables[i] = least(counters.Origin(i + 1))
		d.tables[i].Know([]*counters.Limit{l})
		d.tables[i].SetCluster(1, horizon)
	}
	return d
}

func (d *duo) run(lasting time.Duration) {
	for end := d.now + int64(lasting); d.now < end; d.now += 1e6 {
		for i, table := range d.tables {
			clump := max(1, d.clump)
			if gap := d.every[i] * clump; (d.now+int64(i)*gap/2)%gap >= 1e6 {
				continue
			}
			for range clump {
				if table.Take(d.limit, 1, 1, d.now).Allowed {
					d.admitted[i].Add(d.now, 1)
					d.admitted[2].Add(d.now, 1)
				}
			}
		}
		if d.now%1e8 != 0 {
			continue
		}
		sent := [2][]counters.Slot{d.tables[0].DrainDirty(d.now).Slots, d.tables[1].DrainDirty(d.now).Slots}
		for i, table := range d.tables {
			if !d.apart {
				table.Merge(sent[1-i], d.now)
				table.SetWatermark(counters.Origin(2-i), d.now)
			}
		}
	}
}

// peak is the most that one (or with 2, both) admitted in a window that ends within the last so long.
func (d *duo) peak(who int, last time.Duration) uint64 {
	return d.admitted[who].PeakWithin(d.limit.Meter().Window, d.now-int64(last), d.now)
}

// least is the fewest in a window that ends within the last so long, looked at each second.
func (d *duo) fewest(who int, last time.Duration) uint64 {
	fewest := uint64(math.MaxUint64)
	for at := d.now - int64(last); at <= d.now; at += 1e9 {
		fewest = min(fewest, d.admitted[who].PeakWithin(d.limit.Meter().Window, at, at))
	}
	return fewest
}

// Two that are cut from each other go on to admit the limit together, each the part that it is asked for; after the cut
// nothing of it is left. Neither comes near the limit alone: that it is an offender they know only as long as they
// remember.
func TestEachSideOfACutAdmitsItsShare(t *testing.T) {
	const window = 10 * time.Second
	for _, test := range []struct {
		name string
		l    *counters.Limit
	}{
		{"sliding window", newLimit(t, counters.NewMeter("r", counters.SlidingWindow, window), 1000)},
		{"sliding log", newLimit(t, counters.NewMeter("r", counters.SlidingLog, window), 1000)},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, largest := newDuo(test.l), test.l.Max()
			d.run(2 * window)
			d.apart = true
			d.run(4 * window)
			if peak, fewest := d.peak(2, 3*window), d.fewest(2, 3*window); peak > largest*106/100 ||
				fewest < largest*90/100 {
				t.Errorf("both sides of a cut admit %d to %d in a window, of %d", fewest, peak, largest)
			}
			for i, share := range []uint64{largest * 2 / 3, largest / 3} {
				if peak, fewest := d.peak(i, 3*window), d.fewest(i, 3*window); peak > share*110/100 ||
					fewest < share*88/100 {
					t.Errorf("side %d admits %d to %d in a window, of a share of %d", i, fewest, peak, share)
				}
				if w := d.tables[i].HotKeyState(d.limit, 1); w.Estimate == 0 || w.Unreachable == 0 || w.Until < d.now {
					t.Errorf("side %d in a cut: %+v", i, w)
				}
			}
			d.apart = false
			d.run(window)
			for i, table := range d.tables {
				if w := table.HotKeyState(d.limit, 1); w.Estimate != 0 || w.Unreachable != 0 {
					t.Errorf("side %d after the cut: %+v", i, w)
				}
			}
			d.run(2 * window)
			if peak, fewest := d.peak(2, window), d.fewest(2, window); peak > largest*103/100 ||
				fewest < largest*94/100 {
				t.Errorf("after the cut both admit %d to %d in a window, of %d", fewest, peak, largest)
			}
		})
	}
}

// The same where each side is asked for ten times the limit, evenly or some at once.
func TestEachSideOfACutAdmitsItsShareOfManyTimesTheLimit(t *testing.T) {
	const window = time.Minute
	for _, clump := range []int64{1, 5} {
		d := newDuo(newLimit(t, counters.NewMeter("r", counters.SlidingWindow, window), 100))
		d.every, d.clump = [2]int64{60e6, 60e6}, clump
		d.run(2 * window)
		d.apart = true
		d.run(4 * window)
		if peak := d.peak(2, 4*window); peak > 115 || peak < 95 {
			t.Errorf("%d at once: both sides of a cut admit %d in a window, of 100", clump, peak)
		}
	}
}

// A side that is for itself admits the whole limit. Windows hold less as long as what it is asked for comes in bursts:
// what is beyond an even share stays until its sub-window has left.
func TestEachSideOfACutForItself(t *testing.T) {
	const window = 10 * time.Second
	l := with(t, newLimit(t, counters.NewMeter("r", counters.SlidingWindow, window), 400),
		func(c *counters.LimitConfig) { c.OnPartition = counters.Local })
	d := newDuo(l)
	d.run(2 * window)
	d.apart = true
	d.run(4 * window)
	for i := range d.tables {
		if peak, fewest := d.peak(i, 2*window), d.fewest(i, 2*window); peak > 410 || fewest < 330 {
			t.Errorf("side %d admits %d to %d in a window, of 400", i, fewest, peak)
		}
	}
}

// One that is left by another for good has the limit to itself.
func TestWhoIsGoneLeavesNothingBehind(t *testing.T) {
	const window = 10 * time.Second
	d := newDuo(newLimit(t, counters.NewMeter("r", counters.SlidingWindow, window), 400))
	d.run(2 * window)
	d.apart = true
	d.run(window)
	if w := d.tables[0].HotKeyState(d.limit, 1); w.Estimate == 0 {
		t.Errorf("in a cut: %+v", w)
	}
	d.tables[0].SetWatermark(2, counters.Gone)
	d.run(20 * time.Millisecond)
	if w := d.tables[0].HotKeyState(d.limit, 1); w.PeerRates != 0 || w.Estimate != 0 || w.Unreachable != 0 {
		t.Errorf("of one that is gone there is left: %+v", w)
	}
	d.run(3 * window)
	if peak, fewest := d.peak(0, window), d.fewest(0, window); peak > 400 || fewest < 330 {
		t.Errorf("it admits %d to %d in a window, of 400", fewest, peak)
	}
}

// What is put down to those who are unreachable goes with the part of them that is reachable again, and with time.
func TestEstimatesShrinkByParts(t *testing.T) {
	l := millionOf(t, counters.SlidingWindow)
	table := clustered(2, l)
	table.Merge([]counters.Slot{sentWith(l, 1, start, 2, 480e3, 6e3), sentWith(l, 1, start, 3, 480e3, 3e3)}, start)
	table.SetWatermark(2, after(-2*time.Second))
	table.SetWatermark(3, after(-2*time.Second))
	for _, test := range []struct {
		back counters.Origin
		at   time.Duration
		want float64
	}{
		{0, 0, 18e3},                        // 9k/s for 2 s
		{0, 100 * time.Millisecond, 18.9e3}, // and a tenth of a second more
		{3, 200 * time.Millisecond, (18.9e3 + 600) * 2 / 3},
		{0, 1200 * time.Millisecond, (18.9e3+600)*2/3 + 6e3},
		{2, 1300 * time.Millisecond, 0},
	} {
		now := after(test.at)
		table.SetWatermark(test.back, now)
		if test.at >= 200*time.Millisecond {
			table.SetWatermark(3, now)
		}
		table.Take(l, 1, 1, now)
		if got := table.HotKeyState(l, 1).Estimate; math.Abs(got-test.want) > test.want/30 {
			t.Errorf("after %v: %.0f are put down to those who are not heard, want %.0f", test.at, got, test.want)
		}
	}
}

// However long nobody asked: those who are unreachable are taken to have admitted no more than fits into the time that
// counts.
func TestEstimatesCoverTheTimeThatCounts(t *testing.T) {
	l := millionOf(t, counters.SlidingWindow)
	table := clustered(1, l)
	table.Merge([]counters.Slot{sentWith(l, 1, start, 2, 960e3, 1e3)}, start)
	table.SetWatermark(2, after(-time.Hour))
	table.Take(l, 1, 1, start)
	if got := table.HotKeyState(l, 1).Estimate; got != 10e3 {
		t.Errorf("%v in 10 s of 1000 a second", got)
	}
}

// A bucket that is full again within nanoseconds has steps as well.
func TestEstimatesOfAFastBucket(t *testing.T) {
	l := newBucket(t, counters.NewMeter("fast", counters.TokenBucket, time.Millisecond), 1, counters.MaxLimit)
	table := clustered(1, l)
	table.Merge([]counters.Slot{sentWith(l, 1, start, 2, 1, 1e9)}, start)
	table.SetWatermark(2, after(-time.Hour))
	for i := range int64(100) {
		table.Take(l, 1, 1, start+i*1e6)
	}
	if !table.Take(l, 1, 1, after(time.Hour)).Allowed {
		t.Error("an hour later it is not full")
	}
}
