package counters

import (
	"math"
	"sync/atomic"
)

// Slots name origins by number. A peer can name any number of origins in its snapshots, so who gets a number depends on
// membership (SetMember):
//
//	members   may take any number
//	sums      of owners (owners.go): the caller of Merge knows their names. maxSums of the numbers. The sums of all
//	          partitions over the same nodes have one number, as a cell is in one partition: see Sum
//	others    ended boots, and origins that a peer made up. They may take all but the last quarter of the numbers,
//	          at most a quarter for each member that names them. Senders that are no members share one such quarter
//
// An ended boot keeps its number while its slots count. With long windows and many boots the numbers run short. Then
// the table retires origins that are no members and forgets what they counted (retire.go).
const (
	// maxOrigins is the number of origins that a table knows at a time: boots of nodes with slots that still count.
	maxOrigins = 1<<originBits - 1
	// reservedOrigins are the numbers for members alone, and maxNamed those that one member may name.
	reservedOrigins = maxOrigins / 4
	maxNamed        = maxOrigins / 4
	// maxSums are the numbers that sums may take: one for each region, and one for each sum that an owner sends down.
	maxSums = maxOrigins / 8
	// recountAfter is the shortest time between two counts of the numbers in use, in nanoseconds.
	recountAfter = 100e6
	// Strangers' slots may take 1/strangerShare of a shard's memory: forged origins can report keys that this table is
	// asked for.
	strangerShare = 4
	// strangers stands for all senders that are no members: they may take any name.
	strangers = math.MaxUint64
	// summers stands for all senders of sums.
	summers = math.MaxUint64 - 1
)

type originState struct {
	watermark atomic.Int64                  // see Table.SetWatermark
	sums      atomic.Pointer[sumWatermarks] // of sums, in its place: see Table.SetSumWatermarks
	namedBy   uint64                        // the sender that named the origin first
	usedAt    atomic.Uint32                 // when one of its slots last came, see usedAt
	retired   atomic.Bool                   // its slots are to go
	member    atomic.Bool
	stranger  atomic.Bool // named by a peer while it was no member
	place     atomic.Uint32
	share     uint16 // its position in Table.sums.shares, plus 1; 0: it has none
}

// originStates are the states of numbers with the same high byte. A table makes them when it gives the first of these.
type originStates [256]originState

// originTable numbers the origins of slots. The lock of the registry guards it.
type originTable struct {
	registry
	states  [256]*originStates // by the high byte of the number, see state
	members map[uint64]bool
	summed  atomic.Bool // there are numbers of sums

	left      int            // numbers that origins other than members may still take
	named     map[uint64]int // by sender: used numbers that it named
	countedAt int64          // when left and named were counted

	sweep sweep // guarded by Table.drain
}

func newOriginTable() originTable {
	return originTable{registry: newRegistry(maxOrigins), states: [256]*originStates{{}},
		members: make(map[uint64]bool), left: maxOrigins - reservedOrigins, named: make(map[uint64]int)}
}

// known returns the number of an id, 0 if it has none.
func (ot *originTable) known(id uint64) uint16 { return uint16(ot.numbers[id]) }

// state returns the state of a number that was given, or of 0. A holder of the number needs no lock.
func (ot *originTable) state(number uint16) *originState {
	return &ot.states[number/256][number%256]
}

// sumWatermarks are the watermarks of the sums over the same nodes, by partition: 0 before the first slot came.
type sumWatermarks [Partitions]atomic.Int64

// nameOf is the name under which an origin at a place has its number.
func nameOf(o Origin, p Place) uint64 {
	if p.isSum() {
		sum, _ := o.Sum()
		return uint64(sum)
	}
	return uint64(o)
}

// originOf is the origin that a number is in a cell.
func (ot *originTable) originOf(number uint16, c *cell) Origin {
	id := Origin(ot.ids[number])
	if ot.state(number).sums.Load() != nil {
		id |= Origin(c.key.Partition())
	}
	return id
}

// watermarkOf is the watermark of an origin in a cell.
func (ot *originTable) watermarkOf(number uint16, c *cell) int64 {
	state := ot.state(number)
	if sums := state.sums.Load(); sums != nil {
		return sums[c.key.Partition()].Load()
	}
	return state.watermark.Load()
}

// hasSlotFor reports whether the shard may hold one more slot of an origin.
func (s *shard) hasSlotFor(origin uint16) bool {
	return !s.origins.state(origin).stranger.Load() ||
		(s.strangers+1)*remoteWords <= len(s.pages)*pageWords/strangerShare
}

// SetMember sets whether the origin is a member of the cluster. Members always find room for their counts.
func (t *Table) SetMember(o Origin, member bool) {
	ot := &t.origins
	ot.Lock()
	defer ot.Unlock()
	k := ot.known(uint64(o))
	ot.state(k).member.Store(member && k != 0)
	if !member {
		delete(ot.members, uint64(o))
		return
	}
	ot.members[uint64(o)] = true
	ot.state(k).retired.Store(false)
	ot.state(k).stranger.Store(false)
}

// SetPlace sets where an origin counts of which slots came while that was unknown.
func (t *Table) SetPlace(o Origin, p Place) {
	t.origins.RLock()
	defer t.origins.RUnlock()
	if k := t.origins.known(uint64(o)); k != 0 {
		t.origins.state(k).place.CompareAndSwap(uint32(unplaced), uint32(p))
	}
}

// number returns the number of an origin that a sender reports, 0 if it gets none. The caller holds the lock.
func (ot *originTable) number(o, sender Origin, place Place, now int64) uint16 {
	id, by := nameOf(o, place), uint64(sender)
	if k := ot.known(id); k != 0 {
		return k
	}
	member := ot.members[id]
	switch {
	case place.isSum():
		by = summers
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
	k := uint16(ot.register(id, 0))
	if k == 0 {
		return 0
	}
	if part := &ot.states[k/256]; *part == nil {
		*part = new(originStates)
	}
	state := ot.state(k)
	state.namedBy = by
	state.member.Store(member || by == summers) // sums are not retired
	state.stranger.Store(!member && by != 0 && by != summers)
	state.place.Store(uint32(place))
	state.sums.Store(nil)
	state.watermark.Store(now)
	switch {
	case by == summers:
		state.sums.Store(new(sumWatermarks))
		ot.summed.Store(true)
		ot.named[by]++
	case !member:
		ot.named[by]++
		ot.left--
	}
	return k
}

// exhausted reports whether a sender that is no member, or of sums, may name no more origins.
func (ot *originTable) exhausted(by uint64) bool {
	if by == summers {
		return ot.named[by] >= maxSums
	}
	return ot.left <= 0 || ot.named[by] >= maxNamed
}

func (ot *originTable) recount(now int64) {
	clear(ot.named)
	ot.left, ot.countedAt = maxOrigins-reservedOrigins, now
	for k := 1; k <= ot.given; k++ {
		if ot.holders[k].Load() > 0 {
			ot.left--
			if state := ot.state(uint16(k)); !state.member.Load() || state.namedBy == summers {
				ot.named[state.namedBy]++
			}
		}
	}
}
