package regions

import "time"

// clocks compares the clock of the store with this node's, as NTP does it: the store told its time at some moment between the question and
// the answer, and the quicker the answer, the better that is known.
type clocks struct {
	ahead time.Duration // of the store's clock
	took  time.Duration // the call, of which a half it may be wrong by
	at    int64         // when; 0: never yet
}

const (
	bestFor  = 4 * time.Second  // until a slower answer takes the place of a quicker one
	knownFor = 15 * time.Second // until nothing is known any more
)

// compare takes in the answer of a call.
func (c *clocks) compare(store, asked, answered int64) {
	took := time.Duration(answered - asked)
	if took < 0 {
		return // the own clock was set
	}
	if since := answered - c.at; c.at != 0 && took > c.took && since >= 0 && since < int64(bestFor) {
		return
	}
	*c = clocks{ahead: time.Duration(store - asked - int64(took)/2), took: took, at: answered}
}

func (r *Reconciler) compareClocks(store time.Time, asked, answered int64) {
	if store.IsZero() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clocks.compare(store.UnixNano(), asked, answered)
}

// ClockAhead is by how much the store's clock is ahead of this node's, if that is known: when the store has told its time in the last
// seconds.
func (r *Reconciler) ClockAhead() (ahead time.Duration, ok bool) {
	now := r.cfg.Now().UnixNano()
	r.mu.Lock()
	defer r.mu.Unlock()
	if since := now - r.clocks.at; r.clocks.at == 0 || since < 0 || since > int64(knownFor) {
		return 0, false
	}
	return r.clocks.ahead, true
}
