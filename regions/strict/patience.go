package strict

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/node/text"
)

// A request waits for the store for its patience: patienceFactor times what 99 % of the last calls took, at least
// Config.MinTimeout and at most Config.MaxTimeout. Until enough calls are known it is MaxTimeout.
//
// It ends by turns of a timer, each of which begins when the process ran after the last one. So the time in which this
// process had no CPU, or the machine was asleep, extends the wait by itself: it is no failure of the store.
const (
	patienceFactor = 4
	patienceTurns  = 10
	knownCalls     = 20   // from here on calls are enough to know what is usual
	rememberCalls  = 1024 // then all counts are halved
	recomputeEvery = 16   // calls
)

// patience is how long the requests of a store wait.
type patience struct {
	min, max time.Duration
	current  atomic.Int64 // in nanoseconds; 0: max

	mu     sync.Mutex
	counts [len(durations)]int // of calls, by the first of durations that they did not exceed; the last has the rest
	total  int
	noted  int
}

// durations are those that calls are counted by, from 1 ms to 11.6 s, each 1.41 times the one before.
var durations = func() (all [28]time.Duration) {
	for i := range all {
		all[i] = time.Millisecond << (i / 2)
		if i%2 == 1 {
			all[i] = all[i] * 141 / 100
		}
	}
	return all
}()

// now returns the patience.
func (p *patience) now() time.Duration {
	if d := time.Duration(p.current.Load()); d > 0 {
		return d
	}
	return p.max
}

// note counts a call that took so long, or that was given up after it.
func (p *patience) note(took time.Duration) {
	i := 0
	for i < len(durations)-1 && took > durations[i] {
		i++
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[i]++
	p.total++
	if p.total >= rememberCalls {
		p.total = 0
		for i := range p.counts {
			p.counts[i] /= 2
			p.total += p.counts[i]
		}
	}
	if p.noted++; p.total >= knownCalls && p.noted%recomputeEvery == 0 {
		p.current.Store(int64(min(max(patienceFactor*p.usual(), p.min), p.max)))
	}
}

// usual returns what 99 % of the calls did not exceed. The caller holds mu.
func (p *patience) usual() time.Duration {
	above := p.total / 100 // that many calls took longer, at most
	for i := len(durations) - 1; i > 0; i-- {
		if above -= p.counts[i]; above < 0 {
			return durations[i]
		}
	}
	return durations[0]
}

// errTooSlow is why a wait ended by its patience.
type errTooSlow time.Duration

func (e errTooSlow) Error() string { return "no answer within " + text.Duration(time.Duration(e)) }

// Is makes it a context.DeadlineExceeded.
func (errTooSlow) Is(target error) bool { return target == context.DeadlineExceeded }

// wait ends a context after a patience.
type wait struct {
	timer    *time.Timer
	cancel   context.CancelCauseFunc
	patience time.Duration
	turns    int
}

// patiently returns a context that ends with the caller's, or after the patience. Call stop once it is not needed.
func (s *Store) patiently(caller context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(caller)
	w := &wait{cancel: cancel, patience: s.patience.now()}
	w.timer = time.AfterFunc(time.Hour, w.turn)
	w.timer.Reset(w.patience / patienceTurns)
	return ctx, w.stop
}

func (w *wait) turn() {
	if w.turns++; w.turns < patienceTurns {
		w.timer.Reset(w.patience / patienceTurns)
		return
	}
	w.cancel(errTooSlow(w.patience))
}

// stop ends the wait. A turn that runs just now may begin another one: it has nothing left to end.
func (w *wait) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// byCaller reports whether a wait ended with its caller: that says nothing of the store.
func byCaller(ctx context.Context) bool {
	_, tooSlow := errors.AsType[errTooSlow](context.Cause(ctx))
	return ctx.Err() != nil && !tooSlow
}
