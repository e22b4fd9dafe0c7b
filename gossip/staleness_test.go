package gossip

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// A member that is known through others and was never heard, as when only some of the ways to it are cut, may admit a limit.
func TestAuditOfAMemberNeverHeard(t *testing.T) {
	w := limitOf100(t)
	r := NewReplica(1, DefaultInterval, counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory}))
	start := int64(time.Hour)
	r.Join(2, start)
	if got := r.Audit(w, start+int64(time.Second))["edge/lab"]; got != 0 {
		t.Errorf("a member that has just come is in the bound with %v", got)
	}
	if got := r.Audit(w, start+int64(10*time.Second))["edge/lab"]; got != 100 {
		t.Errorf("a member that was never heard is in the bound with %v of 100", got)
	}
	r.Leave(2, true)
	if got := r.Audit(w, start+int64(20*time.Second))["edge/lab"]; got != 0 {
		t.Errorf("a member that left is in the bound with %v", got)
	}
}

// What was taken from a bucket counts until it has come back, which may take many windows: a peer that was silent for all of them may
// have taken as much as it was asked for, but no more than the bucket holds.
func TestAuditOfABucket(t *testing.T) {
	m := counters.NewMeter("r", counters.TokenBucket, time.Minute)
	for _, test := range []struct {
		capacity, refill uint64
		lasts            time.Duration
		silent           time.Duration
		unseen           float64 // at 2 a second
	}{
		{1000, 1000, time.Minute, 10 * time.Second, 20},
		{1000, 1000, time.Minute, time.Hour, 120},
		{1000, 100, 10 * time.Minute, 5 * time.Minute, 600},
		{1000, 100, 10 * time.Minute, time.Hour, 1000},
		{1000, 10_000, 6 * time.Second, time.Minute, 12},
	} {
		l, err := counters.NewBucket(m, test.capacity, test.refill)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Lasts(); got != test.lasts {
			t.Errorf("a bucket of %d with %d a minute comes back in %v, want %v", test.capacity, test.refill, got, test.lasts)
		}
		r := listener{NewReplica(1, 100*time.Millisecond, counters.NewTable(counters.Config{Origin: 1})), &m, l}
		start := frameTime
		r.Join(7, start)
		r.frame(data, 1, 0, 2, start, start)
		r.audit(t, start, 0)
		r.audit(t, start+int64(test.silent), test.unseen)
	}
	// A report that comes late tells of all of the silence before it.
	l, err := counters.NewBucket(m, 1000, 100)
	if err != nil {
		t.Fatal(err)
	}
	r := listener{NewReplica(1, 100*time.Millisecond, counters.NewTable(counters.Config{Origin: 1})), &m, l}
	r.Join(7, frameTime)
	r.frame(data, 1, 0, 2, frameTime, frameTime)
	late := frameTime + int64(3*time.Minute)
	r.frame(data, 2, 3*time.Minute, 2, late, late)
	r.audit(t, late, 360)
}

func limitOf100(t *testing.T) map[string]*counters.Limit {
	limit, err := counters.NewLimit(counters.NewMeter("edge/lab", counters.SlidingWindow, time.Minute), 100)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*counters.Limit{"edge/lab": limit}
}
