package regions

import (
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
}

// Stats are running totals of a Reconciler, but for Pending and Latency.
type Stats struct {
	Pending int           // slots that wait for the store now
	Flushed uint64        // slots that the store acknowledged
	Failed  uint64        // calls of the store that failed
	Dropped uint64        // slots offered that found no room: made good by a push of all own slots
	Lost    uint64        // times that the store was found to have lost data, or restarted
	Latency time.Duration // how long the last call of the store took, whether it succeeded or not
}

// Reconciler keeps a table and the store of its region in agreement: it tells the store what changed of the own slots, and
// merges into the table what others told there. When the store is away it keeps what it has to tell; when the store has
// lost data it tells everything again. NewReconciler makes one; Offer and Stats may be called at any time, from anywhere.
type Reconciler struct {
	cfg   Config
	store Store
	table Table

	mu      sync.Mutex // never held across a call of the store or the table
	pending pending
	owed    bool // a push of all own slots
	stats   Stats

	// The rest belongs to Run.
	witnesses witnesses
	epoch     string
	failures  int    // flushes in a row
	dropped   uint64 // Stats.Dropped after the last flush
	lost      uint64 // Stats.Lost after the last flush
	full      alarm
	losing    alarm
}

// NewReconciler returns a reconciler between the store and the table. The error is that of Config.Validate.
func NewReconciler(cfg Config, store Store, table Table) (*Reconciler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Reconciler{
		cfg:       cfg,
		store:     store,
		table:     table,
		pending:   newPending(cfg.MaxPending),
		witnesses: newWitnesses(),
	}, nil
}

// Offer notes own slots that changed, to be told with the next flush. It never waits for the store, and keeps no hold of the
// slice.
func (r *Reconciler) Offer(slots []counters.Slot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range slots {
		if r.worthless(slots[i]) {
			continue
		}
		if !r.pending.offer(&slots[i]) {
			r.stats.Dropped++
			r.owed = true
		}
	}
}

// worthless says that the slot's window is too short to be worth the store's while.
func (r *Reconciler) worthless(s counters.Slot) bool { return s.Meter.Window < r.cfg.MinWindow }

// Stats returns the totals.
func (r *Reconciler) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Pending = len(r.pending.slots)
	return r.stats
}

// Warm loads the store into the table: what a cold node does before it is ready. The context bounds how long it may take. After
// an error the table holds what came until then, which is true but not all.
func (r *Reconciler) Warm(ctx context.Context) error {
	err := r.store.Load(ctx, func(slots []counters.Slot) {
		r.table.Merge(slots, r.cfg.Now().UnixNano())
	})
	if err != nil {
		return fmt.Errorf("load the regional store: %w", err)
	}
	return nil
}

// Run flushes until the context ends, and then once more: offer the last slots before that. It returns nil if the last flush
// told the store everything. It may be called once.
func (r *Reconciler) Run(ctx context.Context) error {
	timer := time.NewTimer(r.pause())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return r.finish(ctx)
		case <-timer.C:
		}
		called, err := r.flush(ctx)
		if called && ctx.Err() == nil {
			r.tell(err)
		}
		timer.Reset(r.pause())
	}
}

// pause is how long to wait for the next flush.
func (r *Reconciler) pause() time.Duration {
	pause := r.cfg.Interval
	for range r.failures {
		if pause *= 2; pause >= r.cfg.MaxBackoff {
			pause = r.cfg.MaxBackoff
			break
		}
	}
	return pause - rand.N(pause/10+1)
}

func (r *Reconciler) finish(ctx context.Context) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.LastFlush)
	defer cancel()
	if _, err := r.flush(last); err != nil {
		return fmt.Errorf("last flush, %d slots not told: %w", r.Stats().Pending, err)
	}
	return nil
}

// flush tells the store what is pending, and everything when that is owed. It says whether it had anything to tell.
func (r *Reconciler) flush(ctx context.Context) (called bool, err error) {
	due := r.due(r.cfg.Now().UnixNano())
	if err := r.sendAll(ctx, due, false); err != nil || !r.settle() {
		return len(due) > 0, err
	}
	own := slices.DeleteFunc(r.table.Own(r.cfg.Now().UnixNano()), r.worthless)
	if err := r.sendAll(ctx, own, true); err != nil {
		r.owe()
		return true, err
	}
	return len(due)+len(own) > 0, nil
}

// due returns what is pending and some witnesses beside.
func (r *Reconciler) due(now int64) []counters.Slot {
	probes := r.witnesses.probes(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	due := r.pending.due(now)
	for i := range probes {
		if _, ok := r.pending.slots[identify(&probes[i])]; !ok {
			due = append(due, probes[i])
		}
	}
	return due
}

// owe makes the next flush push all own slots. settle says whether that was owed; from then on the push answers for it.
func (r *Reconciler) owe() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owed = true
}

func (r *Reconciler) settle() (owed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	owed, r.owed = r.owed, false
	return owed
}

// sendAll tells the store in chunks and stops at the first error. A store that is merely full is told the rest as well: it may
// know that already, and raise it. A push is all own slots, most of which the store has heard before.
func (r *Reconciler) sendAll(ctx context.Context, slots []counters.Slot, push bool) error {
	var full error
	for chunk := range slices.Chunk(slots, r.cfg.Chunk) {
		if err := r.send(ctx, chunk, push); errors.Is(err, ErrFull) {
			full = err
		} else if err != nil {
			return err
		}
	}
	return full
}

// send makes one call of the store and learns from its answer.
func (r *Reconciler) send(ctx context.Context, slots []counters.Slot, push bool) error {
	call, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	began := time.Now()
	merged, err := r.store.Merge(call, slots)
	if err == nil && len(merged.Before) != len(slots) {
		err = fmt.Errorf("the answer is about %d slots", len(merged.Before))
	}
	r.count(time.Since(began), slots, err, ctx.Err() != nil)
	if err != nil {
		return fmt.Errorf("merge %d slots into the regional store: %w", len(slots), err)
	}
	now := r.cfg.Now().UnixNano()
	if len(merged.Others) > 0 {
		r.table.Merge(merged.Others, now)
	}
	r.doubt(slots, &merged, now)
	r.witnesses.note(slots, merged.Before, push)
	return nil
}

// count keeps the totals of a call, and takes what the store acknowledged out of what is pending. A call that failed because
// Run was told to stop is no failure of the store.
func (r *Reconciler) count(took time.Duration, slots []counters.Slot, err error, stopped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Latency = took
	switch {
	case err == nil:
		r.stats.Flushed += uint64(len(slots))
		r.pending.acknowledge(slots)
	case !stopped:
		r.stats.Failed++
	}
}

// doubt looks for signs that the store has lost data. If so, all own slots are owed to it, this call's included: what it had
// acknowledged before proves nothing.
func (r *Reconciler) doubt(slots []counters.Slot, merged *Merged, now int64) {
	behind := r.witnesses.behind(slots, merged.Before, now)
	replaced := r.epoch != "" && merged.Epoch != "" && merged.Epoch != r.epoch
	if merged.Epoch != "" {
		r.epoch = merged.Epoch
	}
	if behind == 0 && !replaced {
		return
	}
	r.witnesses.forget()
	r.mu.Lock()
	r.owed = true
	r.stats.Lost++
	r.mu.Unlock()
}
