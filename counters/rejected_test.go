package counters_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

var windows = []counters.Algorithm{counters.SlidingWindow, counters.FixedWindow, counters.SlidingLog}

// counting is a limit of 10 in 10 s that counts what it denies.
func counting(t testing.TB, a counters.Algorithm) *counters.Limit {
	t.Helper()
	return with(t, newLimit(t, counters.NewMeter("r", a, 10*time.Second), 10),
		func(c *counters.LimitConfig) { c.CountRejected = true })
}

// What is denied counts, up to twice the limit, and the wait that is returned is as long as it takes with that.
func TestCountRejected(t *testing.T) {
	for _, a := range windows {
		l, table := counting(t, a), small(1)
		for i := range uint64(40) {
			table = small(1) // a look at a later time, below, moves its counts on
			for range i {
				table.Take(l, 1, 1, start)
			}
			d := table.Take(l, 1, 1, start)
			if d.Allowed != (i < 10) || d.Remaining != 10-min(i+1, 10) {
				t.Fatalf("%v: request %d: %+v", a, i+1, d)
			}
			if view := table.View(l, 1, start); view != min(i+1, 20) {
				t.Fatalf("%v: after request %d the view is %d", a, i+1, view)
			}
			if d.Allowed {
				continue
			}
			sent := table.Take(l, 1, 0, start)
			if sent.RetryAfter != d.RetryAfter || sent.ResetAfter != d.ResetAfter || sent.Allowed {
				t.Errorf("%v: request %d: %+v, and then it is %+v", a, i+1, d, sent)
			}
			if early := table.Take(l, 1, 0, start+int64(d.RetryAfter)-1); early.Allowed {
				t.Errorf("%v: request %d: allowed a nanosecond early", a, i+1)
			}
		}
		wait := table.Take(l, 1, 0, start).RetryAfter
		if d := table.Take(l, 1, 1, start+int64(wait)); !d.Allowed {
			t.Errorf("%v: after the wait: %+v", a, d)
		}
	}
}

// A request is counted as far as there is room up to twice the limit: no more, and no less.
func TestTheEndOfWhatIsCounted(t *testing.T) {
	for _, a := range windows {
		l, table := counting(t, a), small(1)
		for i, want := range []uint64{8, 16, 20, 20} {
			table.Take(l, 1, 8, start)
			if view := table.View(l, 1, start); view != want {
				t.Errorf("%v: after %d requests of 8 the view is %d, want %d", a, i+1, view, want)
			}
		}
		others := small(2)
		others.Merge([]counters.Slot{slotOf(l, 1, start, 7, 0, 35)}, start)
		if others.Take(l, 1, 1, start); others.View(l, 1, start) != 35 || len(others.DrainDirty(start).Slots) != 0 {
			t.Errorf("%v: beyond twice the limit: view %d", a, others.View(l, 1, start))
		}
	}
}

// Who asks for more than the limit without a break is let in once; without the setting it is let in again and again.
// Once it asks for less it is let in within a window.
func TestEagerClientsStayDenied(t *testing.T) {
	const every = int64(time.Second) / 2 // twice the limit
	for _, a := range windows {
		l, table := counting(t, a), small(1)
		plain := newLimit(t, counters.NewMeter("plain", a, 10*time.Second), 10)
		var admitted, plainly int
		now := start
		for range 400 {
			now += every
			if table.Take(l, 1, 1, now).Allowed {
				admitted++
			}
			if table.Take(plain, 1, 1, now).Allowed {
				plainly++
			}
		}
		largest := 10
		if a == counters.FixedWindow {
			largest = 210 // it forgets at each full window
		}
		if admitted > largest || plainly < 170 {
			t.Errorf("%v: %d are admitted, and %d without", a, admitted, plainly)
		}
		calm := now
		for !table.Take(l, 1, 1, now).Allowed {
			if now += int64(2 * time.Second); now-calm > int64(11*time.Second) {
				t.Fatalf("%v: after %v of half the limit it is still denied", a, time.Duration(now-calm))
			}
		}
	}
}

