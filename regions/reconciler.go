package regions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Table is the part of counters.Table that a Reconciler needs. It is called from Run and Warm, beside its other users.
type Table interface {
	// Merge raises slots of other origins where that is news. It does not keep the slice.
	Merge(slots []counters.Slot, now int64) (novel int)
	// Own returns every slot of the own origin that still counts.
	Own(now int64) []counters.Slot
	// Snapshot returns slots of all origins that still count, at most limit: those of the keys that count most.
	Snapshot(now int64, limit int) []counters.Slot
	// Origin is the own origin.
	Origin() counters.Origin
}

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
	if names := []string{"closed", "open", "half-open"}; int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("breaker(%d)", uint8(s))
}

// Stats are running totals of a Reconciler, but for Pending and Breaker.
type Stats struct {
	Pending int          // slots that wait for the store now
	Flushed uint64       // slots that the store acknowledged
	Failed  uint64       // calls of the store that failed
	Dropped uint64       // slots offered that found no room: made good by a push of all own slots
	Others  uint64       // with Config.Alone: counts of other origins that rose in the store between two calls
	Lost    uint64       // times that the store was found to have lost data, or to be another
	Breaker BreakerState // whether the store is called
}

// Reconciler keeps a table and the store of its region in agreement: it writes own slots that changed to the store, and
// merges into the table what others wrote. While the store is away it keeps what it has to write; when the store has
// lost data it writes everything again. Its methods are safe for concurrent use; only one may be Run or Flush.
type Reconciler struct {
	cfg   Config
	store Store
	table Table

	mu      sync.Mutex // never held across a call of the store or the table
	pending pending
	pushDue bool // a push of all own slots
	stats   Stats
	clocks  clocks
	epoch   string // of the store, when it was asked last; empty: unknown

	// The rest belongs to Run.
	acked     ackedSlots
	rising    map[slotID]uint64 // counts of other origins that came last, see Config.Alone
	dataLost  bool              // the store lost data: that of other origins as well
	held      bool              // and too often for it to be sent everything already
	losses    losses
	failures  int    // flushes in a row
	away      alarm  // the store does not answer
	noRoom    alarm  // it answers ErrFull
	dropped   uint64 // Stats.Dropped after the last flush
	lost      uint64 // Stats.Lost after the last flush
	full      alarm
	losing    alarm
	relapsing alarm // it loses data again and again
}

// NewReconciler returns a reconciler between the store and the table. The error is that of Config.Validate.
func NewReconciler(cfg Config, store Store, table Table) (*Reconciler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Elapsed == nil {
		began := time.Now()
		cfg.Elapsed = func() time.Duration { return time.Since(began) }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Reconciler{
		cfg: cfg, store: store, table: table, pending: newPending(cfg.MaxPending), acked: newAckedSlots(),
		rising: make(map[slotID]uint64),
	}, nil
}

// Enqueue notes own slots that changed, to be sent with the next flush. It never waits for the store, and keeps no hold
// of the slice.
func (r *Reconciler) Enqueue(slots []counters.Slot) {
	worth := slices.DeleteFunc(slices.Clone(slots), func(s counters.Slot) bool {
		return s.To != 0 || r.worthless(s) // a sum goes to some only; a store would count it beside its parts
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range worth {
		if !r.pending.add(&worth[i]) {
			r.stats.Dropped++
			r.pushDue = true
		}
	}
}

// now is the node's wall clock, in Unix nanoseconds.
func (r *Reconciler) now() int64 { return r.cfg.Now().UnixNano() }

// worthless reports whether the slot is not to be written, see Config.MinWindow and Config.Worth.
func (r *Reconciler) worthless(s counters.Slot) bool {
	return s.Count == 0 || s.Meter.Window < r.cfg.MinWindow || r.cfg.Worth != nil && !r.cfg.Worth(&s)
}

// Stats returns the totals.
func (r *Reconciler) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Pending = len(r.pending.slots)
	return r.stats
}

// Warm loads the store into the table: what a cold node does before it is ready. The context bounds how long it may
// take. After an error the table holds what came until then, which is true but not all.
func (r *Reconciler) Warm(ctx context.Context) error {
	called := r.cfg.Elapsed()
	merged, err := r.store.Merge(ctx, nil, r.now()) // first: what the store loses from now on has to show
	if err == nil {
		r.mu.Lock()
		if r.epoch == "" { // else Run compares
			r.changed(&merged, called, r.cfg.Elapsed())
		}
		r.mu.Unlock()
		err = r.store.Load(ctx, r.now(), func(slots []counters.Slot) { r.table.Merge(slots, r.now()) })
	}
	if err != nil {
		return fmt.Errorf("load the regional store: %w", err)
	}
	return nil
}

// Run flushes until the context ends, and then once more: enqueue the last slots before that. It returns nil if the
// last flush wrote everything. It may be called once.
func (r *Reconciler) Run(ctx context.Context) error {
	timer := time.NewTimer(r.pause())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return r.finish(ctx)
		case <-timer.C:
		}
		err := r.Flush(ctx)
		if ctx.Err() == nil {
			r.logFlush(err)
		}
		timer.Reset(r.pause())
	}
}

// pause is how long to wait for the next flush.
func (r *Reconciler) pause() time.Duration {
	pause := r.cfg.Interval
	if r.Stats().Breaker == BreakerOpen {
		pause = r.cfg.Cooldown
	} else {
		// A store that is full answers, but it has room only when something has expired.
		pause <<= min(r.failures, 3)
	}
	return pause - rand.N(pause/10+1)
}

