package counters

import (
	"math"
	"slices"
	"sync/atomic"
)

// Slots name origins by number. A peer can name any number of origins in its snapshots, so who gets a number depends on
// membership (SetMember):
//
//	members   may take any number
//	others    ended boots, and origins that a peer made up. They may take all but the last quarter of the numbers,
//	          at most a quarter for each member that names them. Senders that are no members share one such quarter
//
// An ended boot keeps its number while its slots count. With long windows and many boots the numbers run short. Then
// the table retires origins that are no members, least recently used first, and forgets what they counted
// (Stats.OriginsRetired, Forgotten). A retired origin may come back: merges by max lose nothing.
const (
	// maxOrigins is the number of origins that a table knows at a time: boots of nodes with slots that still count.
	maxOrigins = 1<<13 - 1
	// reservedOrigins are the numbers for members alone, and maxNamed those that one member may name.
	reservedOrigins = maxOrigins / 4
	maxNamed        = maxOrigins / 4
	// recountAfter is the shortest time between two counts of the numbers in use, in nanoseconds.
	recountAfter = 100e6
	// Strangers' slots may take 1/strangerShare of a shard's memory: forged origins can report keys that this table is
	// asked for.
	strangerShare = 4
	// strangers stands for all senders that are no members: they may take any name.
	strangers = math.MaxUint64
)

type originState struct {
	watermark atomic.Int64  // see Table.SetWatermark
	usedAt    atomic.Uint32 // when one of its slots last came, see usedAt
	retired   atomic.Bool   // its slots are to go
	member    atomic.Bool
	stranger  atomic.Bool // named by a peer while it was no member
	namedBy   uint64      // the sender that named the origin first
}

// originTable numbers the origins of slots. The lock of the registry guards it.
type originTable struct {
	registry
	states  []originState // by number
	members map[uint64]bool

	left      int            // numbers that origins other than members may still take
	named     map[uint64]int // by sender: used numbers that it named
	countedAt int64          // when left and named were counted

	// Guarded by Table.drain:
	sweeping  bool // some origins are retired
	sweepLeft int  // shards that still have to be searched for their slots
}

func newOriginTable() originTable {
	return originTable{registry: newRegistry(maxOrigins), states: make([]originState, maxOrigins+1),
		members: make(map[uint64]bool), left: maxOrigins - reservedOrigins, named: make(map[uint64]int)}
}

// hasSlotFor reports whether the shard may hold one more slot of an origin.
func (s *shard) hasSlotFor(origin uint16) bool {
	return !s.origins.states[origin].stranger.Load() ||
		(s.strangers+1)*remoteWords <= len(s.pages)*pageWords/strangerShare
}

// SetMember sets whether the origin is a member of the cluster. Members always find room for their counts.
func (t *Table) SetMember(o Origin, member bool) {
	ot := &t.origins
	ot.Lock()
	defer ot.Unlock()
	k := ot.numbers[uint64(o)]
	ot.states[k].member.Store(member && k != 0)
	if !member {
		delete(ot.members, uint64(o))
		return
	}
	ot.members[uint64(o)] = true
	ot.states[k].retired.Store(false)
	ot.states[k].stranger.Store(false)
}

// number returns the number of an origin that a sender reports, 0 if it gets none. The caller holds the lock.
func (ot *originTable) number(o, sender Origin, now int64) uint16 {
	id, by := uint64(o), uint64(sender)
	if k := ot.numbers[id]; k != 0 {
		return k
	}
	member := ot.members[id]
	switch {
	case member:
		by = id
	case by != 0 && !ot.members[by]:
		by = strangers
	}
	if !member && ot.exhausted(by) {
		if since := now - ot.countedAt; since < 0 || since >= recountAfter {
			ot.recount(now)
		}
		if ot.exhausted(by) {
			return 0
		}
	}
	k := ot.register(id, 0)
	if k == 0 {
		return 0
	}
	state := &ot.states[k]
	state.namedBy = by
	state.member.Store(member)
	state.stranger.Store(!member && by != 0)
	if !member {
		ot.named[by]++
		ot.left--
	}
	return k
}

func (ot *originTable) exhausted(by uint64) bool { return ot.left <= 0 || ot.named[by] >= maxNamed }

func (ot *originTable) recount(now int64) {
	clear(ot.named)
	ot.left, ot.countedAt = maxOrigins-reservedOrigins, now
	for k := 1; k <= ot.given; k++ {
		if ot.holders[k].Load() > 0 {
			ot.left--
			if !ot.members[ot.ids[k]] {
				ot.named[ot.states[k].namedBy]++
			}
		}
	}
}

// retire marks origins that are no members as retired when fewer than half of the reserved numbers are free: so many
// that as many numbers as are reserved become free.
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
	slices.SortFunc(others, func(a, b uint16) int {
		return int(int32(ot.states[a].usedAt.Load() - ot.states[b].usedAt.Load()))
	})
	others = others[:min(len(others), reservedOrigins-free)]
	for _, k := range others {
		ot.states[k].retired.Store(true)
		ot.states[k].watermark.Store(Gone)
	}
	ot.sweeping, ot.sweepLeft = true, shards+1 // the current shard comes again at the end
	t.stats.retired.Add(uint64(len(others)))
}

// swept records that one more shard has been searched. After the last one, retired numbers without holders are free.
func (t *Table) swept() {
	ot := &t.origins
	if ot.sweepLeft--; ot.sweepLeft > 0 {
		return
	}
	ot.Lock()
	defer ot.Unlock()
	ot.sweeping = false
	for k := range ot.states {
		if ot.states[k].retired.Swap(false) && ot.holders[k].Load() == 0 {
			delete(ot.numbers, ot.ids[k])
			ot.ids[k] = 0
		}
	}
}

// dropRetired frees the slots of retired origins and subtracts their counts. A bucket keeps what it debited.
func (t *Table) dropRetired(s *shard, c *cell, m *meterState) {
	var lost uint64
	ring := c.counts(&m.shape)
	for link := &c.slots; *link != 0; {
		r := s.remote(*link)
		if !t.origins.states[r.origin()].retired.Load() {
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
		s.freeSlot(link)
	}
	if lost == 0 || m.algorithm.timed() {
		return
	}
	if m.algorithm.bucket() || m.algorithm == Credit {
		c.raise(recreated) // the same slots may come again, and were debited or credited
		return
	}
	t.stats.forgotten.Add(lost)
	raise(&m.forgotten, lost)
}
