package counters

import (
	"math"
	"time"
)

// What origins counted that are gone for good is folded, when the numbers of origins run short: of each key, sub-window
// and place it becomes one slot of a fold, an origin of the table's own. No view changes: the ring of a cell is the sum
// of its slots, and a fold is part of the sums over its place. So the numbers in use stay bounded, however many boots
// there are within a window.
//
// Only the table itself can tell which origins are in a fold. So the slots of folds have no origin (0): they are in no
// snapshot, and nobody merges them. A node that starts does not learn of them from others.
//
// A slot of a folded origin that comes again, from a peer that has not folded it or from a store, would count twice. So
// the table remembers the origins that it folded for as long as their slots count, maxFolded at most, and ignores their
// slots of sub-windows that had begun by then. An origin is folded only after it is gone (SetWatermark) and nobody has
// sent a slot of it for foldAfter, or, where only others reported it, for strangerAfter. If it comes back after all,
// what it counts in later sub-windows counts.

const (
	foldAfter     = 30 * time.Second
	strangerAfter = 15 * time.Minute
	// maxFolded caps the memory of folded origins, about 4 MiB. Beyond it, what retired origins counted is forgotten.
	maxFolded = 1 << 16
	// sweepParts is how many parts of a walk a drain searches for slots of retired origins.
	sweepParts = 32
)

// foldedOrigin is the memory of an origin that was folded.
type foldedOrigin struct{ at, until int64 }

// sweep is the search for slots of retired origins.
type sweep struct {
	left int // shards, the last ones
	walk walk
}

// isGone reports whether no later slot of the origin, which is no member, is to be expected.
func (o *originState) isGone(now int64) bool {
	after := foldAfter
	if o.watermark.Load() != Gone {
		if after = strangerAfter; !o.stranger.Load() {
			return false
		}
	}
	return int32(usedAt(now)-o.usedAt.Load()) > int32(usedAt(int64(after)))
}

// isFold reports whether a number that has holders is that of a fold.
func (ot *originTable) isFold(number uint16) bool { return ot.ids[number] == 0 }

// longestWindow is how long a slot of any meter in use counts at most.
func (t *Table) longestWindow() (lasts int64) {
	t.meters.RLock()
	defer t.meters.RUnlock()
	for _, m := range t.meters.states[1 : 1+t.meters.given] {
		if m.holders.Load() > 0 {
			lasts = max(lasts, int64(m.meter.Window+2*m.meter.Sub))
		}
	}
	return lasts
}

// remember notes that an origin is folded, and makes a fold for its place. It returns false if there is no room. The
// caller holds the lock.
func (ot *originTable) remember(number uint16, now, lasts int64) bool {
	if len(ot.folded) >= maxFolded {
		for id, f := range ot.folded {
			if f.until < now {
				delete(ot.folded, id)
			}
		}
	}
	place := Place(ot.states[number].place.Load())
	if len(ot.folded) >= maxFolded || ot.folds[place] == 0 && !ot.newFold(place) {
		return false
	}
	ot.folded[ot.ids[number]] = foldedOrigin{at: now, until: now + lasts}
	return true
}

// newFold makes a fold for a place. Its number has a holder for ever, and no id.
func (ot *originTable) newFold(place Place) bool {
	const id = math.MaxUint64
	k := ot.register(id, 0)
	if k == 0 {
		return false
	}
	delete(ot.numbers, id)
	ot.ids[k] = 0
	ot.holders[k].Add(1)
	state := &ot.states[k]
	state.member.Store(true) // it is not retired
	state.stranger.Store(false)
	state.sums.Store(nil)
	state.place.Store(uint32(place))
	ot.folds[place] = k
	return true
}

// sweepRetired searches some cells for slots of retired origins. When all are searched, the numbers of these are free.
func (t *Table) sweepRetired() {
	w := &t.origins.sweep
	if w.left == 0 {
		return
	}
	for range sweepParts {
		if !t.sweepPart(&t.shards[shards-w.left]) {
			continue
		}
		if w.left--; w.left == 0 {
			t.swept()
			return
		}
	}
}

