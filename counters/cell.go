package counters

import (
	"math"
	"slices"
	"unsafe"

	"github.com/edgelimit/edgelimit/counters/internal/window"
)

// cell is the head of what a table keeps of one meter and key. The words of its algorithm, if any, and its ring follow
// in the same block. The ring has the counts of all origins together by sub-window, the oldest first.
//
// The counts of other origins also lie in a list of slots, so that a key which only this table counts needs none. The
// ring less those slots is this table's own count. A peer's clock may be ahead: slots of the next sub-window enter the
// ring when that sub-window begins, so that no window is longer than it should be.
type cell struct {
	key        Key
	index      int64  // the cell's time: the last sub-window of the ring
	inner      uint64 // sum of the ring without its oldest place, which leaves the window
	birth      uint32
	used       uint32 // when a request or a remote count last came, see usedAt
	slots      uint32 // list of remote slots, the newest sub-window first
	offered    uint32 // cost asked for since the last drain, admitted or not
	next, prev uint32 // in the list of cells to drain
	hotKey     uint32 // demand for the key; 0 for most cells
	meter      uint16 // upper bits of the number of its meter, see number; never 0
	packed     uint8  // the lower meterBits of that number, and above them changed
	flags
}

const (
	// meterBits are the bits of a meter's number in packed. The others hold changed, up to maxSubWindows + 1.
	meterBits = 2
	lowMeter  = 1<<meterBits - 1
)

// number is the number of the cell's meter. The cell holds it plus lowMeter, so that the upper bits are never 0: they
// tell a cell from a free block and from a hotKey.
func (c *cell) number() uint32 {
	return uint32(c.meter)<<meterBits + uint32(c.packed&lowMeter) - lowMeter
}

func (c *cell) setNumber(number uint32) {
	number += lowMeter
	c.meter, c.packed = uint16(number>>meterBits), c.packed&^lowMeter|uint8(number&lowMeter)
}

// changed is the number of sub-windows, back from index, that may have changed since the last drain.
func (c *cell) changed() int { return int(c.packed >> meterBits) }

func (c *cell) setChanged(n int) { c.packed = uint8(n)<<meterBits | c.packed&lowMeter }

// noteChange notes that the current sub-window has changed.
func (c *cell) noteChange() {
	if c.packed>>meterBits == 0 {
		c.packed |= 1 << meterBits
	}
}

type flags uint8

const (
	dirty        flags = 1 << iota // in the list of cells to drain
	denied                         // the last decision was a denial: evicted last
	pinned                         // in use by the request under way: not evicted
	recreated                      // peers may send again what an evicted cell of the same key had received
	pendingDebit                   // a bucket with counts that no limit was known for: they are not debited yet
	flushEarly                     // at the front of the list of cells to drain
	local                          // this table was asked for the key; otherwise only peers count in the cell
	judged                         // judge has looked at the denial, or one before it in the current sub-window
)

func (f *flags) has(one flags) bool { return *f&one != 0 }
func (f *flags) raise(one flags)    { *f |= one }
func (f *flags) lower(one flags)    { *f &^= one }

func (f *flags) put(one flags, up bool) {
	*f &^= one
	if up {
		*f |= one
	}
}

// addTo adds a cost, up to the maximum of 32 bits.
func addTo(sum *uint32, cost uint64) { *sum = uint32(min(uint64(*sum)+cost, math.MaxUint32)) }

// All numbers of meters, and all of changed, have room.
var _ [1<<(8-meterBits) - 1 - (maxSubWindows + 1)]byte

const headWords = int(unsafe.Sizeof(cell{}) / wordBytes)

// usedAt is a time in units of 2^26 ns, 67 ms: 32 bits last for nine years.
func usedAt(now int64) uint32 { return uint32(now >> 26) }

func (c *cell) words(at, n int) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Add(unsafe.Pointer(c), at*wordBytes)), n)
}

// word is the word of a cell at a position.
func (c *cell) word(at int) *uint64 { return (*uint64)(unsafe.Add(unsafe.Pointer(c), at*wordBytes)) }

func (c *cell) counts(sh *shape) []uint64 { return c.words(sh.ring, sh.size()) }

// instant is the time of a decision, relative to its cell.
type instant struct {
	off  int64 // nanoseconds into the sub-window of the cell's time
	back int64 // nanoseconds by which the clock is behind the cell's time: waits are longer by it
}

