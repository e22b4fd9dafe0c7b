package counters_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func newDebts(t testing.TB, table *counters.Table) *counters.Debts {
	t.Helper()
	d, err := counters.NewDebts(table, "%debts", table.Know)
	testkit.Must(t, err)
	return d
}

// arrival is the naive exact model of one key: a theoretical arrival time.
type arrival int64

func (a *arrival) owed(now int64) time.Duration { return time.Duration(max(int64(*a), now) - now) }

func (a *arrival) take(charge, capacity time.Duration, now int64) (allowed bool) {
	if allowed = a.owed(now)+charge <= capacity; allowed {
		*a = arrival(now + int64(a.owed(now)+charge))
	}
	return allowed
}

func (a *arrival) giveBack(amount, capacity time.Duration, now int64) (ok bool) {
	rest := max(0, a.owed(now)-amount)
	if ok = rest <= capacity; ok {
		*a = arrival(now + int64(rest))
	}
	return ok
}

// A key has one debt under all limits: of whatever capacity, and however it was charged and given back.
func TestDebtsAsAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDebts(quietly{}, small(1))
		var model [3]arrival
		now, slack := start, time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key := rapid.IntRange(0, 2).Draw(t, "key")
			capacity := time.Second << rapid.IntRange(0, 25).Draw(t, "capacity")
			amount := time.Duration(rapid.Int64Range(0, int64(capacity)+int64(capacity)/8).Draw(t, "amount"))
			amount = amount.Truncate(max(time.Millisecond, min(time.Second, capacity/64)))
			now += rapid.Int64Range(0, int64(capacity)/4).Draw(t, "pause")
			before := model[key].owed(now)
			// What classes round, at most a tenth of a second each, decides nothing here.
			if gap := before + amount - capacity; gap.Abs() <= slack && gap != 0 {
				continue
			}
			if rapid.IntRange(0, 3).Draw(t, "back") == 0 {
				if gap := before - amount - capacity; gap.Abs() <= slack && gap != 0 {
					continue
				}
				if owed, ok := d.GiveBack(counters.Key(key), amount, capacity, now); ok !=
					model[key].giveBack(amount, capacity, now) || (owed-before).Abs() > slack {
					t.Fatalf("gave back %v of %v: %v, %v", amount, before, owed, ok)
				}
				slack += 200 * time.Millisecond
				continue
			}
			got, want := d.Take(counters.Key(key), amount, capacity, now), model[key].take(amount, capacity, now)
			slack += 200 * time.Millisecond
			if got.Allowed != want || (got.ResetAfter-model[key].owed(now)).Abs() > slack {
				t.Fatalf("%v of %v with %v owed: %+v, want %v and %v", amount, capacity, before, got, want,
					model[key].owed(now))
			}
		}
	})
}

// quietly is a testing.TB for a constructor that does not fail.
type quietly struct{ testing.TB }

func (quietly) Helper() {}

// Up to a capacity of a minute nothing is rounded.
func TestDebtsAreExact(t *testing.T) {
	d, random := newDebts(t, small(1)), rand.New(rand.NewPCG(1, 2))
	model, now := arrival(0), start
	for range 20_000 {
		now += random.Int64N(int64(2 * time.Second))
		capacity := time.Duration(1 + random.Int64N(int64(64*time.Second)))
		charge := time.Duration(random.Int64N(int64(capacity) + int64(capacity)/10))
		want := model.take(charge, capacity, now)
		if got := d.Take(1, charge, capacity, now); got.Allowed != want || got.ResetAfter != model.owed(now) {
			t.Fatalf("%v of %v: %+v, want %v and %v", charge, capacity, got, want, model.owed(now))
		}
	}
}

// A denial names the wait after which the same charge is admitted, in the class of the debt and in others.
func TestDebtsRetryAfter(t *testing.T) {
	for _, owed := range []time.Duration{10 * time.Second, 10 * time.Minute} {
		d := newDebts(t, small(1))
		d.Take(1, owed, owed, start)
		got := d.Take(1, 3*time.Second, 5*time.Second, start)
		if want := owed - 2*time.Second; got.Allowed || got.RetryAfter != want || got.ResetAfter != owed {
			t.Errorf("%v owed: %+v, want to wait %v", owed, got, want)
		}
		if got := d.Take(1, 3*time.Second, 5*time.Second, start+int64(owed)-int64(2*time.Second)); !got.Allowed {
			t.Errorf("after the wait: %+v", got)
		}
		if got := d.Take(1, 6*time.Second, 5*time.Second, start); got.Allowed || got.RetryAfter != counters.Never {
			t.Errorf("more than ever fits: %+v", got)
		}
		if got := d.Take(1, 0, time.Second, start); got.Allowed {
			t.Errorf("a peek under a smaller limit: %+v", got)
		}
	}
}