func (r *Reconciler) finish(ctx context.Context) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.LastFlush)
	defer cancel()
	r.losses = losses{} // there is no later
	for tries := 1; ; tries++ {
		err := r.Flush(last)
		switch {
		case err == nil:
			return nil
		case tries == lastTries, errors.Is(err, ErrFull), last.Err() != nil:
			return fmt.Errorf("last flush, %d slots not written: %w", r.Stats().Pending, err)
		}
		select {
		case <-time.After(r.cfg.LastFlush / 10):
		case <-last.Done():
		}
	}
}

// lastTries is how often the last flush is tried. A stop must not wait for a store that is down.
const lastTries = 3

// Flush is one round of Run, for callers with a loop of their own, such as a simulator: it writes what is pending, and
// everything when a push is due. It calls the store with nothing to write as well, which shows that it has lost data or
// is back.
func (r *Reconciler) Flush(ctx context.Context) error {
	send := func(ctx context.Context, slots []counters.Slot) error { return r.merge(ctx, slots, false) }
	due := r.due(r.now(), r.cfg.Elapsed())
	trial := r.Stats().Breaker == BreakerOpen
	if trial {
		r.mu.Lock()
		r.stats.Breaker = BreakerHalfOpen
		r.mu.Unlock()
	}
	if trial || len(due) == 0 {
		few := due[:min(len(due), maxProbes)]
		if err := send(ctx, few); err == nil {
			due = due[len(few):]
		} else if !errors.Is(err, ErrFull) {
			return err
		}
	}
	full := r.sendAll(ctx, due, send)
	if full != nil && !errors.Is(full, ErrFull) {
		return full
	}
	return cmp.Or(r.push(ctx), full)
}

// due returns the pending slots, and acknowledged ones to probe the store with.
func (r *Reconciler) due(now int64, at time.Duration) []counters.Slot {
	probes := r.acked.probes(now, at)
	r.mu.Lock()
	due := r.pending.due(now)
	for i := range probes {
		if _, ok := r.pending.slots[identify(&probes[i])]; !ok {
			due = append(due, probes[i])
		}
	}
	r.mu.Unlock()
	slices.SortFunc(due, byKey)
	return due
}

// merge writes slots to the store and takes in its answer. In a push the store has had most of them before.
func (r *Reconciler) merge(ctx context.Context, slots []counters.Slot, push bool) error {
	var merged Merged
	now, called := r.now(), r.cfg.Elapsed()
	err := r.call(ctx, slots, func(ctx context.Context) (err error) {
		merged, err = r.store.Merge(ctx, slots, now)
		if err == nil && len(merged.Before) != len(slots) {
			err = fmt.Errorf("the answer is about %d slots", len(merged.Before))
		}
		return err
	})
	if err != nil {
		r.acked.unanswered(slots)
		return fmt.Errorf("merge %d slots into the regional store: %w", len(slots), err)
	}
	answered := r.cfg.Elapsed()
	if len(merged.Others) > 0 {
		if r.cfg.Alone {
			r.noteOthers(merged.Others)
		}
		r.table.Merge(merged.Others, r.now())
	}
	r.detectLoss(slots, &merged, called, answered)
	r.acked.note(slots, merged.Before, push, now, called)
	return nil
}

// noteOthers looks for counts of others that rise: a process makes them that runs beside this one.
func (r *Reconciler) noteOthers(slots []counters.Slot) {
	rose := uint64(0)
	for i := range slots {
		at := identify(&slots[i])
		if before, known := r.rising[at]; known && slots[i].Count > before {
			rose++
		}
		if len(r.rising) >= maxOthers {
			clear(r.rising)
		}
		r.rising[at] = slots[i].Count
	}
	r.mu.Lock()
	first := rose > 0 && r.stats.Others == 0
	r.stats.Others += rose
	r.mu.Unlock()
	if first {
		r.cfg.Log.Warn("another node counts in this Redis, and this one gossips with none: each may admit the whole " +
			"limit; give all of them gossip and join, or keep each to a Redis of its own")
	}
}

// maxOthers is how many counts of others are compared, at some 100 bytes each.
const maxOthers = 1024

// restore writes slots of other origins to a store that lost them.
func (r *Reconciler) restore(ctx context.Context, slots []counters.Slot) error {
	err := r.call(ctx, slots, func(ctx context.Context) error { return r.store.Restore(ctx, slots, r.now()) })
	if err != nil {
		return fmt.Errorf("restore %d slots in the regional store: %w", len(slots), err)
	}
	return nil
}

// call makes one call of the store within its timeout, and records how it went.
func (r *Reconciler) call(ctx context.Context, slots []counters.Slot, f func(context.Context) error) error {
	call, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	began := time.Now()
	err := f(call)
	took := time.Since(began)
	if r.cfg.OnCall != nil {
		r.cfg.OnCall(took, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.stats.Breaker = BreakerClosed
		r.stats.Flushed += uint64(len(slots))
		r.pending.acknowledge(slots)
	case ctx.Err() != nil: // Run was asked to stop, which is no failure of the store
	case errors.Is(err, ErrFull):
		r.stats.Breaker = BreakerClosed // it answers
		r.stats.Failed++
	default:
		r.stats.Breaker = BreakerOpen
		r.stats.Failed++
	}
	return err
}
