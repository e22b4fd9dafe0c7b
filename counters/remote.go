package counters

// remote is a slot of another origin in a cell's list, 16 bytes.
type remote struct {
	next uint32
	life uint32 // from the top: the marks, 30 bits of the birth
	what uint64 // from the top: 42 bits of count, the low 6 bits of the sub-window, 16 bits of the origin
}

const (
	remoteWords = 2
	originBits  = 16
	indexBits   = 6 // the slots of a cell lie in 62 sub-windows at most: 6 bits tell them apart
	countAt     = originBits + indexBits

	raisedMark = maxBirth + 1       // it rose since the last drain
	freshMark  = 2 * (maxBirth + 1) // and its origin had no other slot in the cell
)

// maxBirth is the maximum of Slot.Birth. Tables ignore the higher bits of a larger one.
const maxBirth = 1<<30 - 1

// MaxCount is the maximum of a remote slot. It is far above any limit, and far below where sums overflow.
const MaxCount = 1<<(64-countAt) - 1

// maxSlots is how many slots of others place passes: it caps the time of a merge. The largest cluster has fewer for a
// key in ten sub-windows.
const maxSlots = 1 << 14

// maxBirths is how many births of one cell a table accepts from an origin in a sub-window. An honest origin has another
// birth only after it evicted the cell.
const maxBirths = 64

func (r *remote) count() uint64  { return r.what >> countAt }
func (r *remote) origin() uint16 { return uint16(r.what) }
func (r *remote) birth() uint32  { return r.life & maxBirth }

func (r *remote) has(mark uint32) bool { return r.life&mark != 0 }
func (r *remote) mark(mark uint32)     { r.life |= mark }
func (r *remote) unmark()              { r.life &= maxBirth }

// lower subtracts from the count.
func (r *remote) lower(by uint64) { r.what -= by << countAt }

// age is the number of sub-windows from the slot to the one after the cell's time: 0 for a slot that is ahead of the
// cell, 1 for the newest place of the ring.
func (r *remote) age(c *cell) uint64 {
	return (uint64(c.index+1) - r.what>>originBits) & (1<<indexBits - 1)
}

// set sets all but the marks.
func (r *remote) set(origin uint16, birth uint32, index int64, count uint64) {
	r.life = r.life&^maxBirth | birth
	r.what = count<<countAt | uint64(index)&(1<<indexBits-1)<<originBits | uint64(origin)
}

// place finds the slot of an origin and birth in a sub-window: its ref, or 0 and the link where it belongs. full means
// that the cell accepts no more such slots.
func (s *shard) place(c *cell, origin uint16, birth uint32, index int64) (ref uint32, link *uint32, full bool) {
	age := uint64(c.index + 1 - index)
	link = &c.slots
	for passed, births := 1, 0; *link != 0; passed++ {
		r := s.memory.remote(*link)
		a := r.age(c)
		if a > age {
			break
		}
		if a == age && r.origin() == origin {
			if r.birth() == birth {
				return *link, link, false
			}
			births++
		}
		if passed == maxSlots || births == maxBirths {
			return 0, nil, true
		}
		link = &r.next
	}
	return 0, link, false
}

// dropSlots frees the slots that leave the window when the cell moves on by so many sub-windows.
func (s *shard) dropSlots(c *cell, sh *shape, by int64) {
	link := &c.slots
	for *link != 0 {
		r := s.memory.remote(*link)
		if int64(r.age(c))+by > int64(sh.n+1) {
			break
		}
		link = &r.next
	}
	for *link != 0 {
		s.freeSlot(link)
	}
}

// freeSlot frees the slot that a link leads to, and links the next one in its place.
func (s *shard) freeSlot(link *uint32) {
	origin := s.memory.remote(*link).origin()
	if s.strangers > 0 && s.origins.state(origin).stranger.Load() {
		s.strangers-- // a stranger that became a member since keeps its part of the share
	}
	s.origins.holders[origin].Add(-1)
	s.pop(link)
}
