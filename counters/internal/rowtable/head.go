package rowtable

import (
	"unsafe"

	"github.com/edgelimit/edgelimit/counters/internal/rows"
)

// head is the line that a request needs. The package comment has its layout.
type head struct {
	key    uint64
	name   uint64 // the rest: count of the newest sub-window
	when   uint64 // newest sub-window 42 bits, birth 10, generation 8
	state  uint64 // offered 32, flags 14, changed 6, age 6
	full   uint64 // until when there is no room for a cost of 1 48, of which limit 16; see setFull
	middle uint32 // sum of the places but the first
	places [narrow]uint16
}

// wideHead is a head whose places are in wide lines.
type wideHead struct {
	_       [5]uint64
	leaving uint64
	middle  uint64
	_       uint64
}

// The compiler holds that both are lines.
var (
	_ [0]struct{} = [unsafe.Sizeof(head{}) - unsafe.Sizeof(rows.Line{})]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(wideHead{}) - unsafe.Sizeof(rows.Line{})]struct{}{}
)

const (
	// narrow is how many sub-windows before the newest a head has places for, of 16 bits each.
	narrow   = 10
	maxPlace = 1<<16 - 1

	countAt = 64 - rows.RestBits // of name

	subBits      = 42 // of when
	birthBits    = 10 // rows know no more of one
	generationAt = subBits + birthBits

	flagsAt   = 32 // of state
	changedAt = 46
	ageAt     = 52
	six       = 1<<6 - 1
)

type flags uint64

// The flags of a head.
const (
	slotsForm    flags = 1 << (flagsAt + iota) // others count in the line of slots
	blocksForm                                 // others count in blocks
	wide                                       // the places are in wide lines
	ahead                                      // others count in the sub-window after the newest
	denied                                     // the last decision was a denial: evicted last
	local                                      // this table was asked for the key; otherwise only others count
	rowsForm                                   // with slotsForm: the slots say whose rows there are
	pinned                                     // in use by the request under way: not evicted
	pendingDebit                               // a bucket with counts that no limit was known for: not debited yet
	gaveBack                                   // a queue with freed time, in a line of its own
	hot                                        // near its limit, see hotkey.go
	flushEarly                                 // to be drained early
	summed                                     // with blocksForm: it got sums, see sums.go
	judged                                     // a denial in the newest sub-window was looked at, see denier.go
)

func headOf(l *rows.Line) *head { return (*head)(unsafe.Pointer(l)) }

func (c *head) line() *rows.Line { return (*rows.Line)(unsafe.Pointer(c)) }
func (c *head) wide() *wideHead  { return (*wideHead)(unsafe.Pointer(c)) }

func (c *head) newest() uint64   { return c.name >> countAt }
func (c *head) sub() int64       { return int64(c.when & (1<<subBits - 1)) }
func (c *head) birth() uint32    { return uint32(c.when>>subBits) & maxBirth }
func (c *head) offered() uint32  { return uint32(c.state) }
func (c *head) has(f flags) bool { return c.state&uint64(f) != 0 }
func (c *head) raise(f flags)    { c.state |= uint64(f) }
func (c *head) lower(f flags)    { c.state &^= uint64(f) }
func (c *head) put(f flags, up bool) {
	if c.lower(f); up {
		c.raise(f)
	}
}
func (c *head) changed() int { return int(c.state >> changedAt & six) }
func (c *head) age() int     { return int(c.state >> ageAt & six) }

func (c *head) setNewest(n uint64) { c.name = c.name&(1<<countAt-1) | n<<countAt }
func (c *head) setSub(sub int64)   { c.when = c.when&^(1<<subBits-1) | uint64(sub)&(1<<subBits-1) }
func (c *head) setChanged(n int)   { c.state = c.state&^(six<<changedAt) | uint64(n)<<changedAt }
func (c *head) setAge(age int)     { c.state = c.state&^(six<<ageAt) | uint64(age)<<ageAt }

// generation is in the names of the head's lines. It is 0 until the head may have lines of before that it must not
// find: those of an evicted head of its key, or its own ones of long ago, as names have the low bits of sub-windows
// alone. Then it is the next one of the shard. A scan has removed all lines of one before it comes again, and all lines
// of a sub-window before another one has the same low bits: 2^14 later at the earliest.
func (c *head) generation() uint64 { return c.when >> generationAt & maxGeneration }

func (c *head) renew(in *shard) {
	in.generations = in.generations%maxGeneration + 1
	c.when = c.when&^(maxGeneration<<generationAt) | in.generations<<generationAt
}

// forget notes that all of the head's lines have left its window at once.
func (c *head) forget(in *shard) {
	if c.has(slotsForm | blocksForm | wide) {
		c.renew(in)
		c.lower(slotsForm | rowsForm | blocksForm | summed)
	}
}

// sum is the count of the sub-windows between the newest and the one that is leaving.
func (c *head) sum() uint64 {
	if c.has(wide) {
		return c.wide().middle
	}
	return uint64(c.middle)
}

// leaving is the count of the sub-window that is leaving.
func (c *head) leaving() uint64 {
	if c.has(wide) {
		return c.wide().leaving
	}
	return uint64(c.places[0])
}

// counted notes that the newest sub-window of a window counts, and has to be sent.
func (c *head) counted() {
	c.full = 0
	c.state &^= six << ageAt
	c.send()
}

// send notes that the newest sub-window has to be sent.
func (c *head) send() {
	if c.changed() == 0 {
		c.setChanged(1)
	}
}

// offer adds a cost that was asked for, and marks the line for the next drain.
func (c *head) offer(s *rows.Shard, cost uint64) {
	if c.offered() == 0 {
		s.Mark(c.line())
	}
	c.state += min(cost, uint64(^c.offered()))
}

// isPlain reports whether this table was asked for the key, nothing is ahead of the head, and it is not hot.
func (c *head) isPlain() bool { return c.state&uint64(ahead|hot|local) == uint64(local) }

const fullBits = 48

// setFull remembers until when, since the start of the newest sub-window, a limit has no room for a cost of 1.
func (c *head) setFull(l *Limit, until int64) {
	if c.full = 0; until < 1<<fullBits {
		c.full = uint64(until) | l.tag<<fullBits
	}
}

// fullUntil returns what setFull remembers of a limit. Another limit of the meter with the same tag may be taken for
// it: so nothing but a wait depends on this.
func (c *head) fullUntil(l *Limit) (until int64, known bool) {
	return int64(c.full & (1<<fullBits - 1)), c.full>>fullBits == l.tag
}

// elapse moves what setFull remembers on by a time.
func (c *head) elapse(by int64) {
	if until := c.full & (1<<fullBits - 1); by < int64(until) {
		c.full -= uint64(by)
	} else {
		c.full = 0
	}
}