func TestDebtsLeaveNoTrace(t *testing.T) {
	table := small(1)
	d := newDebts(t, table)
	d.Take(1, 0, time.Hour, start)
	if owed, ok := d.GiveBack(1, time.Hour, time.Hour, start); owed != 0 || !ok {
		t.Errorf("of nothing %v was given back, %v", owed, ok)
	}
	if st := table.Stats(); st.Keys != 0 || len(d.Limits()) != 0 {
		t.Errorf("%d cells, %d limits", st.Keys, len(d.Limits()))
	}
}

func TestDebtsLearnEachClassOnce(t *testing.T) {
	learned := 0
	d, err := counters.NewDebts(small(1), "%debts", func(l []*counters.Limit) {
		if learned++; len(l) != learned {
			t.Errorf("%d limits the %dth time", len(l), learned)
		}
	})
	testkit.Must(t, err)
	for range 3 {
		for capacity := time.Duration(1); capacity < counters.MaxDebt/2; capacity *= 2 {
			d.Take(1, 1, capacity, start)
		}
	}
	if learned != counters.DebtClasses {
		t.Errorf("%d classes, want %d", learned, counters.DebtClasses)
	}
}

// Charges, under limits of several classes, and credits reach other tables.
func TestDebtsAreReplicated(t *testing.T) {
	here, there := small(1), small(2)
	a, b := newDebts(t, here), newDebts(t, there)
	owed := func(d *counters.Debts, now int64) time.Duration { return d.Take(1, 0, time.Hour, now).ResetAfter }
	expect := func(step string, now int64, want time.Duration) {
		t.Helper()
		for i, d := range []*counters.Debts{a, b} {
			if got := owed(d, now); (got - want).Abs() > time.Microsecond {
				t.Errorf("%s: table %d: %v, want %v", step, i+1, got, want)
			}
		}
	}
	now := start
	exchange := func() {
		slots := here.DrainDirty(now).Slots
		for i := range slots {
			slots[i].CompleteThrough = now
		}
		there.Merge(slots, now)
		there.Merge(slots, now) // again: nothing changes
		slots = there.DrainDirty(now).Slots
		for i := range slots {
			slots[i].CompleteThrough = now
		}
		here.Merge(slots, now)
	}
	a.Take(1, 20*time.Second, 30*time.Second, now)
	exchange()
	expect("a charge", now, 20*time.Second)
	if b.Take(1, 20*time.Second, 30*time.Second, now).Allowed {
		t.Error("the other table admits more")
	}
	if !b.Take(1, 100*time.Second, 200*time.Second, now).Allowed {
		t.Error("the other table denies under a larger limit")
	}
	exchange()
	expect("a charge in another class", now, 120*time.Second)
	now += int64(10 * time.Second)
	if owed, ok := a.GiveBack(1, 30*time.Second, time.Hour, now); owed != 110*time.Second || !ok {
		t.Errorf("gave back of %v, %v", owed, ok)
	}
	exchange()
	expect("a credit", now, 80*time.Second)
	b.GiveBack(1, counters.MaxDebt, time.Hour, now)
	exchange()
	expect("all given back", now, 0)
	now += int64(time.Second)
	a.Take(1, 5*time.Second, 5*time.Second, now)
	exchange()
	expect("charged again", now, 5*time.Second)
}

// Two tables that charge and give back under changing limits admit together no more than one would, once they have
// exchanged what they know, and whatever is lost, late or repeated on the way, a debt is never below what its own table
// knows of it.
func TestDebtsAreNeverBelowTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tables := [2]*counters.Table{small(1), small(2)}
		debts := [2]*counters.Debts{newDebts(quietly{}, tables[0]), newDebts(quietly{}, tables[1])}
		truth, now := arrival(0), start
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.Int64Range(0, int64(5*time.Second)).Draw(t, "pause")
			i := rapid.IntRange(0, 1).Draw(t, "table")
			capacity := time.Second << rapid.IntRange(2, 9).Draw(t, "capacity")
			charge := time.Second * time.Duration(rapid.IntRange(1, 8).Draw(t, "charge"))
			if rapid.IntRange(0, 4).Draw(t, "back") == 0 {
				if owed, ok := debts[i].GiveBack(1, charge, capacity, now); ok && owed > 0 {
					truth.giveBack(min(charge, owed), counters.MaxDebt, now)
				}
			} else if debts[i].Take(1, charge, capacity, now).Allowed {
				truth = arrival(now + int64(truth.owed(now)+charge))
			}
			slots := tables[i].DrainDirty(now).Slots
			for k := range slots {
				slots[k].CompleteThrough = now
			}
			tables[1-i].Merge(slots, now)
			for k, d := range debts {
				if got := d.Take(1, 0, time.Hour, now).ResetAfter; got < truth.owed(now)-10*time.Microsecond {
					t.Fatalf("table %d believes in %v, the truth is %v", k+1, got, truth.owed(now))
				}
			}
		}
	})
}

