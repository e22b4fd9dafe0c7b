package counters

import (
	"math"
	"slices"
	"sync/atomic"
)

// Slots refer to origins by numbers, of which there are maxOrigins. A peer can name any number of origins in its
// snapshots, so numbers are given by standing:
//
//	members       nodes that are in the membership (SetMember): any number
//	others        boots that are over, and what may be made up: all but the last quarter of the numbers, and
//	              at most a quarter for each member that names them; those who are no members, and speak for
//	              themselves or for others, share one such quarter
//
// Boots that are over keep their numbers as long as their slots count. Where windows are long and boots many, numbers
// run short: then those of origins that are no members are retired, the one of which nothing came for longest first,
// and what they counted is forgotten (Stats.OriginsRetired, Forgotten). A retired origin that comes back as a member,
// or is named again once numbers abound, is learned anew: merges by max lose nothing.
const (
	// maxOrigins is how many origins a table knows at a time: boots of nodes of which slots still count.
	maxOrigins = 1<<13 - 1
	// reservedOrigins are for members alone, and maxNamed for what one member names.
	reservedOrigins = maxOrigins / 4
	maxNamed        = maxOrigins / 4
	// recountAfter is how long a refusal stands before numbers in use are counted again, in nanoseconds.
	recountAfter = 100e6
)

// strangerShare is the part of a shard's memory, one fourth, that slots of origins take up which peers named and which
// were no members then: forged origins can report keys that this table is asked for.
const strangerShare = 4

// hasSlotFor reports whether an origin may have one more slot in the shard, as far as its standing goes.
func (s *shard) hasSlotFor(origin uint16) bool {
	return !s.origins.stranger[origin].Load() || (s.strangers+1)*remoteWords <= len(s.pages)*pageWords/strangerShare
}

// countSlot notes that it has one.
func (s *shard) countSlot(origin uint16) {
	if s.origins.stranger[origin].Load() {
		s.strangers++
	}
}

// freeSlot frees a slot.
func (s *shard) freeSlot(ref uint32) {
	origin := s.memory.remote(ref).origin()
	if s.strangers > 0 && s.origins.stranger[origin].Load() {
		s.strangers-- // or it has become a member since: the share is a little larger then
	}
	s.origins.holders[origin].Add(-1)
	s.memory.free(ref)
}

// strangers is the sender that all share who are no members: they may take any name.
const strangers = math.MaxUint64

// originTable numbers the origins of slots. Its lock is the registry's.
type originTable struct {
	registry
	members  map[uint64]bool
	namedBy  []uint64        // by number: the sender that named the origin first
	usedAt   []atomic.Uint32 // by number: when a slot of it came last, see usedAt
	retired  []atomic.Bool   // by number: its slots are to go
	isMember []atomic.Bool   // by number

	stranger []atomic.Bool // by number: a peer named it when it was no member

	left      int            // numbers that others than members may still take
	named     map[uint64]int // by sender: numbers in use that it named
	countedAt int64          // when the two were counted

	sweeping  bool // some are retired: guarded by Table.drain, as the next
	sweepLeft int  // so many shards are to be looked at for their slots
}

func newOriginTable() originTable {
	return originTable{
		registry: newRegistry(maxOrigins), members: make(map[uint64]bool),
		named: make(map[uint64]int), left: maxOrigins - reservedOrigins,
		namedBy: make([]uint64, maxOrigins+1), usedAt: make([]atomic.Uint32, maxOrigins+1),
		retired:  make([]atomic.Bool, maxOrigins+1),
		isMember: make([]atomic.Bool, maxOrigins+1), stranger: make([]atomic.Bool, maxOrigins+1),
	}
}

// SetMember says whether the origin is in the membership now. Members always find room for their counts among the
// origins.
func (t *Table) SetMember(o Origin, member bool) {
	ot := &t.origins
	ot.Lock()
	defer ot.Unlock()
	k := ot.numbers[uint64(o)]
	ot.isMember[k].Store(member && k != 0)
	if !member {
		delete(ot.members, uint64(o))
		return
	}
	ot.members[uint64(o)] = true
	ot.retired[k].Store(false)
	ot.stranger[k].Store(false)
}