// What is denied is sent as what is admitted: another table denies for it, and believes it, however large the limit.
func TestWhatIsDeniedIsSent(t *testing.T) {
	for _, a := range windows {
		for _, largest := range []uint64{1, 10, counters.MaxLog, counters.MaxLimit} {
			if a == counters.SlidingLog {
				largest = min(largest, counters.MaxLog)
			}
			l := penalized(t, newLimit(t, counters.NewMeter("r", a, 10*time.Second), largest), false, true, 0)
			table, other := small(1), small(2)
			other.Know([]*counters.Limit{l})
			for range 5 {
				table.Take(l, 1, largest, start)
			}
			sent := table.DrainDirty(start).Slots
			wantSlots(t, fmt.Sprint(a, " told"), sent, slotOf(l, 1, start, 1, 0, 2*largest))
			if novel := other.Merge(sent, start); novel != 1 || other.View(l, 1, start) != 2*largest {
				t.Errorf("%v of %d: %d are novel, the view is %d", a, largest, novel, other.View(l, 1, start))
			}
		}
	}
}

// Peeks count nothing, nor does what another layer denied, and what a ban did. What never fits counts.
func TestWhatIsNotCounted(t *testing.T) {
	for _, a := range windows {
		l, full, table := counting(t, a), limitNamed(t, "full", 1), small(1)
		table.Take(full, 1, 1, start)
		table.Take(l, 1, 4, start)
		layers := []counters.Charge{{Limit: l, Key: 1, Cost: 5}, {Limit: full, Key: 1, Cost: 1}}
		table.TakeAll(layers, start, nil)
		table.Take(l, 1, 0, start)
		if view := table.View(l, 1, start); view != 4 {
			t.Errorf("%v: the view is %d, want 4 that were admitted", a, view)
		}
		table.Take(l, 3, 11, start)
		table.Take(l, 3, 1e6, start)
		if view := table.View(l, 3, start); view != 20 {
			t.Errorf("%v: after more than ever fits, twice, the view is %d, want 20", a, view)
		}
		layers[0].Cost = 7 // which both deny
		for i, want := range []uint64{11, 18} {
			if ds := table.TakeAll(layers, start, nil); said(ds) != "dd" || table.View(l, 1, start) != want {
				t.Errorf("%v: denied by itself the %d. time: view %d, want %d", a, i+1, table.View(l, 1, start), want)
			}
		}
		layers[0].Mode = counters.Shadow
		if table.TakeAll(layers[:1], start, nil); table.View(l, 1, start) != 20 {
			t.Errorf("%v: a shadow that denies counts %d", a, table.View(l, 1, start))
		}

		both := penalized(t, l, true, false, time.Minute)
		table.Take(both, 2, 10, start)
		table.Take(both, 2, 1, start)
		table.Take(both, 2, 1, start)
		if view := table.View(both, 2, start); view != 11 {
			t.Errorf("%v: the view is %d, want the limit and the request that was banned for", a, view)
		}
	}
}

// A request that is held back, as others may have used what is left, counts as well.
func TestWhatIsHeldBackIsCounted(t *testing.T) {
	l := penalized(t, limitNamed(t, "r", 1000), false, true, 0)
	table := knowing(l, 2)
	news := slotOf(l, 1, start, 7, 0, 960)
	news.Demand = 1e6
	table.Merge([]counters.Slot{news}, start)
	table.SetWatermark(7, start)
	now := after(50 * time.Millisecond)
	d := table.Take(l, 1, 1, now)
	if d.Allowed || d.RetryAfter <= 0 || d.Remaining != 39 || table.View(l, 1, now) != 961 {
		t.Errorf("%+v, view %d: want it held back, and counted", d, table.View(l, 1, now))
	}
}

func TestBucketsCannotCountWhatTheyDeny(t *testing.T) {
	for _, a := range algorithms {
		l := newLimit(t, counters.NewMeter("r", a, time.Minute), 10)
		with, err := l.With(func(c *counters.LimitConfig) { c.CountRejected = true })
		if isBucket(a) != (err != nil) {
			t.Errorf("%v: %v", a, err)
		}
		if err == nil && (!with.CountsRejected() || l.CountsRejected()) {
			t.Errorf("%v: it is %v, and the limit that it was made of %v", a, with.CountsRejected(), l.CountsRejected())
		}
	}
}
