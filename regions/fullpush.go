package regions

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// detectLoss looks for signs that the store has lost data. If so, all own slots are owed to it, this call's included:
// what it had acknowledged before proves nothing.
func (r *Reconciler) detectLoss(slots []counters.Slot, merged *Merged, at time.Duration) {
	behind := r.acked.behind(slots, merged.Before, at)
	replaced := r.epoch != "" && merged.Epoch != "" && merged.Epoch != r.epoch
	if merged.Epoch != "" {
		r.epoch = merged.Epoch
	}
	if behind == 0 && !replaced {
		return
	}
	r.acked.forget()
	r.dataLost = true
	r.mu.Lock()
	r.pushDue = true
	r.stats.Lost++
	r.mu.Unlock()
}

// takePushDue says whether a push of all own slots is owed; from then on the push answers for it.
func (r *Reconciler) takePushDue() (due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	due, r.pushDue = r.pushDue, false
	return due
}

func (r *Reconciler) schedulePush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pushDue = true
}

// push tells the store everything when that is owed, and says whether it was. A push that fails begins anew with the
// next flush: what it has sent may have been lost again in the meantime, with nothing left to notice that by. After
// many losses it waits.
func (r *Reconciler) push(ctx context.Context) (due bool, err error) {
	if r.held = r.dataLost && r.losses.hold(r.cfg.Elapsed()); r.held || !r.takePushDue() {
		return false, nil
	}
	dataLost := r.dataLost
	r.dataLost = false
	err = r.sendAll(ctx, r.own(), r.sendPush)
	if dataLost && (err == nil || errors.Is(err, ErrFull)) {
		err = cmp.Or(r.sendAll(ctx, r.others(), r.sendOthers), err)
	}
	if err != nil {
		r.schedulePush()
		r.dataLost = r.dataLost || dataLost
	} else if dataLost {
		r.losses.spend(r.cfg.Elapsed())
	}
	return true, err
}

func (r *Reconciler) own() []counters.Slot {
	own := slices.DeleteFunc(r.table.Own(r.now()), r.worthless)
	sortByKey(own)
	return own
}

// others are slots that other origins told a store which lost them. Who lives tells its own, but who is gone cannot.
func (r *Reconciler) others() []counters.Slot {
	if r.cfg.Restore == 0 {
		return nil
	}
	own := r.table.Origin()
	others := slices.DeleteFunc(r.table.Snapshot(r.now(), r.cfg.Restore), func(s counters.Slot) bool {
		return s.Origin == own || r.worthless(s)
	})
	sortByKey(others)
	return others
}

// sortByKey has the slots lie as in a store that is shared out by the first bits of the key: a call then meets few of
// its parts. Those of a key have an order, too, so that the same events make the same calls.
func sortByKey(slots []counters.Slot) { slices.SortFunc(slots, byKey) }

func byKey(a, b counters.Slot) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Meter.Rule, b.Meter.Rule), cmp.Compare(a.Index, b.Index),
		cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Birth, b.Birth))
}

// sendAll sends the slots in chunks and stops at the first error. A store that is merely full is sent the rest as well:
// it may know that already, and raise it.
func (r *Reconciler) sendAll(
	ctx context.Context, slots []counters.Slot, send func(context.Context, []counters.Slot) error,
) error {
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
