package counters_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Examples that can be followed with a pencil, by a table that counted all of it itself.

// step is one request, or a look at the view.
type step struct {
	at   time.Duration
	cost uint64 // 0: only look
	deny bool
	view uint64 // afterwards
	why  string
}

func play(t *testing.T, l *counters.Limit, steps []step) {
	t.Helper()
	table := small(1)
	for _, s := range steps {
		if s.cost > 0 {
			if d := table.Take(l, 7, s.cost, after(s.at)); d.Allowed == s.deny {
				t.Errorf("after %v, cost %d: %+v: %s", s.at, s.cost, d, s.why)
			}
		}
		if view := table.View(l, 7, after(s.at)); view != s.view {
			t.Errorf("after %v: view %d, want %d: %s", s.at, view, s.view, s.why)
		}
	}
}

// A quarter into the second hour, three quarters of the first one still count, less one: 84 * 3/4 - 1 + 37 = 99.
func TestTwoBucketsWeighThePreviousHour(t *testing.T) {
	now := 75 * time.Minute
	play(t, limitOf(t, time.Hour, time.Hour, 100), []step{
		{at: 20 * time.Minute, cost: 84, view: 84, why: "the hour before"},
		{at: time.Hour, cost: 17, view: 100, why: "the 84 count as 83"},
		{at: now, cost: 20, view: 99, why: "62 + 37"},
		{at: now, cost: 2, deny: true, view: 99, why: "there is room for one"},
		{at: now, cost: 1, view: 100, why: "the hundredth"},
		{at: now, cost: 1, deny: true, view: 100, why: "the next"},
	})
}

func TestDecisionsOfTheTwoBuckets(t *testing.T) {
	l := limitOf(t, time.Hour, time.Hour, 100)
	table := small(1)
	now := after(75 * time.Minute)
	table.Take(l, 7, 84, start)
	table.Take(l, 7, 17, after(time.Hour))
	table.Take(l, 7, 20, now)

	want := counters.Decision{
		Allowed: true, Rule: "edge/per_ip", Window: time.Hour, Limit: 100,
		// until this hour's 38 count as nothing as well: a 38th of it is left then
		ResetAfter: 105*time.Minute - time.Hour/38,
	}
	if got := table.Take(l, 7, 1, now); got != want {
		t.Errorf("the hundredth:\n got %+v\nwant %+v", got, want)
	}
	want.Allowed = false
	// 38 + ceil(84 * left) - 1 has to come down to 99: the hour before may weigh 62/84, and weighs 63/84 now.
	want.RetryAfter = (time.Hour + 83) / 84 // rounded up
	if got := table.Take(l, 7, 1, now); got != want {
		t.Errorf("the next:\n got %+v\nwant %+v", got, want)
	}
}

func TestBucketsOfTwentyMinutes(t *testing.T) {
	play(t, limitOf(t, time.Hour, 20*time.Minute, 60), []step{
		{at: 5 * time.Minute, cost: 10, view: 10},
		{at: 25 * time.Minute, cost: 20, view: 30},
		{at: 45 * time.Minute, cost: 30, view: 60, why: "10 + 20 + 30"},
		{at: 59 * time.Minute, view: 60, why: "all three lie within the hour"},
		{at: 60*time.Minute - 1, cost: 1, deny: true, view: 60},
		{at: 60 * time.Minute, view: 59, why: "the oldest begins to leave, and counts one less"},
		{at: 60*time.Minute + 1, view: 59, why: "a part rounds up"},
		{at: 62 * time.Minute, view: 58, why: "a tenth of 10 has left"},
		{at: 70 * time.Minute, view: 54, why: "half of 10 has left"},
		{at: 70 * time.Minute, cost: 7, deny: true, view: 54},
		{at: 80*time.Minute - 1, view: 50, why: "a nanosecond of 10 is left, and counts as nothing"},
		{at: 80 * time.Minute, view: 49, why: "10 has left, and 20 begins to leave"},
		{at: 90 * time.Minute, view: 39, why: "half of 20 has left"},
		{at: 100 * time.Minute, view: 29, why: "20 has left, and 30 begins to leave"},
		{at: 110 * time.Minute, view: 14, why: "half of 30 has left"},
		{at: 120*time.Minute - 1, view: 10, why: "of 30, the 10 beyond an even share stay to the end"},
		{at: 120 * time.Minute, view: 0, why: "all has left"},
	})
}

