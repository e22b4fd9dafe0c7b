package regions

import (
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

const (
	maxWitnesses = 1 << 14 // slots whose acknowledgement is remembered, at some 250 bytes each
	maxProbes    = 32      // of these, how many are told again with each flush

	// Where the store's clock is ahead, it forgets a slot earlier than this node would: not a loss. So nothing is concluded from
	// slots that expire within the clock skew to reckon with.
	clockSkew = 2 * time.Second
)

// witnesses are own slots with the counts that the store has acknowledged. A store that knows less of one of them has lost
// data. They are bounded and expire.
//
// A store that was flushed, or that failed over to an older copy, may be noticed only through slots that change no more, so
// some are told again with each flush. The probes are the latest news that the store acknowledged: whatever an older copy
// lacks, it lacks the latest.
type witnesses struct {
	slots  map[slotID]counters.Slot
	latest []counters.Slot
}

func newWitnesses() witnesses {
	return witnesses{slots: make(map[slotID]counters.Slot)}
}

// forget is for a store that has lost data: what it had acknowledged proves nothing any more. The probes stay: until
// there is news they are the latest.
func (w *witnesses) forget() { clear(w.slots) }

// behind is how many of the slots the store held less of than it had acknowledged.
func (w *witnesses) behind(slots []counters.Slot, before []uint64, now int64) (n int) {
	for i := range slots {
		s := &slots[i]
		if before[i] < w.slots[identify(s)].Count && !expired(s.Meter, s.Index, now+int64(clockSkew)) {
			n++
		}
	}
	return n
}

// note remembers what the store has acknowledged. A push tells much that is no news: of it, only what the store raised is.
func (w *witnesses) note(slots []counters.Slot, before []uint64, push bool) {
	latest := w.latest
	for i, s := range slots {
		id := identify(&s)
		known, ok := w.slots[id]
		if !ok && len(w.slots) >= maxWitnesses {
			w.displace()
		}
		if s.Count >= known.Count {
			w.slots[id] = s
		}
		// What the store held already and had not acknowledged is news as well: an answer had been lost.
		if before[i] < s.Count || !push && known.Count < s.Count {
			latest = append(latest, s)
		}
	}
	if len(latest) > len(w.latest) {
		w.latest = lastOfEach(latest, maxProbes)
	}
}

// displace makes room for a witness: any goes, but for the probes.
func (w *witnesses) displace() {
	for id := range w.slots {
		if !holds(w.latest, id) {
			delete(w.slots, id)
			return
		}
	}
}

// lastOfEach returns the last slots, at most so many and each once, in their order.
func lastOfEach(slots []counters.Slot, most int) []counters.Slot {
	last := make([]counters.Slot, 0, most)
	for _, s := range slices.Backward(slots) {
		if len(last) == most {
			break
		}
		if !holds(last, identify(&s)) {
			last = append(last, s)
		}
	}
	slices.Reverse(last)
	return last
}

func holds(slots []counters.Slot, id slotID) bool {
	for i := range slots {
		if s := &slots[i]; s.Key == id.key && identify(s) == id { // the key first: it differs as a rule
			return true
		}
	}
	return false
}

// probes returns the slots to tell again, and drops what has expired.
func (w *witnesses) probes(now int64) []counters.Slot {
	soon := now + int64(clockSkew)
	for id, s := range w.slots {
		if expired(s.Meter, s.Index, soon) {
			delete(w.slots, id)
		}
	}
	live := w.latest[:0]
	for _, s := range w.latest {
		if !expired(s.Meter, s.Index, soon) {
			live = append(live, s)
		}
	}
	w.latest = live
	if len(w.latest) == 0 {
		for _, s := range w.slots {
			w.latest = append(w.latest, s)
		}
		sortByKey(w.latest)
		w.latest = w.latest[:min(len(w.latest), maxProbes)]
	}
	return w.latest
}
