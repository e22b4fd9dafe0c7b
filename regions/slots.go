package regions

import (
	"cmp"
	"maps"
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
// A store that was flushed, or that failed over to an older copy, may show it only by slots that no longer change, so
// each flush probes some: the latest that the store acknowledged, which an older copy lacks first. Probes have no
// count: else a call whose answer is lost would restore the very slots by which the loss shows.
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

// forget marks all slots as proving nothing, after the store has lost data.
func (w *ackedSlots) forget() {
	for id, s := range w.slots {
		s.Count = 0
		w.slots[id] = s
	}
}

// unanswered marks slots of a failed call as proving nothing: it may have written them after a loss.
func (w *ackedSlots) unanswered(slots []counters.Slot) {
	for i := range slots {
		id := identify(&slots[i])
		if s, ok := w.slots[id]; ok && slots[i].Count > 0 {
			s.Count = 0
			w.slots[id] = s
		}
	}
}

// behind returns of how many slots the store held less than it had acknowledged.
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

// note records what the store has acknowledged, in a call made at now by the node's clock and at by the monotonic one.
// Of a push, only slots that the store raised are news.
func (w *ackedSlots) note(slots []counters.Slot, before []uint64, push bool, now int64, at time.Duration) {
	for i, s := range slots {
		if s.Count == 0 {
			continue // a probe
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

// displace makes room for a slot: of a few, the one with the oldest news goes. So probes stay.
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

// later orders slots by their news, the latest first, and then by key, so that the same events make the same calls.
func later(a, b ackedSlot) int { return cmp.Or(cmp.Compare(b.news, a.news), byKey(a.Slot, b.Slot)) }

// pending are the slots that wait for the store, each with the largest count offered. It is bounded.
type pending struct {
	cap   int
	slots map[slotID]counters.Slot
}

func newPending(capacity int) pending {
	return pending{cap: capacity, slots: make(map[slotID]counters.Slot)}
}

// add notes a slot. It returns false when there is no room for one more.
func (p *pending) add(s *counters.Slot) bool {
	id := identify(s)
	known, ok := p.slots[id]
	switch {
	case ok && known.Count >= s.Count:
		return true
	case !ok && len(p.slots) >= p.cap:
		return false
	}
	p.slots[id] = *s
	return true
}

// due drops what has expired and returns the rest, which stays pending.
func (p *pending) due(now int64) []counters.Slot {
	maps.DeleteFunc(p.slots, func(_ slotID, s counters.Slot) bool { return expired(s.Meter, s.Index, now) })
	return slices.Collect(maps.Values(p.slots))
}

// acknowledge removes what the store has now. What rose in the meantime stays.
func (p *pending) acknowledge(slots []counters.Slot) {
	for i := range slots {
		id := identify(&slots[i])
		if p.slots[id].Count <= slots[i].Count {
			delete(p.slots, id)
		}
	}
}
