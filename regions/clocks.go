package regions

import "time"

// clocks compares the clock of the store with this node's, as NTP does: the store read its time between the call and
// the answer, so the quickest answer is the best. The offset is that to the machine's monotonic clock, so that it stays
// true when the node's clock is set.
type clocks struct {
	offset int64         // of the store's clock, in Unix nanoseconds, when the monotonic clock shows 0
	took   time.Duration // of the call; the offset is wrong by half of it at most
	at     time.Duration // when, by the monotonic clock
	known  bool
}

const (
	bestFor  = 4 * time.Second  // until a slower answer takes the place of a quicker one
	knownFor = 15 * time.Second // until nothing is known any more
)

// compare takes in the answer of a call, which was made and answered at these moments of the monotonic clock. It
// reports whether the store's clock was certainly set forward since, by more than clocks are expected to differ.
func (c *clocks) compare(store int64, called, answered time.Duration) (stepped bool) {
	took := answered - called
	offset := store - int64(called+took/2)
	stepped = c.known && time.Duration(offset-c.offset) > clockSkew+(took+c.took)/2
	if stepped || !c.known || took <= c.took || answered-c.at >= bestFor {
		*c = clocks{offset: offset, took: took, at: answered, known: true}
	}
	return stepped
}

// ahead is by how much the store's clock is ahead of one that shows now, at a moment of the monotonic clock.
func (c *clocks) ahead(now int64, at time.Duration) (ahead time.Duration, ok bool) {
	if !c.known || at-c.at > knownFor {
		return 0, false
	}
	return time.Duration(c.offset + int64(at) - now), true
}

// ClockAhead is by how much the store's clock is ahead of this node's, if that is known: when the store has sent its
// time in the last seconds.
func (r *Reconciler) ClockAhead() (ahead time.Duration, ok bool) {
	now, at := r.now(), r.cfg.Elapsed()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clocks.ahead(now, at)
}
