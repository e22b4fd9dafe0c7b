package counters_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// overdraft charges a key of a limit whatever becomes of the request.
func overdraft(table *counters.Table, l *counters.Limit, cost uint64, now int64) counters.Decision {
	return table.TakeAll([]counters.Charge{{Limit: l, Key: 1, Cost: cost, Overdraw: true}}, now, nil)[0]
}

// The example in overdraft.go, under every algorithm: 100 of 1,000 are left, and a charge of 5,000 comes.
func TestOverdraw(t *testing.T) {
	for _, a := range algorithms {
		l, table := newLimit(t, counters.NewMeter("r", a, 10*time.Second), 1000), small(1)
		table.Take(l, 1, 900, start)
		d := overdraft(table, l, 5000, start)
		if d.Allowed || d.Remaining != 0 || d.RetryAfter != counters.Never || table.View(l, 1, start) != 2000 {
			t.Errorf("%v: %+v, view %d, want it denied, and 2000 used", a, d, table.View(l, 1, start))
		}
		peek := table.Take(l, 1, 0, start)
		if peek.Allowed || peek.RetryAfter <= 0 {
			t.Errorf("%v: a peek after it: %+v", a, peek)
		}
		if again := overdraft(table, l, 1e12, start); again.Allowed || table.View(l, 1, start) != 2000 {
			t.Errorf("%v: the next one makes the view %d", a, table.View(l, 1, start))
		}
		if early := table.Take(l, 1, 0, start+int64(peek.RetryAfter)-1); early.Allowed {
			t.Errorf("%v: allowed before %v", a, peek.RetryAfter)
		}
		if d := table.Take(l, 1, 1, start+int64(peek.RetryAfter)); !d.Allowed {
			t.Errorf("%v: after %v: %+v", a, peek.RetryAfter, d)
		}
	}
}

// An overdraft is sent as other counts are, and other tables believe it.
func TestAnOverdraftIsReplicated(t *testing.T) {
	for _, a := range algorithms {
		l, table, other := newLimit(t, counters.NewMeter("r", a, 10*time.Second), 10), small(1), small(2)
		other.Know([]*counters.Limit{l})
		overdraft(table, l, 50, start)
		if novel := other.Merge(table.DrainDirty(start).Slots, start); novel != 1 || other.View(l, 1, start) != 20 {
			t.Errorf("%v: %d slots are novel, the view is %d, want 20", a, novel, other.View(l, 1, start))
		}
		if d := other.Take(l, 1, 1, start); d.Allowed || other.Stats().Implausible != 0 {
			t.Errorf("%v: elsewhere %+v, %d slots are not believed", a, d, other.Stats().Implausible)
		}
	}
}

// Of a request that one layer denies, all layers that may be overdrawn are charged, once each, and no others. A limit
// that counts what it denies by itself does not count it twice.
func TestWhichLayersAreOverdrawn(t *testing.T) {
	table := small(1)
	full, room, plain := limitNamed(t, "full", 10), limitNamed(t, "room", 100), limitNamed(t, "plain", 100)
	rejecting := penalized(t, limitNamed(t, "rejecting", 10), false, true, 0)
	shadow := limitNamed(t, "shadow", 10)
	table.Take(full, 1, 9, start)
	ds := table.TakeAll([]counters.Charge{
		{Limit: full, Key: 1, Cost: 5, Overdraw: true}, {Limit: room, Key: 1, Cost: 5, Overdraw: true}, {Limit: plain,
			Key: 1, Cost: 5},
		{Limit: rejecting, Key: 1, Cost: 12, Overdraw: true}, {Limit: shadow, Key: 1, Cost: 12, Overdraw: true,
			Mode: counters.Shadow}, {},
	}, start, nil)
	if said(ds) != "daadwa" || ds[0].Remaining != 0 || ds[1].Remaining != 95 {
		t.Errorf("%s: %+v", said(ds), ds)
	}
	for l, want := range map[*counters.Limit]uint64{full: 14, room: 5, plain: 0, rejecting: 12, shadow: 12} {
		if view := table.View(l, 1, start); view != want {
			t.Errorf("%s: the view is %d, want %d", l.Meter().Rule, view, want)
		}
	}
}

// Of an elastic layer and its lender, which both have no room, both are overdrawn, as by a report; a loan in a
// request that another layer denies is charged to the lender alone.
func TestOverdrawnLenders(t *testing.T) {
	table := small(1)
	own, lender, closed := limitNamed(t, "own", 10), limitNamed(t, "lender", 20), limitNamed(t, "closed", 0)
	layers := []counters.Charge{
		{Limit: own, Key: 1, Cost: 15, Mode: counters.Elastic, Lender: 2, Overdraw: true}, {Limit: lender, Key: 1,
			Cost: 15, Overdraw: true},
		{Limit: closed, Key: 1, Cost: 1},
	}
	views := func(wantOwn, wantLender uint64) {
		t.Helper()
		if a, b := table.View(own, 1, start), table.View(lender, 1, start); a != wantOwn || b != wantLender {
			t.Errorf("%d and %d are used, want %d and %d", a, b, wantOwn, wantLender)
		}
	}
	table.TakeAll(layers, start, nil) // a loan, which the third layer denies
	views(0, 15)
	table.TakeAll(layers[:2], start, nil) // neither has room
	views(15, 30)
}

// A client that waits as long as it was asked to gets in, whatever it asks for before. Who asks for one at a
// time always does.
func TestWhoOverdrawsGetsInAgain(t *testing.T) {
	for _, a := range algorithms {
		l, table := newLimit(t, counters.NewMeter("r", a, 10*time.Second), 10), small(1)
		now := start
		for range 20 {
			d := overdraft(table, l, 4, now)
			for !d.Allowed {
				now += int64(d.RetryAfter)
				d = overdraft(table, l, 4, now)
			}
		}
		if took := time.Duration(now - start); took > 20*20*time.Second {
			t.Errorf("%v: 80 of 10 in 10 s took %v", a, took)
		}
	}
}