// The trick that doubles a fixed window, half before its end, half after, and only a fixed window.
func TestFiveAMinuteTwiceAroundTheMinute(t *testing.T) {
	fixed := newLimit(t, counters.NewMeter("r", counters.FixedWindow, time.Minute), 5)
	play(t, fixed, []step{
		{at: 59 * time.Second, cost: 5, view: 5},
		{at: 61 * time.Second, cost: 5, view: 5, why: "it is another minute"},
		{at: 61 * time.Second, cost: 1, deny: true, view: 5},
	})
	for _, sub := range []time.Duration{20 * time.Second, 6 * time.Second, time.Second} {
		play(t, limitOf(t, time.Minute, sub, 5), []step{
			{at: 59 * time.Second, cost: 5, view: 5},
			{at: 61 * time.Second, cost: 5, deny: true, view: 5, why: "it is two seconds after"},
			{at: 61 * time.Second, cost: 1, deny: true, view: 5, why: "nor does a single one fit"},
			{
				at: 59*time.Second + time.Minute + sub, cost: 5, view: 5,
				why: "a window and a sub-window after, all of it is back",
			},
		})
	}
	log := newLimit(t, counters.NewMeter("r", counters.SlidingLog, time.Minute), 5)
	play(t, log, []step{
		{at: 59 * time.Second, cost: 5, view: 5},
		{at: 61 * time.Second, cost: 1, deny: true, view: 5, why: "it is two seconds after"},
		{at: 119*time.Second - 1, cost: 1, deny: true, view: 5, why: "a nanosecond is missing"},
		{at: 119 * time.Second, cost: 5, view: 5, why: "a window after, all of it is back"},
	})
}

// Five tokens, one more every second: three go, and two seconds later four of six.
func TestABucketOfFive(t *testing.T) {
	for _, a := range []counters.Algorithm{counters.TokenBucket, counters.LeakyBucket, counters.LeakyQueue} {
		play(t, newBucket(t, counters.NewMeter("r", a, time.Second), 5, 1), []step{
			{at: 0, cost: 1, view: 1},
			{at: 0, cost: 1, view: 2},
			{at: 0, cost: 1, view: 3, why: "two are left"},
			{at: 2 * time.Second, view: 1, why: "two came back"},
			{at: 2 * time.Second, cost: 1, view: 2},
			{at: 2 * time.Second, cost: 1, view: 3},
			{at: 2 * time.Second, cost: 1, view: 4},
			{at: 2 * time.Second, cost: 1, view: 5, why: "the fourth"},
			{at: 2 * time.Second, cost: 1, deny: true, view: 5, why: "the fifth"},
			{at: 2 * time.Second, cost: 1, deny: true, view: 5, why: "the sixth"},
			{at: 3*time.Second - 1, cost: 1, deny: true, view: 5, why: "a nanosecond is missing"},
			{at: 3 * time.Second, cost: 1, view: 5},
			{at: time.Hour, cost: 5, view: 5, why: "no more than five gather"},
		})
	}
}

