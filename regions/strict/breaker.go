package strict

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// breaker opens after so many failures one after the other: those of calls that were under way at the same time are
// one.
// While it is open, no request waits for the store; one probe at a time
// asks it, over new connections, and closes the breaker when the store has decided in time.
type breaker struct {
	failures atomic.Int32
	last     atomic.Int64 // when the last failure was noted, in nanoseconds since epoch
	open     atomic.Bool
}

const (
	maxFailures  = 3
	probeEvery   = 100 * time.Millisecond
	probeConnect = 400 * time.Millisecond // for making connections and loading the script
)

// epoch is what times are measured from, by the clock that is never set.
var epoch = time.Now()

func (b *breaker) succeeded() {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
}

// failed notes that a call failed that began at a time, and reports whether the breaker opens now.
func (b *breaker) failed(began time.Time) bool {
	last := b.last.Load()
	if int64(began.Sub(epoch)) < last || !b.last.CompareAndSwap(last, int64(time.Since(epoch))) {
		return false
	}
	return b.failures.Add(1) >= maxFailures && b.open.CompareAndSwap(false, true)
}

// probe asks the store until it answers, and replaces the link: the library's pool of connections dials by a schedule
// of its own once it has failed often.
func (s *Store) probe() {
	began := time.Now()
	for s.ctx.Err() == nil {
		next := time.Now().Add(probeEvery)
		if l, err := s.dial(); err == nil {
			if s.probeOnce(l) == nil {
				old := s.link.Swap(l)
				s.breaker.failures.Store(0)
				s.breaker.open.Store(false)
				s.cfg.Log.Info("the strict store is back", "after", time.Since(began))
				s.pause(2 * s.cfg.MaxTimeout) // calls of the old link may be under way
				_ = old.close()
				return
			}
			_ = l.close()
		}
		s.pause(time.Until(next))
	}
}

// pause waits, unless the store is closed.
func (s *Store) pause(d time.Duration) {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ctx.Done():
	}
}

// probeLimit is what a probe takes of: a count that the server has to be able to write.
var probeLimit, _ = counters.NewLimit(counters.NewMeter("%probe", counters.FixedWindow, time.Second), counters.MaxLimit)

var errDenied = errors.New("the probe was denied")

func (s *Store) probeOnce(l *link) error {
	ctx, cancel := context.WithTimeout(s.ctx, probeConnect)
	defer cancel()
	if err := l.load(ctx, s.script); err != nil {
		return err
	}
	r := request{store: s, asks: []Ask{{Charge: counters.Charge{Limit: probeLimit, Cost: 1}}}}
	if err := r.group(); err != nil {
		return err
	}
	waiting, stop := s.patiently(s.ctx)
	defer stop()
	began := time.Now()
	_, answers, err := s.send(waiting, l, callTake, r.calls[0])
	s.patience.note(time.Since(began))
	if err == nil && answers[0].flags&answerAllowed == 0 {
		return errDenied
	}
	return err
}
