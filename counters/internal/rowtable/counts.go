package rowtable

import (
	"unsafe"

	"github.com/edgelimit/edgelimit/counters/internal/rows"
)

// longs is how many counts of 48 bits a line holds: those of as many sub-windows one after the other.
const longs = 8

// longCounts are the words of a line of sums, or of a wide one.
type longCounts struct {
	_    [2]uint64
	low  [longs]uint32
	high [longs]uint16
}

// cells is how many counts of 24 bits a line holds.
const cells = 16

// shortCounts are the words of a block or a row. The highest bit of a count says that more of it is in another line.
type shortCounts struct {
	_    [2]uint64
	low  [cells]uint16
	high [cells]uint8
}

// slotsPerLine is how many slots of others a key has before they get blocks.
const slotsPerLine = 4

// slots are the words of a line of slots.
type slots struct {
	_     [2]uint64
	slots [slotsPerLine]slot
}

// slot is what an origin counted in a sub-window, since a birth. A slot of origin 0 is free.
type slot struct {
	count, birth uint32
	origin       uint16
	sub          uint8 // the low bits
	_            uint8
}

// The compiler holds that each is a line.
var (
	_ [0]struct{} = [unsafe.Sizeof(longCounts{}) - unsafe.Sizeof(rows.Line{})]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(shortCounts{}) - unsafe.Sizeof(rows.Line{})]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(slots{}) - unsafe.Sizeof(rows.Line{})]struct{}{}
)

func longsOf(l *rows.Line) *longCounts   { return (*longCounts)(unsafe.Pointer(l)) }
func shortsOf(l *rows.Line) *shortCounts { return (*shortCounts)(unsafe.Pointer(l)) }
func slotsOf(l *rows.Line) *slots        { return (*slots)(unsafe.Pointer(l)) }

func (l *longCounts) get(sub int64) uint64 {
	i := sub & (longs - 1)
	return uint64(l.low[i]) | uint64(l.high[i])<<32
}

func (l *longCounts) set(sub int64, n uint64) {
	i := sub & (longs - 1)
	l.low[i], l.high[i] = uint32(n), uint16(n>>32)
}

const (
	shortBits = 23 // of a count in its line; the others are in the line above it
	moreBit   = 1 << shortBits
)

func (l *shortCounts) get(i int) uint64 { return uint64(l.low[i]) | uint64(l.high[i])<<16 }

func (l *shortCounts) set(i int, n uint64) { l.low[i], l.high[i] = uint16(n), uint8(n>>16) }
