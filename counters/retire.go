package counters

import (
	"cmp"
	"slices"
)

// When the numbers of origins run short, the table retires origins that are no members: those that are gone first, the
// least recently used ones first. It refuses their slots, forgets what they counted (Stats.OriginsRetired, Forgotten),
// and frees their numbers. An origin that was retired may come back: merges by max lose nothing.

// sweepParts is how many parts of a walk a drain searches for slots of retired origins.
const sweepParts = 32

// sweep is the search for slots of retired origins.
type sweep struct {
	left int // shards, the last ones
	walk walk
}

// retire marks origins that are no members as retired when fewer than half of the reserved numbers are free: so many
// that as many numbers as are reserved become free.
func (t *Table) retire() {
	ot := &t.origins
	ot.Lock()
	defer ot.Unlock()
	if ot.given < maxOrigins-reservedOrigins/2 || ot.sweep.left > 0 {
		return
	}
	free := maxOrigins
	for k := 1; k <= ot.given; k++ {
		if ot.holders[k].Load() > 0 {
			free--
		}
	}
	if free >= reservedOrigins/2 {
		return
	}
	var others []*originState
	for k := 1; k <= ot.given; k++ {
		if state := ot.state(uint16(k)); ot.holders[k].Load() > 0 && !state.member.Load() {
			others = append(others, state)
		}
	}
	slices.SortFunc(others, func(a, b *originState) int {
		return cmp.Or(a.mayCount()-b.mayCount(), int(int32(a.usedAt.Load()-b.usedAt.Load())))
	})
	others = others[:min(len(others), reservedOrigins-free)]
	for _, state := range others {
		state.retired.Store(true)
		state.watermark.Store(Gone)
	}
	ot.sweep = sweep{left: shards}
	t.stats.retired.Add(uint64(len(others)))
}

// mayCount is 0 for an origin that is gone, or that only others reported, and 1 for one that may count again.
func (o *originState) mayCount() int {
	if o.watermark.Load() == Gone || o.stranger.Load() {
		return 0
	}
	return 1
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
		return t.dropRetired(s, c, t.meters.state(c.number()))
	})
}

// swept frees the numbers of retired origins.
func (t *Table) swept() {
	ot := &t.origins
	ot.Lock()
	defer ot.Unlock()
	for k := 1; k <= ot.given; k++ {
		if ot.state(uint16(k)).retired.Swap(false) && ot.holders[k].Load() == 0 {
			delete(ot.numbers, ot.ids[k])
			ot.ids[k] = 0
		}
	}
}

// dropRetired frees the slots of retired origins and subtracts their counts: a bucket keeps what it debited. It returns
// the number of the cell's slots.
func (t *Table) dropRetired(s *shard, c *cell, m *meterState) (slots int) {
	lost := uint64(0)
	for link := &c.slots; *link != 0; slots++ {
		r := s.remote(*link)
		if !t.origins.state(r.origin()).retired.Load() {
			link = &r.next
			continue
		}
		s.subtract(c, m, r.age(c), r.count())
		lost += r.count()
		s.freeSlot(link)
	}
	if lost != 0 {
		t.forget(c, m, lost)
	}
	return slots
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
	case m.algorithm.bucket() || m.algorithm == credits:
		c.raise(recreated) // the same slots may come again, and were debited or credited
	default:
		t.stats.forgotten.Add(lost)
		raise(&m.forgotten, lost)
	}
}
