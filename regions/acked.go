package regions

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

const (
	maxAckedSlots = 1 << 14 // slots whose acknowledgement is remembered, at some 250 bytes each
	maxProbes     = 32      // of these, how many the store is asked about with each flush

	// What wall clocks are expected to differ by. A store is asked to keep a slot for as much longer than this node's
	// clock says that it counts, for the sake of nodes whose clocks are behind; and nothing is concluded from the last
	// moments of a slot.
	clockSkew = 2 * time.Second
)

// ackedSlots are own slots with the counts that the store has acknowledged. A store that knows less of one of them has
// lost data. They are bounded and expire.
//
// A store that was flushed, or that failed over to an older copy, may be noticed only through slots that change no
// more, so it is asked about some with each flush. The probes are the latest news that the store acknowledged: whatever
// an older copy lacks, it lacks the latest. It is asked, not told: else an answer that is lost on its way would have
// restored the very slots by which the loss shows.
type ackedSlots struct {
	slots map[slotID]ackedSlot
	news  uint64 // how much there has been
}

type ackedSlot struct {
	counters.Slot        // with the count acknowledged; 0 proves nothing
	news          uint64 // number of the latest about it; 0: none
	// by the monotonic clock: the store has to keep the slot until then, whatever is set meanwhile
	until time.Duration
}

func newAckedSlots() ackedSlots {
	return ackedSlots{slots: make(map[slotID]ackedSlot)}
}

// forget is for a store that has lost data: what it had acknowledged proves nothing any more.
func (w *ackedSlots) forget() {
	for id, s := range w.slots {
		s.Count = 0
		w.slots[id] = s
	}
}

// unanswered is for slots that the store was sent, which may have taken effect: that it holds them from now on does not
// prove that it has kept them.
func (w *ackedSlots) unanswered(slots []counters.Slot) {
	for i := range slots {
		id := identify(&slots[i])
		if s, ok := w.slots[id]; ok && slots[i].Count > 0 {
			s.Count = 0
			w.slots[id] = s
		}
	}
}

// behind is how many of the slots the store held less of than it had acknowledged.
func (w *ackedSlots) behind(slots []counters.Slot, before []uint64, at time.Duration) (n int) {
	for i := range slots {
		if known := w.slots[identify(&slots[i])]; before[i] < known.Count && known.proves(at) {
			n++
		}
	}
	return n
}

// proves reports whether the store has to hold the slot still.
func (s *ackedSlot) proves(at time.Duration) bool { return at+clockSkew <= s.until }

// note remembers what the store has acknowledged. A push tells much that is no news: of it, only what the store raised
// is. The call was made when the node's clock showed now, at a moment of the monotonic clock.
func (w *ackedSlots) note(slots []counters.Slot, before []uint64, push bool, now int64, at time.Duration) {
	for i, s := range slots {
		if s.Count == 0 {
			continue // asked, not told
		}
		id := identify(&s)
		known, ok := w.slots[id]
		if !ok && len(w.slots) >= maxAckedSlots {
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
		// what was raised is kept from then on for as long as this node wants it
		if before[i] < s.Count || known.until == 0 {
			known.until = max(known.until, at+lifetime(s.Meter, s.Index, now))
		}
		w.slots[id] = known
	}
}

// displace makes room for a witness: of a few, that which is the oldest news goes. So probes stay.
func (w *ackedSlots) displace() {
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

// probes returns the slots to ask about, the latest first, and drops what has expired or need not be held much longer.
func (w *ackedSlots) probes(now int64, at time.Duration) []counters.Slot {
	latest := make([]ackedSlot, 0, maxProbes+1)
	for id, s := range w.slots {
		if !s.proves(at) || expired(s.Meter, s.Index, now) {
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
func later(a, b ackedSlot) int { return cmp.Or(cmp.Compare(b.news, a.news), byKey(a.Slot, b.Slot)) }
