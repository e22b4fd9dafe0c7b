package counters

// remote is a slot of another origin as a cell keeps it: 16 bytes in a list, the newest sub-window first. Merges nearly
// always bring counts of the newest two.
type remote struct {
	next  uint32
	birth uint32
	what  uint64 // from the top: 42 bits of count, the sub-window's last 6 bits, the 16 bits of the origin's number
}

const (
	originBits = 16
	indexBits  = 6 // the slots of a cell lie in at most 62 sub-windows: so many tell them apart
)

// MaxCount is the most that a remote slot is taken to count: no sum of slots overflows, and no limit comes near it.
const MaxCount = 1<<(64-originBits-indexBits) - 1

// maxSlots is how many slots of others a merge passes to find its own. It caps the time that a peer can make it take,
// and is above what the largest cluster tells of a key in ten sub-windows.
const maxSlots = 1 << 14

// maxBirths is how many births of a cell in a sub-window are believed of an origin. An honest one has another only when
// the cell was evicted, so that it admitted by less than others know: what more of them tell is no more than was
// forgotten there.
const maxBirths = 64

const remoteWords = 2

func (r *remote) count() uint64  { return r.what >> (originBits + indexBits) }
func (r *remote) origin() uint16 { return uint16(r.what) }

// age is how many sub-windows the slot lies before the one after the cell's time.
func (r *remote) age(c *cell) uint64 {
	return (uint64(c.index+1) - r.what>>originBits) & (1<<indexBits - 1)
}

// set makes it the slot of an origin, known by its number, in a sub-window.
func (r *remote) set(origin uint16, birth uint32, index int64, count uint64) {
	r.birth = birth
	r.what = count<<(originBits+indexBits) | uint64(index)&(1<<indexBits-1)<<originBits | uint64(origin)
}

// place finds the slot of an origin and birth in the sub-window index of the cell's ring: its ref, or 0 and the link
// that it belongs behind. It is not to be had (full) where too many others lie before it.
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
			if r.birth == birth {
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

// dropSlots frees the slots that will have left the window when the cell moves on by so many sub-windows.
func (s *shard) dropSlots(c *cell, sh *shape, by int64) {
	link := &c.slots
	for *link != 0 {
		r := s.memory.remote(*link)
		if int64(r.age(c))+by > int64(sh.n+1) {
			break
		}
		link = &r.next
	}
	for ref := *link; ref != 0; {
		next := s.memory.remote(ref).next
		s.freeSlot(ref)
		ref = next
	}
	*link = 0
}
