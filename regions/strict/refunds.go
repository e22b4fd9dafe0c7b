package strict

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/counters"
)

const (
	maxRefunding = 128              // at once: they share pipelines
	maxRefunds   = 1 << 14          // that wait
	refundFor    = 20 * time.Second // less than the script remembers a token
)

// undo is a call of the script that takes back what another one charged.
type undo struct {
	call
	until time.Time // when there is nothing left to take back
}

// undo returns what takes back the layers that were charged at a time of the store, nil if there are none.
func (s *Store) undo(asks []Ask, c *call, answers []answer, now int64, started time.Time) *undo {
	u := &undo{call: call{token: c.token}, until: started}
	for j, i := range c.at {
		if answers[j].flags&answerCharged == 0 {
			continue
		}
		y := c.shapes[j]
		at := now
		if asks[i].Overdraw || y.denied {
			at = 0 // less than the cost may have been charged: the token knows
		}
		u.add(c, j, i, y.appendUndo(&asks[i], c.nth[j], at))
		if left := started.Add(max(y.window, y.full)); left.After(u.until) {
			u.until = left
		}
	}
	if len(u.layers) == 0 {
		return nil
	}
	return u
}

// undoAll returns what takes back a call without an answer, and has it void if it arrives later.
func (s *Store) undoAll(asks []Ask, c *call, started time.Time) *undo {
	u := &undo{call: call{token: c.token}, until: started.Add(refundFor)}
	for j, i := range c.at {
		u.add(c, j, i, c.shapes[j].appendUndo(&asks[i], c.nth[j], 0))
	}
	return u
}

func (u *undo) add(c *call, j, i int, layer []byte) {
	u.keys = append(u.keys, c.keys[2*j], c.keys[2*j+1])
	u.layers = append(u.layers, layer)
	u.at = append(u.at, i)
	u.shapes = append(u.shapes, c.shapes[j])
}

// without returns the undo of the layers that a denied request is not charged.
func (u *undo) without(asks []Ask) *undo {
	less := *u
	less.keys, less.layers, less.at, less.shapes = nil, nil, nil, nil
	for j, i := range u.at {
		if !asks[i].Each && !asks[i].Overdraw {
			less.add(&u.call, j, i, u.layers[j])
		}
	}
	return &less
}

// appendUndo returns a layer that takes back its cost. In place of the maximum there is how much of it.
func (y *shape) appendUndo(a *Ask, nth byte, at int64) []byte {
	back := *y
	back.max = min(a.Cost, maxCost)
	layer := back.appendLayer(nil, &Ask{Charge: counters.Charge{Cost: a.Cost}}, counters.Enforce, nth, at)
	if a.Lease > 1 {
		return appendLasts(layer, y.lasts())
	}
	return appendLasts(layer, 0)
}

// byToken returns a refund without the times of its charges: it finds them by their tokens alone. A call that may have
// been executed is repeated so, as the script may have forgotten that it took a charge back.
func (c *call) byToken() *call {
	repeated := *c
	repeated.layers = make([][]byte, len(c.layers))
	for i, layer := range c.layers {
		repeated.layers[i] = slices.Clone(layer)
		clear(repeated.layers[i][atPending : atPending+8])
	}
	return &repeated
}

// enqueue has an undo run in the background.
func (s *Store) enqueue(u *undo) {
	if u == nil || len(u.layers) == 0 {
		return
	}
	s.pending.Add(1)
	select {
	case s.refunds <- u:
	default:
		s.pending.Add(-1)
		s.stats.abandoned.Add(1)
	}
}

// runRefunds runs the undos that wait, concurrently.
func (s *Store) runRefunds() {
	running := make(chan struct{}, maxRefunding)
	for {
		select {
		case running <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		select {
		case u := <-s.refunds:
			s.work.Go(func() {
				s.refund(u)
				s.pending.Add(-1)
				<-running
			})
		case <-s.ctx.Done():
			return
		}
	}
}

// refund runs an undo until it has succeeded. The script forgets tokens: what may have been taken back is not tried
// again later than that.
func (s *Store) refund(u *undo) {
	tried, c, until, wait := false, &u.call, u.until, 10*time.Millisecond
	for s.ctx.Err() == nil && time.Now().Before(until) {
		waiting, stop := s.patiently(s.ctx)
		_, answers, err := s.run(waiting, callRefund, c)
		stop()
		if err == nil {
			for _, a := range answers {
				if a.flags&answerCharged != 0 {
					s.stats.refunded.Add(1)
					break
				}
			}
			return
		}
		passes := redis.HasErrorPrefix(err, "OOM") || redis.HasErrorPrefix(err, "MISCONF") // there may be room again
		if isFinal(err) && !passes {
			break
		}
		if errors.Is(err, errSent) && !tried {
			tried, c = true, c.byToken()
			if last := time.Now().Add(refundFor); last.Before(until) {
				until = last
			}
		}
		s.pause(wait)
		wait = min(2*wait, 200*time.Millisecond)
	}
	s.stats.abandoned.Add(1)
}

// awaitRefunds waits until no refund is waiting.
func (s *Store) awaitRefunds(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s.pending.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