func (t *Table) sweepPart(s *shard) (done bool) {
	s.Lock()
	defer s.Unlock()
	return t.origins.sweep.walk.part(s, func(ref uint32) int {
		c := s.cell(ref)
		return t.dropRetired(s, c, t.meters.states[c.meter])
	})
}

// swept frees the numbers of retired origins.
func (t *Table) swept() {
	ot := &t.origins
	ot.Lock()
	defer ot.Unlock()
	for k := range ot.states {
		if ot.states[k].retired.Swap(false) && ot.holders[k].Load() == 0 {
			delete(ot.numbers, ot.ids[k])
			ot.ids[k] = 0
		}
	}
}

// folding is the slots of folds in one sub-window of a cell.
type folding struct {
	age   uint64
	slots []*remote
}

// into returns the slot of the fold of a place that has room for a count, nil if there is none.
func (f *folding) into(ot *originTable, place Place, count uint64) *remote {
	for _, r := range f.slots {
		if Place(ot.states[r.origin()].place.Load()) == place && r.count()+count <= MaxCount {
			return r
		}
	}
	return nil
}

// dropRetired folds the slots of retired origins, or frees them and subtracts their counts: a bucket keeps what it
// debited. It returns the number of the cell's slots.
func (t *Table) dropRetired(s *shard, c *cell, m *meterState) (slots int) {
	ot, lost := &t.origins, uint64(0)
	var memory [4]*remote
	folding := folding{slots: memory[:0]}
	for link := &c.slots; *link != 0; slots++ {
		r := s.remote(*link)
		if age := r.age(c); age != folding.age {
			folding.age, folding.slots = age, folding.slots[:0]
		}
		state := &ot.states[r.origin()]
		switch retired := state.retired.Load(); {
		case !retired && !ot.isFold(r.origin()):
			link = &r.next
		case retired && !state.folds.Load():
			s.subtract(c, m, r.age(c), r.count())
			lost += r.count()
			s.freeSlot(link)
		default:
			link = t.fold(s, c, m, link, &folding)
		}
	}
	if lost != 0 {
		t.forget(c, m, lost)
	}
	return slots
}

// fold folds a slot, or the slot of a fold into another one. It returns the link to the next slot.
func (t *Table) fold(s *shard, c *cell, m *meterState, link *uint32, f *folding) *uint32 {
	r := s.remote(*link)
	place := s.placeOf(r.origin())
	to := f.into(&t.origins, place, r.count())
	if to == nil {
		if !t.origins.isFold(r.origin()) {
			s.setOrigin(r, t.origins.folds[place])
		}
		f.slots = append(f.slots, r)
		return &r.next
	}
	sum := to.count() + r.count()
	if m.algorithm.timed() { // the later end of two bans
		sum = max(to.count(), r.count())
		s.subtract(c, m, r.age(c), to.count()+r.count()-sum)
	}
	to.what = sum<<countAt | to.what&(1<<countAt-1) | r.what&(raisedMark|freshMark)
	s.freeSlot(link)
	return link
}

// setOrigin gives a slot to another origin.
func (s *shard) setOrigin(r *remote, origin uint16) {
	before := r.origin()
	if s.strangers > 0 && s.origins.states[before].stranger.Load() {
		s.strangers--
	}
	s.origins.holders[before].Add(-1)
	s.origins.holders[origin].Add(1)
	r.birth, r.what = 0, r.what&^(1<<originBits-1)|uint64(origin)
}

// subtract takes a count of others away from the ring.
func (s *shard) subtract(c *cell, m *meterState, age, count uint64) {
	i := m.n + 1 - int(age)
	if i > m.n {
		return
	}
	c.counts(&m.shape)[i] -= count
	if i > 0 {
		c.inner -= count
	}
	if m.algorithm == SlidingLog {
		others := c.others(&m.shape)
		others[i] -= min(count, others[i])
	}
}

// forget records that counts of retired origins are forgotten.
func (t *Table) forget(c *cell, m *meterState, lost uint64) {
	switch {
	case m.algorithm.timed():
	case m.algorithm.bucket() || m.algorithm == Credit:
		c.raise(recreated) // the same slots may come again, and were debited or credited
	default:
		t.stats.forgotten.Add(lost)
		raise(&m.forgotten, lost)
	}
}