// number returns the number of an origin that a sender reports, 0 if it may have none. The caller holds the lock.
func (ot *originTable) number(o, sender Origin, now int64) uint16 {
	id, by := uint64(o), uint64(sender)
	if k := ot.numbers[id]; k != 0 {
		return k
	}
	if ot.members[id] {
		k := ot.register(id, 0)
		ot.namedBy[k] = id
		ot.isMember[k].Store(k != 0)
		ot.stranger[k].Store(false)
		return k
	}
	if by != 0 && !ot.members[by] {
		by = strangers
	}
	if ot.left <= 0 || ot.named[by] >= maxNamed {
		if since := now - ot.countedAt; since >= 0 && since < recountAfter {
			return 0
		}
		if ot.recount(now); ot.left <= 0 || ot.named[by] >= maxNamed {
			return 0
		}
	}
	k := ot.register(id, 0)
	if k != 0 {
		ot.isMember[k].Store(false)
		ot.stranger[k].Store(by != 0)
		ot.namedBy[k] = by
		ot.named[by]++
		ot.left--
	}
	return k
}

// recount counts which numbers are in use.
func (ot *originTable) recount(now int64) {
	clear(ot.named)
	ot.left, ot.countedAt = maxOrigins-reservedOrigins, now
	for k := 1; k <= ot.given; k++ {
		if ot.holders[k].Load() > 0 {
			ot.left--
			if !ot.members[ot.ids[k]] {
				ot.named[ot.namedBy[k]]++
			}
		}
	}
}

// retire marks origins that are no members where fewer than half of the reserved numbers are free, until all of them
// would be.
func (t *Table) retire() {
	ot := &t.origins
	ot.Lock()
	defer ot.Unlock()
	if ot.given < maxOrigins-reservedOrigins/2 || ot.sweeping {
		return
	}
	free := maxOrigins - ot.given
	var others []uint16
	for k := 1; k <= ot.given; k++ {
		switch {
		case ot.holders[k].Load() == 0:
			free++
		case !ot.members[ot.ids[k]]:
			others = append(others, uint16(k))
		}
	}
	if free >= reservedOrigins/2 || len(others) == 0 {
		return
	}
	slices.SortFunc(others, func(a, b uint16) int { return int(int32(ot.usedAt[a].Load() - ot.usedAt[b].Load())) })
	for _, k := range others[:min(len(others), reservedOrigins-free)] {
		ot.retired[k].Store(true)
		t.watermarks[k].Store(Gone)
	}
	ot.sweeping, ot.sweepLeft = true, shards+1 // the one of now again, to its end
	t.stats.retired.Add(uint64(min(len(others), reservedOrigins-free)))
}

// swept notes that the cells of one more shard have been looked at. After the last, numbers that nothing refers to any
// more are given to others.
func (t *Table) swept() {
	ot := &t.origins
	if ot.sweepLeft--; ot.sweepLeft > 0 {
		return
	}
	ot.Lock()
	defer ot.Unlock()
	ot.sweeping = false
	for k := range ot.retired {
		if ot.retired[k].Swap(false) && ot.holders[k].Load() == 0 {
			delete(ot.numbers, ot.ids[k])
			ot.ids[k] = 0
		}
	}
}

// dropRetired frees the slots of retired origins, and takes what they counted off. A bucket keeps what was debited.
func (t *Table) dropRetired(s *shard, c *cell, m *meterState) {
	var lost uint64
	ring := c.counts(&m.shape)
	for link := &c.slots; *link != 0; {
		r := s.remote(*link)
		if !t.origins.retired[r.origin()].Load() {
			link = &r.next
			continue
		}
		if i := m.n + 1 - int(r.age(c)); i <= m.n {
			ring[i] -= r.count()
			if i > 0 {
				c.inner -= r.count()
			}
			if m.algorithm == SlidingLog {
				c.others(&m.shape)[i] -= min(r.count(), c.others(&m.shape)[i])
			}
		}
		lost += r.count()
		next := r.next
		s.freeSlot(*link)
		*link = next
	}
	if lost == 0 || !m.algorithm.Counts() {
		return
	}
	if m.algorithm.bucket() {
		c.raise(recreated) // what comes of them again was debited
		return
	}
	t.stats.forgotten.Add(lost)
	m.noteForgotten(lost)
}
