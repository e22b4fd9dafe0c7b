package regions

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// detectLoss looks for signs that the store has lost data. If so, everything has to be written again, the slots of this
// call as well: what the store had acknowledged before proves nothing.
func (r *Reconciler) detectLoss(slots []counters.Slot, merged *Merged, called, answered time.Duration) {
	behind := r.acked.behind(slots, merged.Before, answered)
	r.mu.Lock()
	changed := r.changed(merged, called, answered)
	r.mu.Unlock()
	if behind == 0 && !changed {
		return
	}
	r.acked.forget()
	r.dataLost = true
	r.mu.Lock()
	r.pushDue = true
	r.stats.Lost++
	r.mu.Unlock()
}

// changed reports whether the store is another than at the call before: restarted, replaced or emptied, or with a clock
// that was set forward, so that what it held has expired there. The caller holds mu.
func (r *Reconciler) changed(merged *Merged, called, answered time.Duration) (changed bool) {
	changed = r.epoch != "" && merged.Epoch != "" && merged.Epoch != r.epoch
	r.epoch = cmp.Or(merged.Epoch, r.epoch)
	if merged.Time.IsZero() {
		return changed
	}
	return r.clocks.compare(merged.Time.UnixNano(), called, answered) || changed
}

// push writes all own slots to the store when that is due. A push that fails begins anew with the next flush: what it
// wrote may have been lost again meanwhile, with nothing left that shows it. After many losses it waits.
func (r *Reconciler) push(ctx context.Context) error {
	if r.held = r.dataLost && r.losses.count(r.cfg.Elapsed()) >= lossBurst; r.held || !r.setPushDue(false) {
		return nil
	}
	dataLost := r.dataLost
	r.dataLost = false
	own := slices.DeleteFunc(r.table.Own(r.now()), r.worthless)
	send := func(ctx context.Context, slots []counters.Slot) error { return r.merge(ctx, slots, true) }
	err := r.sendAll(ctx, own, send)
	if dataLost && (err == nil || errors.Is(err, ErrFull)) {
		err = cmp.Or(r.sendAll(ctx, r.others(), r.restore), err)
	}
	if err != nil {
		r.setPushDue(true)
		r.dataLost = r.dataLost || dataLost
	} else if dataLost {
		r.losses.spent = r.losses.count(r.cfg.Elapsed()) + 1
	}
	return err
}

// setPushDue notes whether all own slots have to be written, and returns what was noted before.
func (r *Reconciler) setPushDue(due bool) (before bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.pushDue = r.pushDue, due
	return before
}

// others returns slots that other origins wrote to a store which lost them: nodes that are gone cannot write their own.
func (r *Reconciler) others() []counters.Slot {
	if r.cfg.Restore == 0 {
		return nil
	}
	own := r.table.Origin()
	return slices.DeleteFunc(r.table.Snapshot(r.now(), r.cfg.Restore), func(s counters.Slot) bool {
		return s.Origin == own || r.worthless(s)
	})
}

// byKey is the order in which slots are sent. A store that is divided by the first bits of the key, such as a Redis
// Cluster, then finds few of its parts in one call; and the same events make the same calls.
func byKey(a, b counters.Slot) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Meter.Rule, b.Meter.Rule), cmp.Compare(a.Index, b.Index),
		cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Birth, b.Birth))
}

// sendAll sorts the slots and sends them in chunks. It stops at the first error, unless the store is merely full: it
// may have the other slots already, and raise them.
func (r *Reconciler) sendAll(
	ctx context.Context, slots []counters.Slot, send func(context.Context, []counters.Slot) error,
) error {
	slices.SortFunc(slots, byKey)
	var full error
	for chunk := range slices.Chunk(slots, r.cfg.Chunk) {
		if err := send(ctx, chunk); errors.Is(err, ErrFull) {
			full = err
		} else if err != nil {
			return err
		}
	}
	return full
}

// losses limits how often all slots are written to a store that loses data again and again: each time costs the store
// and the node as much as all that lies in it. Only Run calls it.
type losses struct {
	spent int           // pushes, less those that time has made up for
	since time.Duration // when that was last computed, by the monotonic clock
}

const (
	lossBurst = 20               // pushes in a row that are not waited for
	lossEvery = 10 * time.Second // between two pushes from then on
)

// count returns how many pushes time has not made up for.
func (l *losses) count(at time.Duration) int {
	earned := int((at - l.since) / lossEvery)
	if l.spent -= earned; l.spent <= 0 {
		l.spent, l.since = 0, at
	} else {
		l.since += time.Duration(earned) * lossEvery
	}
	return l.spent
}
