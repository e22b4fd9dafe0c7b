package oracle

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func cellsOf(m *Model) *Cells { return NewCells(m.limit, 1) }

// receivedIn is a count of a peer in the sub-window of the time at.
func (s *Cells) receivedIn(at time.Duration, count uint64, since time.Duration) counters.Slot {
	m := s.limit.Meter()
	slot := counters.Slot{Meter: &m, Key: key, Index: m.Index(start + int64(at)), Origin: 2, Count: count}
	if since != 0 {
		slot.CompleteThrough = start + int64(since)
	}
	return slot
}

// A clock that goes back finds the cell where it was, as of the beginning of its sub-window.
func TestCellsWhereTheClockGoesBack(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 5)
	for _, c := range []struct {
		back    time.Duration
		view    uint64
		reset   time.Duration // when 2 more are charged
		replace bool
	}{
		{500 * time.Millisecond, 3, 10500 * time.Millisecond, false}, // within the sub-window
		{time.Second, 3, 11 * time.Second, false},
		{10 * time.Second, 3, 20 * time.Second, false},
		{11 * time.Second, 0, 10 * time.Second, true},
		{time.Hour, 0, 10 * time.Second, true},
	} {
		s, now := NewCells(l, 1), start+int64(time.Second-1)
		s.Take(key, 3, now)
		back := now - int64(c.back)
		if view := s.View(key, back); view != c.view {
			t.Errorf("%v back: view %d, want %d", c.back, view, c.view)
		}
		if view := s.View(key, now); view != 3 {
			t.Errorf("%v back: a look lost the cell", c.back)
		}
		if d := s.Take(key, 2, back); !d.Allowed || d.ResetAfter != c.reset+1 || d.Remaining != 3-c.view {
			t.Errorf("%v back: %+v, want a reset after %v", c.back, d, c.reset+1)
		}
		if view := s.View(key, now); c.replace == (view == 5) {
			t.Errorf("%v back: %d when the clock returns", c.back, view)
		}
	}
}

// A log counts at its newest time what comes before that.
func TestALogNeverRunsBackwards(t *testing.T) {
	s := cellsOf(modelOf(t, meterOf(counters.SlidingLog, time.Minute), 5))
	s.Take(key, 4, start+10)
	if d := s.Take(key, 2, start); d.Allowed || d.RetryAfter != time.Minute+10 {
		t.Errorf("%+v, want a denial", d)
	}
	if d := s.Take(key, 1, start); !d.Allowed || d.ResetAfter != time.Minute+10 {
		t.Errorf("%+v, want one admitted", d)
	}
}

// A clock that goes back does not make a bucket owe more than was taken.
func TestABucketNeverOwesMoreThanWasTaken(t *testing.T) {
	s := cellsOf(bucketOf(t, counters.TokenBucket, 24*time.Hour, 5, 5))
	noon := start
	s.Take(key, 1, noon)
	if d := s.Take(key, 0, noon-int64(11*time.Hour)); d.Remaining != 4 || d.ResetAfter != 11*time.Hour+24*time.Hour/5 {
		t.Errorf("eleven hours before it was taken: %+v, want 4 left", d)
	}
}

// Slots are cumulative; those of other times than the window are not taken.
func TestCellsMerge(t *testing.T) {
	s := NewCells(limitOf(t, 10*time.Second, time.Second, 50), 1)
	for _, c := range []struct {
		at    time.Duration
		count uint64
		novel bool
		view  uint64
	}{
		{0, 5, true, 5}, {0, 5, false, 5}, {0, 4, false, 5}, {0, 7, true, 7}, {-time.Second, 3, true, 10},
		{-10 * time.Second, 2, true, 11}, {-11 * time.Second, 2, false, 11}, {time.Second, 9, true, 11},
		{2 * time.Second, 9, false, 11},
		{0, 1<<64 - 1, true, 4 + counters.MaxCount}, {0, 1<<64 - 2, false, 4 + counters.MaxCount},
	} {
		if novel := s.Merge(s.receivedIn(c.at, c.count, 0), start); novel != c.novel || s.View(key, start) != c.view {
			t.Errorf("%d in the sub-window at %v: novel %v, view %d, want %v and %d", c.count, c.at, novel,
				s.View(key, start), c.novel, c.view)
		}
	}
	own := s.receivedIn(0, 1, 0)
	own.Origin = 1
	if s.Merge(own, start) {
		t.Error("its own slot is novel")
	}
}

// What a peer took from a bucket counts from the earliest moment at which it may have been taken, and only what is left
// of it.
func TestABucketReceivesLate(t *testing.T) {
	for _, c := range []struct {
		why          string
		first        time.Duration // when 3 were taken here
		received     time.Duration // in the sub-window that ends then, at the end of which this comes to be known
		count        uint64
		since        time.Duration
		want, before uint64
	}{
		{"a full bucket, taken from ten seconds ago", -time.Hour, 10 * time.Second, 4, 0, 0, 0},
		{"a full bucket, taken from two seconds ago", -time.Hour, 10 * time.Second, 4, 8 * time.Second, 2, 0},
		{"one that is not full since", 8 * time.Second, 10 * time.Second, 4, 9 * time.Second, 5, 1},
		{"one that was full meanwhile, refilled before it", 8 * time.Second, 10 * time.Second, 4, 0, 1, 1},
		{"one that was full meanwhile, not quite refilled", 8 * time.Second, 10 * time.Second, 4, 5 * time.Second, 2,
			1},
		{"told for a time after it is received", 8 * time.Second, 10 * time.Second, 4, 12 * time.Second, 5, 1},
	} {
		l, err := counters.LimitConfig{Meter: meterOf(counters.TokenBucket, 10*time.Second), Max: 100, Refill: 10}.New()
		testkit.Must(t, err)
		s := NewCells(l, 1)
		if c.first > 0 {
			s.Take(key, 3, start+int64(c.first))
		}
		now := start + int64(c.received)
		if view := s.View(key, now); view != c.before {
			t.Errorf("%s: %d before, want %d", c.why, view, c.before)
		}
		if !s.Merge(s.receivedIn(0, c.count, c.since), now) || s.View(key, now) != c.want {
			t.Errorf("%s: view %d, want %d", c.why, s.View(key, now), c.want)
		}
	}
}