// settle moves the cell to the time now. If the clock stepped back to an earlier sub-window, the cell stays where it
// is. If the clock stepped back by more than the window, the cell's counts are of no use: ok is false, and the caller
// replaces the cell.
func (s *shard) settle(c *cell, sh *shape, now int64) (at instant, ok bool) {
	off := now - c.index*sh.sub
	if off < 0 {
		return instant{back: -off}, -off <= int64(sh.n)*sh.sub
	}
	if off >= sh.sub {
		index := now / sh.sub
		s.advance(c, sh, index)
		off = now - index*sh.sub
	}
	return instant{off: off}, true
}

// advance moves the cell to a later sub-window and drops what leaves the window.
func (s *shard) advance(c *cell, sh *shape, index int64) {
	by := index - c.index
	s.dropSlots(c, sh, by)
	c.index = index
	if !c.has(denied) {
		c.lower(judged)
	}
	ring := c.counts(sh)
	if c.hotKey != 0 {
		s.memory.hotKey(c.hotKey).leave(ring, by)
	}
	shift(ring, by)
	if n := c.changed(); n > 0 {
		c.setChanged(int(min(int64(n)+by, int64(sh.n+1))))
	}
	switch {
	case sh.algorithm.bucket():
		c.level().Elapse(uint64(by), uint64(sh.sub)<<sh.fraction)
	case sh.algorithm == SlidingLog:
		shift(c.others(sh), by)
	}
	if count := s.newest(c, by); count > 0 { // the slots that were ahead of the cell's time
		i := sh.n + 1 - int(by)
		ring[i] += count
		if sh.algorithm == SlidingLog {
			c.others(sh)[i] += count
		}
	}
	c.inner = 0
	for _, n := range ring[1:] {
		c.inner += n
	}
}

// ahead is the count of others in the sub-window after the cell's time.
func (s *shard) ahead(c *cell) uint64 { return s.newest(c, 0) }

// newest is the sum of the newest slots if they have the given age, else 0.
func (s *shard) newest(c *cell, age int64) (sum uint64) {
	for ref := c.slots; ref != 0; {
		r := s.remote(ref)
		if int64(r.age(c)) != age {
			break
		}
		sum += r.count()
		ref = r.next
	}
	return sum
}

// own appends this table's own counts in the newest n places of the ring to dst, which is empty.
func (s *shard) own(dst []uint64, c *cell, sh *shape, n int) []uint64 {
	ring := c.counts(sh)
	own := append(dst, ring[len(ring)-n:]...)
	for ref := c.slots; ref != 0; {
		r := s.remote(ref)
		age := int(r.age(c))
		if age > n {
			break
		}
		if age > 0 {
			own[n-age] -= r.count()
		}
		ref = r.next
	}
	return own
}

// ownSum is the sum of this table's own counts in the sub-windows that are completely in the window.
func (s *shard) ownSum(c *cell, sh *shape) (sum uint64) {
	var room [maxSubWindows + 1]uint64
	for _, count := range s.own(room[:0], c, sh, sh.n) {
		sum += count
	}
	return sum
}

// shift moves a ring on by so many sub-windows.
func shift(ring []uint64, by int64) {
	if by >= int64(len(ring)) {
		clear(ring)
		return
	}
	kept := copy(ring, ring[by:])
	clear(ring[kept:])
}

// count adds an admitted cost to the current sub-window of the cell's ring.
func (c *cell) count(ring []uint64, cost uint64) {
	ring[len(ring)-1] += cost
	c.inner += cost
	c.noteChange()
}

// lastCounted is the end of the newest sub-window with a count, 0 if there is none.
func (c *cell) lastCounted(sh *shape) int64 {
	ring := c.counts(sh)
	i := window.Newest(ring)
	if ring[i] == 0 {
		return 0
	}
	return (c.index + int64(i-sh.n) + 1) * sh.sub
}

// empty reports whether the cell counts nothing, now or later. A bucket is empty once it has been full for so long that
// no merge reaches back to a time before, a ban or lift once it has ended, which is later than when it leaves the ring
// if it is of a clock that was ahead.
func (c *cell) empty(sh *shape) bool {
	switch {
	case c.slots != 0 || slices.Max(c.counts(sh)) != 0:
		return false
	case sh.algorithm.bucket():
		return c.level().Forgotten()
	case sh.algorithm.timed():
		return c.ends(sh) <= c.index*sh.sub
	}
	return true
}
