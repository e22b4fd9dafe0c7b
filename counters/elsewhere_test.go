package counters_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Without layers of other stores, Ask and then TakeAll decide and count as TakeAll alone.
func TestAskAndTakeAllAreTakeAll(t *testing.T) {
	var limits []*counters.Limit
	for i, a := range []counters.Algorithm{counters.SlidingWindow, counters.FixedWindow, counters.SlidingLog,
		counters.TokenBucket, counters.LeakyBucket, counters.LeakyQueue} {
		l := newLimit(t, counters.NewMeter(string('a'+rune(i)), a, 10*time.Second), 12)
		limits = append(limits, l)
		l = newLimit(t, counters.NewMeter(string('A'+rune(i)), a, 10*time.Second), 12)
		if rejecting, err := l.With(func(c *counters.LimitConfig) { c.CountRejected = true }); err == nil {
			limits = append(limits, rejecting)
		}
	}
	limits = append(limits, with(t, newLimit(t, counters.NewMeter("ban", counters.FixedWindow, 10*time.Second), 8),
		func(c *counters.LimitConfig) { c.Ban = 5 * time.Second }))
	modes := []counters.Mode{counters.Enforce, counters.Enforce, counters.Soft, counters.Shadow, counters.Quota,
		counters.Elastic, counters.Throttle}
	denied, asked := 0, 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 7))
		whole, halves, now := least(1), least(1), start
		for step := range 300 {
			now += r.Int64N(int64(200 * time.Millisecond))
			charges := make([]counters.Charge, 1+r.IntN(4))
			order := r.Perm(len(limits))
			for i := range charges {
				charges[i] = counters.Charge{Limit: limits[order[i]], Key: counters.Key(r.IntN(3)),
					Cost: r.Uint64N(5), Mode: modes[r.IntN(len(modes))], Each: r.IntN(5) == 0, Overdraw: r.IntN(5) == 0,
					Pending: r.Uint64N(9) / 7}
			}
			want := whole.TakeAll(slices.Clone(charges), now, nil)
			got := halves.Ask(charges, now, nil)
			if counters.VerdictOf(got).Allowed {
				asked++
				got = halves.TakeAll(charges, now, nil)
			} else {
				denied++
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d: %+v\n%+v, want\n%+v", seed, step, charges, got, want)
			}
		}
	}
	if denied < 1000 || asked < 1000 {
		t.Errorf("%d requests denied and %d admitted: too few", denied, asked)
	}
}

// What TakeAll charges is sent, even if a drain came after Ask had recorded the demand.
func TestDrainBetweenAskAndTakeAll(t *testing.T) {
	own := newLimit(t, counters.NewMeter("own", counters.FixedWindow, time.Hour), 10)
	other := newLimit(t, counters.NewMeter("other", counters.FixedWindow, time.Hour), 3)
	table := least(1)
	charges := []counters.Charge{{Limit: own, Key: 1, Cost: 1},
		{Limit: other, Key: 1, Cost: 1, Decided: &counters.Decision{Allowed: true}}}
	table.Take(own, 1, 1, start)
	table.Ask(charges, start, nil)
	table.DrainDirty(start)
	table.TakeAll(charges, start, nil)
	if slots := table.DrainDirty(start).Slots; len(slots) != 1 || slots[0].Count != 2 {
		t.Errorf("drained %+v, want a count of 2", slots)
	}
}

// A decision that was made elsewhere counts as any other layer's, and is counted where that is asked for.
func TestDecidedElsewhere(t *testing.T) {
	own := newLimit(t, counters.NewMeter("own", counters.FixedWindow, time.Hour), 10)
	other := newLimit(t, counters.NewMeter("other", counters.FixedWindow, time.Hour), 3)
	admits, denies := &counters.Decision{Allowed: true, Rule: "other", Remaining: 7},
		&counters.Decision{Rule: "other", RetryAfter: time.Minute}
	table := least(1)
	for _, c := range []struct {
		name     string
		decided  *counters.Decision
		charge   counters.Charge // beside the limit, key and decision
		own      uint64          // used afterwards
		other    uint64
		admitted bool
	}{
		{"admitted", admits, counters.Charge{Cost: 1}, 1, 0, true},
		{"admitted and counted", admits, counters.Charge{Cost: 1, Counts: true}, 2, 1, true},
		{"denied", denies, counters.Charge{Cost: 1, Counts: true}, 2, 1, false},
		{"denied in shadow mode", denies, counters.Charge{Cost: 1, Counts: true, Mode: counters.Shadow}, 3, 1, true},
		{"peeked", admits, counters.Charge{Counts: true}, 4, 1, true},
		{"denied and overdrawn", denies, counters.Charge{Cost: 1, Counts: true, Overdraw: true}, 4, 2, false},
		{"admitted beyond the limit", admits, counters.Charge{Cost: 3, Counts: true}, 5, 5, true},
		{"beyond twice the limit", admits, counters.Charge{Cost: 3, Counts: true}, 6, 6, true},
	} {
		ch := c.charge
		ch.Limit, ch.Key, ch.Decided = other, 2, c.decided
		ds := table.TakeAll([]counters.Charge{{Limit: own, Key: 1, Cost: 1}, ch}, start, nil)
		if counters.VerdictOf(ds).Allowed != c.admitted || ds[1].Rule != "other" ||
			ds[1].Remaining != c.decided.Remaining {
			t.Errorf("%s: %+v", c.name, ds)
		}
		if a, b := table.View(own, 1, start), table.View(other, 2, start); a != c.own || b != c.other {
			t.Errorf("%s: %d and %d are used, want %d and %d", c.name, a, b, c.own, c.other)
		}
	}
}

func TestDenialElsewhereBans(t *testing.T) {
	l := with(t, newLimit(t, counters.NewMeter("other", counters.FixedWindow, time.Hour), 3),
		func(c *counters.LimitConfig) { c.Ban = time.Minute })
	table, charges := least(1), []counters.Charge{{Limit: l, Key: 1, Cost: 1}}
	decide := func(d counters.Decision, cost uint64, after time.Duration) counters.Decision {
		charges[0].Decided, charges[0].Cost = &d, cost
		return table.TakeAll(charges, start+int64(after), nil)[0]
	}
	if d := decide(counters.Decision{RetryAfter: time.Second}, 0, 0); d.Banned {
		t.Errorf("a peek: %+v", d)
	}
	if d := decide(counters.Decision{Allowed: true}, 1, 0); !d.Allowed {
		t.Errorf("after a peek: %+v", d)
	}
	if d := decide(counters.Decision{RetryAfter: time.Second}, 1, 0); d.Banned || d.RetryAfter != time.Minute {
		t.Errorf("the denial: %+v", d)
	}
	charges[0].Decided = &counters.Decision{Allowed: true}
	if d := table.Ask(charges, start+int64(30*time.Second), nil)[0]; !d.Banned || d.Allowed {
		t.Errorf("during the ban: %+v", d)
	}
	if d := decide(counters.Decision{RetryAfter: time.Second}, 1, 59*time.Second); d.RetryAfter != time.Second {
		t.Errorf("a denial prolongs the ban: %+v", d)
	}
	if d := decide(counters.Decision{Allowed: true}, 1, time.Minute+time.Millisecond); !d.Allowed {
		t.Errorf("after the ban: %+v", d)
	}
}