// Capacity and refill apart: ten failed logins, one more an hour; 200 dollars, 50 more a day.
func TestBucketsWithARefillOfTheirOwn(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name             string
		window           time.Duration
		capacity, refill uint64
		requests         []asked
	}{
		{"logins", time.Hour, 10, 1, []asked{
			{at: 0, cost: 10, ok: true, left: 0, reset: 10 * time.Hour},
			{at: 0, cost: 1, retry: time.Hour, reset: 10 * time.Hour},
			{at: 30 * time.Minute, cost: 2, retry: 90 * time.Minute, reset: 9*time.Hour + 30*time.Minute},
			{at: time.Hour, cost: 1, ok: true, reset: 10 * time.Hour},
			{at: time.Hour, cost: 11, retry: counters.Never, reset: 10 * time.Hour},
			{at: 11 * time.Hour, cost: 0, ok: true, left: 10},
		}},
		{"dollars", day, 200, 50, []asked{
			{at: 0, cost: 120, ok: true, left: 80, reset: 57*time.Hour + 36*time.Minute},
			{at: 0, cost: 80, ok: true, left: 0, reset: 4 * day},
			{at: day, cost: 60, left: 50, retry: 4*time.Hour + 48*time.Minute, reset: 3 * day},
			{at: day, cost: 50, ok: true, left: 0, reset: 4 * day},
			{at: 5 * day, cost: 200, ok: true, left: 0, reset: 4 * day},
		}},
	} {
		l := newBucket(t, counters.NewMeter(c.name, counters.TokenBucket, c.window), c.capacity, c.refill)
		table := small(1)
		for _, r := range c.requests {
			want := counters.Decision{
				Allowed: r.ok, Rule: c.name, Window: c.window, Limit: c.capacity, Remaining: r.left,
				RetryAfter: r.retry, ResetAfter: r.reset,
			}
			if d := table.Take(l, 1, r.cost, after(r.at)); d != want {
				t.Errorf("%s: %d after %v:\n got %+v\nwant %+v", c.name, r.cost, r.at, d, want)
			}
		}
	}
}

// asked is a request and its answer.
type asked struct {
	at           time.Duration
	cost         uint64
	ok           bool
	left         uint64
	retry, reset time.Duration
}

// A queue of five places, of which one is served every second: who comes waits for those before, and a full queue
// denies.
func TestAQueueOfFive(t *testing.T) {
	l := newBucket(t, counters.NewMeter("r", counters.LeakyQueue, time.Second), 5, 1)
	table := small(1)
	for i := range 5 {
		if d := table.Take(l, 1, 1, start); !d.Allowed || d.Delay != time.Duration(i)*time.Second {
			t.Errorf("number %d: %+v, want it to go after %d s", i, d, i)
		}
	}
	if d := table.Take(l, 1, 1, start); d.Allowed || d.Delay != 0 || d.RetryAfter != time.Second {
		t.Errorf("the queue is full: %+v, want a denial, and a place in a second", d)
	}
	if d := table.Take(l, 1, 1, after(1500*time.Millisecond)); !d.Allowed || d.Delay != 3500*time.Millisecond {
		t.Errorf("a place is free: %+v, want it to go after 3.5 s", d)
	}
	if d := table.Take(l, 1, 3, after(time.Minute)); !d.Allowed || d.Delay != 0 {
		t.Errorf("an empty queue: %+v, want it to go at once", d)
	}
	if d := table.Take(l, 1, 1, after(time.Minute)); !d.Allowed || d.Delay != 3*time.Second {
		t.Errorf("behind one of three: %+v, want it to go after 3 s", d)
	}
}

func TestTenSubWindowsOfASecond(t *testing.T) {
	play(t, limitOf(t, 10*time.Second, time.Second, 10), []step{
		{at: 500 * time.Millisecond, cost: 4, view: 4},
		{at: 9 * time.Second, cost: 6, view: 10},
		{at: 10*time.Second - 1, cost: 1, deny: true, view: 10, why: "all lie within ten seconds"},
		{at: 10 * time.Second, cost: 1, view: 10, why: "the first second begins to leave: 4 - 1, 6 and this one"},
		{at: 10*time.Second + 500*time.Millisecond, cost: 1, deny: true, view: 10, why: "an even share is one"},
		{at: 11*time.Second - 1, cost: 1, deny: true, view: 10, why: "a nanosecond is left"},
		{at: 11 * time.Second, view: 7, why: "the first second has left"},
		{at: 30 * time.Second, view: 0, why: "long after"},
	})
}
