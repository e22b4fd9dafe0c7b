package regions

import "strconv"

// BreakerState says whether a Reconciler calls its store.
type BreakerState uint8

// The states of a breaker.
const (
	BreakerClosed   BreakerState = iota // the store answers, and is called every Interval
	BreakerOpen                         // the last call failed: none is made before the cool-down has passed
	BreakerHalfOpen                     // one small call is to show whether the store is back
)

// String returns closed, open or half-open.
func (s BreakerState) String() string {
	switch s {
	case BreakerClosed:
		return "closed"
	case BreakerOpen:
		return "open"
	case BreakerHalfOpen:
		return "half-open"
	}
	return "breaker(" + strconv.Itoa(int(s)) + ")"
}

// breaker returns the state that the last call left.
func (r *Reconciler) breaker() BreakerState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats.Breaker
}

func (r *Reconciler) setBreaker(s BreakerState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Breaker = s
}
