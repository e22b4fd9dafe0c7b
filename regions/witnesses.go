package regions

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

const (
	maxWitnesses = 1 << 14 // slots whose acknowledgement is remembered, at some 250 bytes each
	maxProbes    = 32      // of these, how many the store is asked about with each flush

	// Where the store's clock is ahead, it forgets a slot earlier than this node would: not a loss. So nothing is concluded from
	// slots that expire within the clock skew to reckon with.
	clockSkew = 2 * time.Second
)

// witnesses are own slots with the counts that the store has acknowledged. A store that knows less of one of them has lost
// data. They are bounded and expire.
//
// A store that was flushed, or that failed over to an older copy, may be noticed only through slots that change no more, so
// it is asked about some with each flush. The probes are the latest news that the store acknowledged: whatever an older copy
// lacks, it lacks the latest. It is asked, not told: else an answer that is lost on its way would have restored the very slots by which
// the loss shows.
type witnesses struct {
	slots map[slotID]witness
	news  uint64 // how much there has been
}

type witness struct {
	counters.Slot        // with the count acknowledged; 0 proves nothing
	news          uint64 // number of the latest about it; 0: none
}

func newWitnesses() witnesses {
	return witnesses{slots: make(map[slotID]witness)}
}

// forget is for a store that has lost data: what it had acknowledged proves nothing any more.
func (w *witnesses) forget() {
	for id, s := range w.slots {
		s.Count = 0
		w.slots[id] = s
	}
}

// unanswered is for slots that the store was told, which may have taken effect: that it holds them from now on does not prove that it has
// kept them.
func (w *witnesses) unanswered(slots []counters.Slot) {
	for i := range slots {
		id := identify(&slots[i])
		if s, ok := w.slots[id]; ok && slots[i].Count > 0 {
			s.Count = 0
			w.slots[id] = s
		}
	}
}

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
	for i, s := range slots {
		if s.Count == 0 {
			continue // asked, not told
		}
		id := identify(&s)
		known, ok := w.slots[id]
		if !ok && len(w.slots) >= maxWitnesses {
			w.displace()
		}
		// What the store held already and had not acknowledged is news as well: an answer had been lost.
		if before[i] < s.Count || !push && known.Count < s.Count {
			w.news++
			known.news = w.news
		}
		if s.Count >= known.Count {
			known.Slot = s
		}
		w.slots[id] = known
	}
}

// displace makes room for a witness: of a few, that which is the oldest news goes. So probes stay.
func (w *witnesses) displace() {
	var oldest slotID
	left, news := 8, uint64(math.MaxUint64)
	for id, s := range w.slots {
		if s.news < news {
			oldest, news = id, s.news
		}
		if left--; left == 0 {
			break
		}
	}
	delete(w.slots, oldest)
}

// probes returns the slots to ask about, the latest first, and drops what has expired.
func (w *witnesses) probes(now int64) []counters.Slot {
	soon := now + int64(clockSkew)
	latest := make([]witness, 0, maxProbes+1)
	for id, s := range w.slots {
		if expired(s.Meter, s.Index, soon) {
			delete(w.slots, id)
		} else if s.Count > 0 {
			at, _ := slices.BinarySearchFunc(latest, s, later)
			latest = slices.Insert(latest, at, s)
			latest = latest[:min(len(latest), maxProbes)]
		}
	}
	probes := make([]counters.Slot, len(latest))
	for i, s := range latest {
		probes[i] = s.Slot
		probes[i].Count = 0
	}
	return probes
}

// later is the order of witnesses by their news. All have one, so that the same events make the same calls.
func later(a, b witness) int { return cmp.Or(cmp.Compare(b.news, a.news), byKey(a.Slot, b.Slot)) }
