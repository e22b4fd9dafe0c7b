package gossip

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// bucketPair is two nodes that share a bucket of 100 an hour. The first takes, and tells the second at each interval.
type bucketPair struct {
	t               *testing.T
	limit           *counters.Limit
	sender, auditor *counters.Table
	sends, receives *Replica
	now             int64
}

func newBucketPair(t *testing.T) *bucketPair {
	l, err := counters.NewLimit(counters.NewMeter("r", counters.TokenBucket, time.Hour), 100)
	if err != nil {
		t.Fatal(err)
	}
	p := &bucketPair{t: t, limit: l, now: frameTime - frameTime%int64(time.Hour)}
	p.sender = counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
	p.auditor = counters.NewTable(counters.Config{Origin: 2, Memory: counters.MinMemory})
	p.auditor.Know([]*counters.Limit{l})
	p.sends, p.receives = NewReplica(1, 100*time.Millisecond, p.sender), NewReplica(2, 100*time.Millisecond, p.auditor)
	p.sends.Join(2, p.now)
	p.receives.Join(1, p.now)
	return p
}

// tick ends an interval of the first node, a second after the last one. The second node hears of it unless it is lost.
func (p *bucketPair) tick(lost bool) {
	p.t.Helper()
	p.now += int64(time.Second)
	for _, m := range p.sends.Tick(p.sender.DrainDirty(p.now), p.now) {
		if lost {
			continue
		}
		if err := p.receives.Receive(m.Data, p.now); err != nil {
			p.t.Fatal(err)
		}
	}
	for _, m := range p.receives.Tick(counters.Drained{}, p.now) {
		if err := p.sends.Receive(m.Data, p.now); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *bucketPair) take(cost uint64) { p.sender.Take(p.limit, 1, cost, p.now) }

// An increment of a bucket is debited as of when its origin last sent all that it had, not of the hour's beginning.
func TestBucketsDebitAsOfTheLastReport(t *testing.T) {
	p := newBucketPair(t)
	for range 1800 { // half of the hour
		p.tick(false)
	}
	p.take(100)
	p.tick(false)
	if own, seen := p.sender.View(p.limit, 1, p.now), p.auditor.View(p.limit, 1, p.now); own != 100 || seen != own {
		t.Errorf("100 taken half an hour into the hour: %d at the node, and %d at its peer", own, seen)
	}
}

// What was sent late, as reports were lost, is debited as of the last one that came: less than was taken may be
// believed, never more.
func TestBucketsDebitNoMoreThanWasTaken(t *testing.T) {
	p := newBucketPair(t)
	for range 600 {
		p.tick(false)
	}
	p.take(100)
	for range 180 {
		p.tick(true)
	}
	for range 10 { // the lost reports come again
		p.tick(false)
	}
	own, seen := p.sender.View(p.limit, 1, p.now), p.auditor.View(p.limit, 1, p.now)
	if seen > own || seen < own-1 {
		t.Errorf("%d at the node, %d at its peer after a cut of 3 minutes", own, seen)
	}
}

// Only what an origin reports of itself is new since its last report.
func TestWhatOthersPassOnIsOfNoKnownTime(t *testing.T) {
	p := newBucketPair(t)
	p.tick(false)
	p.take(100)
	p.now += int64(30 * time.Minute)
	third := counters.NewTable(counters.Config{Origin: 3, Memory: counters.MinMemory})
	third.Know([]*counters.Limit{p.limit})
	if err := NewReplica(3, 100*time.Millisecond, third).Receive(p.sends.Snapshot(p.now), p.now); err != nil {
		t.Fatal(err)
	}
	if own, seen := p.sender.View(p.limit, 1, p.now), third.View(p.limit, 1, p.now); seen > own || seen == 0 {
		t.Errorf("%d at the node, %d where its snapshot came", own, seen)
	}
}