// Counts of any size are believed, as credits allow for any, but a debt that peers report is bounded by its class.
func TestForgedDebtsEnd(t *testing.T) {
	table := small(1)
	d := newDebts(t, table)
	d.Take(1, time.Second, time.Minute, start)
	m := d.Limits()[0].Meter()
	slot := counters.Slot{Meter: &m, Key: 1, Index: m.Index(start), Origin: 7, Count: math.MaxUint64}
	table.Merge([]counters.Slot{slot}, start)
	if got := d.Take(1, 0, time.Minute, start).ResetAfter; got != 128*time.Second {
		t.Errorf("after a forged count %v are owed", got)
	}
	m2 := m
	m2.Algorithm = counters.Credits
	slot.Meter, slot.Count = &m2, uint64(20*time.Second)
	table.Merge([]counters.Slot{slot, slot}, start)
	if got := d.Take(1, 0, time.Minute, start).ResetAfter; got != 108*time.Second || table.Stats().Implausible != 0 {
		t.Errorf("after a credit %v are owed, %+v", got, table.Stats())
	}
}

// After the cell of credits was evicted, the same credits come again: they free nothing twice.
func TestCreditsAreNotTakenTwice(t *testing.T) {
	here, there := small(1), small(2)
	a, b := newDebts(t, here), newDebts(t, there)
	now := start
	send := func(slots []counters.Slot) {
		for i := range slots {
			slots[i].CompleteThrough = now
		}
		there.Merge(slots, now)
	}
	a.Take(1, 30*time.Second, time.Minute, now)
	a.GiveBack(1, 10*time.Second, time.Minute, now)
	send(here.DrainDirty(now).Slots)
	if got := b.Take(1, 0, time.Minute, now).ResetAfter; got != 20*time.Second {
		t.Fatalf("%v are owed", got)
	}
	// More keys than fit.
	for key := counters.Key(2); there.Stats().Evicted < 10_000; key++ {
		b.Take(key, 60*time.Second, time.Minute, now)
	}
	send(here.Snapshot(now, 100))
	if got := b.Take(1, 0, time.Minute, now).ResetAfter; got != 0 && got < 20*time.Second {
		t.Errorf("%v are owed", got)
	}
}

func BenchmarkDebts(b *testing.B) {
	d, key := newDebts(b, small(1)), counters.Key(0)
	b.ReportAllocs()
	for b.Loop() {
		key++
		d.Take(key&1023, time.Millisecond, time.Minute, start)
	}
}

// Tables divide what keys may owe as they do other limits, whatever their capacity is within its class: clients that
// ask all of them for many times as much get hardly more than the limit.
func TestDebtsAreDivided(t *testing.T) {
	for _, capacity := range []time.Duration{17 * time.Second, 30 * time.Second, 64 * time.Second} {
		const interval = 100 * time.Millisecond
		var tables [3]*counters.Table
		var debts [3]*counters.Debts
		for i := range tables {
			tables[i] = small(counters.Origin(i + 1))
			tables[i].SetCluster(2, 2*interval)
			debts[i] = newDebts(t, tables[i])
		}
		admitted, now := time.Duration(0), start
		const lasts = 3 * time.Minute
		for ; now < start+int64(lasts); now += int64(5 * time.Millisecond) {
			for _, d := range debts {
				if d.Take(1, 100*time.Millisecond, capacity, now).Allowed {
					admitted += 100 * time.Millisecond
				}
			}
			if (now-start)%int64(interval) != 0 {
				continue
			}
			for i, from := range tables {
				slots := from.DrainDirty(now).Slots
				for k := range slots {
					slots[k].CompleteThrough, slots[k].SentAt = now-int64(interval), now
				}
				for j, to := range tables {
					if i != j {
						to.Merge(slots, now)
						to.SetWatermark(from.Origin(), now)
					}
				}
			}
		}
		fair := capacity + lasts
		t.Logf("capacity %v: %.3f of what is fair", capacity, float64(admitted)/float64(fair))
		if over := float64(admitted) / float64(fair); over > 1.05 || over < 0.9 {
			t.Errorf("capacity %v: %v was admitted, %v is fair", capacity, admitted, fair)
		}
	}
}
