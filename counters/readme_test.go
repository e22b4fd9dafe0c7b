package counters_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// The key that README.md follows, with its numbers.
func TestReadme(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 1000)
	m := l.Meter()
	table := small(1)
	table.Know([]*counters.Limit{l})
	table.SetCluster(1, 100*time.Millisecond)
	take := func(at time.Duration, cost, remaining uint64, retry, reset time.Duration) {
		t.Helper()
		d := table.Take(l, 7, cost, after(at))
		if d.Allowed != (retry == 0) || d.Remaining != remaining || d.RetryAfter != retry || reset != d.ResetAfter {
			t.Errorf("cost %d after %v: %+v, want %d to remain, a wait of %v, and all after %v", cost, at, d, remaining,
				retry, reset)
		}
	}
	const ms = time.Millisecond
	take(200*ms, 1, 999, 0, 9800*ms)
	take(300*ms, 1, 998, 0, 10200*ms)
	take(300*ms, 298, 700, 0, 10700*ms)
	sent := table.DrainDirty(after(400 * ms)).Slots
	if len(sent) != 1 || sent[0].Count != 300 || sent[0].Index != m.Index(start) {
		t.Errorf("sent %+v, want a count of 300 in sub-window 0", sent)
	}
	ofB := []counters.Slot{{Meter: &m, Key: 7, Index: m.Index(start), Origin: 2, Sender: 2, Count: 400}}
	for _, rises := range []int{1, 0} {
		if n := table.Merge(ofB, after(500*ms)); n != rises || table.View(l, 7, after(500*ms)) != 700 {
			t.Errorf("%d slots rise, and %d are used; want %d and 700", n, table.View(l, 7, after(500*ms)), rises)
		}
	}
	take(4250*ms, 1, 299, 0, 9750*ms)
	take(4250*ms, 299, 0, 0, 10750*ms)
	take(4250*ms, 1, 0, 5750*ms, 10750*ms)
	take(10500*ms, 1, 99, 0, 9500*ms)
}
