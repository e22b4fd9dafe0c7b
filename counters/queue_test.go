package counters_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

// queueOf returns a queue of n places, in which each of so many requests a second takes its turn.
func queueOf(t *testing.T, rate, n uint64) *counters.Limit {
	t.Helper()
	m := counters.Meter{Rule: "q", Algorithm: counters.LeakyQueue, Window: time.Second, Sub: 100 * time.Millisecond}
	return newBucket(t, m, n, rate)
}

// counted returns the largest count of a key that the table sends.
func counted(table *counters.Table, now int64) (sum uint64) {
	for _, s := range table.DrainDirty(now).Slots {
		sum += s.Count
	}
	return sum
}

// A queue out of which some requests are withdrawn before their turns decides as if they had never come.
func TestWithdrawnRequestsNeverCame(t *testing.T) {
	type request struct{ cost, at, turn int64 }
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t, counters.LeakyQueue)
		table, now := small(1), start
		var requests, stayed []request
		one := int64(l.Meter().Window) / int64(l.Refill())
		cost := rapid.OneOf(rapid.Uint64Range(1, l.Max()), rapid.Uint64Range(1, 1+l.Max()/5))
		pause := rapid.OneOf(rapid.SampledFrom([]int64{0, 0, 1, one}), rapid.Int64Range(0, 3*one))
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			now += pause.Draw(t, "pause")
			if len(requests) > 0 && rapid.Bool().Draw(t, "withdraw") {
				i := rapid.IntRange(0, len(requests)-1).Draw(t, "which")
				gone := requests[i]
				if gone.turn <= now {
					continue
				}
				table.Withdraw(l, 1, uint64(gone.cost), now)
				requests = append(requests[:i:i], requests[i+1:]...)
				for j := i; j < len(requests); j++ { // those behind it move up
					requests[j].turn -= gone.cost * one
				}
				continue
			}
			k := cost.Draw(t, "cost")
			if d := table.Take(l, 1, k, now); d.Allowed {
				requests = append(requests, request{int64(k), now, now + int64(d.Delay)})
			}
		}
		stayed = requests
		other := small(1)
		for _, r := range stayed {
			if d := other.Take(l, 1, uint64(r.cost), r.at); !d.Allowed || max(r.at+int64(d.Delay), r.at) != r.turn {
				t.Fatalf("%+v gets %+v where nobody was withdrawn", r, d)
			}
		}
		k := cost.Draw(t, "last")
		if got, want := table.Take(l, 1, k, now), other.Take(l, 1, k, now); got != want {
			t.Fatalf("of %d:\n got %+v\nwant %+v", k, got, want)
		}
		if got, want := table.View(l, 1, now), other.View(l, 1, now); got != want {
			t.Fatalf("view %d, want %d", got, want)
		}
	})
}

// The attack: clients come and hang up without end. What they no longer need is not counted again, so peers receive no
// more than the limit admits, and believe it.
func TestWithdrawnTurnsAreNotCountedAgain(t *testing.T) {
	l := queueOf(t, 10, 5)
	table, peer := small(1), small(2)
	take := func(now int64) counters.Decision { return table.Take(l, 1, 1, now) }
	take(start)
	for i := range 1000 {
		if d := take(start); !d.Allowed || d.Delay != 100*time.Millisecond {
			t.Fatalf("after %d withdrawn requests: %+v", i, d)
		}
		table.Withdraw(l, 1, 1, start)
	}
	if n := counted(table, start); n != 2 {
		t.Errorf("%d are counted at once, want the one that passed and the one that may still", n)
	}
	// After 100 ms the first has left, and by what peers were sent so has the one that was withdrawn at 200 ms.
	for now := start; now < after(time.Second); now += int64(10 * time.Millisecond) {
		take(now)
		table.Withdraw(l, 1, 1, now)
	}
	slots := table.Snapshot(after(time.Second), 100)
	sum := uint64(0)
	for _, s := range slots {
		sum += s.Count
	}
	if sum < 2 || sum > 5+10 {
		t.Errorf("%d are counted in a second, the limit admits 15", sum)
	}
	if novel := peer.Merge(slots, after(time.Second)); novel != len(slots) || peer.Stats().Refused != 0 {
		t.Errorf("a peer takes %d of %d slots: %+v", novel, len(slots), peer.Stats())
	}
}

// With requests of peers in between, a turn that is withdrawn is free once, and only for as long as its queue is not
// empty: two nodes together never admit more than the limit.
func TestWithdrawnTurnsAdmitNobodyTwice(t *testing.T) {
	l := queueOf(t, 10, 10)
	a, b := small(1), small(2)
	for range 3 {
		a.Take(l, 1, 1, start)
	}
	b.Take(l, 1, 1, start)
	a.Merge(b.Snapshot(start, 10), start)
	a.Withdraw(l, 1, 1, start)
	if d := a.Take(l, 1, 1, start); d.Delay != 300*time.Millisecond {
		t.Errorf("behind two of its own and one of a peer: %+v", d)
	}
	if d := a.Take(l, 1, 1, start); d.Delay != 400*time.Millisecond {
		t.Errorf("the turn is free twice: %+v", d)
	}
	b.Merge(a.Snapshot(start, 10), start)
	if view := b.View(l, 1, start); view != 5 {
		t.Errorf("the peer counts %d, want 5", view)
	}
	a.Withdraw(l, 1, 5, start)
	if n := counted(a, start); n != 4 {
		t.Errorf("counted %d of its own, want 4", n)
	}
	later := after(time.Second) // the queue has been empty since 500 ms
	for i := range 10 {
		if d := a.Take(l, 1, 1, later); !d.Allowed || d.Delay != time.Duration(i)*100*time.Millisecond {
			t.Errorf("request %d a second later: %+v", i+1, d)
		}
	}
	if d := a.Take(l, 1, 1, later); d.Allowed {
		t.Errorf("an old turn still counts: %+v", d)
	}
}

// Who looks at a queue changes nothing: what was freed and has been refilled since does not come back when a peer
// reports more.
func TestALookAtAQueueChangesNothing(t *testing.T) {
	l := newLimit(t, counters.NewMeter("r", counters.LeakyQueue, 10*time.Second), 10)
	var delays []time.Duration
	for _, looks := range []bool{true, false} {
		table := least(1)
		table.Know([]*counters.Limit{l})
		table.Take(l, 1, 8, start)
		table.Withdraw(l, 1, 8, start)
		if looks {
			table.Take(l, 1, 0, after(7*time.Second))
			table.View(l, 1, after(7*time.Second))
		}
		table.Merge([]counters.Slot{slotOf(l, 1, after(7*time.Second), 2, 0, 5)}, after(7*time.Second))
		delays = append(delays, table.Take(l, 1, 1, after(7*time.Second)).Delay)
	}
	if delays[0] != delays[1] {
		t.Errorf("a delay of %v, and of %v if nobody looked", delays[0], delays[1])
	}
}
