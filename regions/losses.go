package regions

import "time"

// losses limits how often a store that loses data again and again is sent everything: each time costs it and the node
// as much as all that lies in it. The first few times it is sent everything at once. Only its owner, Run, may call it.
type losses struct {
	spent int           // of the pushes that may be made at once
	since time.Duration // when it was earned back last, by the monotonic clock
}

const (
	lossBurst = 20               // pushes in a row that are not waited for
	lossEvery = 10 * time.Second // between two pushes from then on
)

// refill gives back what time has earned since the last call.
func (l *losses) refill(at time.Duration) {
	earned := int((at - l.since) / lossEvery)
	if l.spent -= earned; l.spent <= 0 {
		l.spent, l.since = 0, at
		return
	}
	l.since += time.Duration(earned) * lossEvery
}

// hold reports whether a push has to wait.
func (l *losses) hold(at time.Duration) bool {
	l.refill(at)
	return l.spent >= lossBurst
}

// recent reports whether there was a push that time has not made up for.
func (l *losses) recent(at time.Duration) bool {
	l.refill(at)
	return l.spent > 0
}

// spend is for a push that was made.
func (l *losses) spend(at time.Duration) {
	l.refill(at)
	l.spent++
}
