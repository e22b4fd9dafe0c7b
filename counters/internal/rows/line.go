package rows

import "unsafe"

// Line is a line of the processor's cache, and the only unit of memory. Key and Name say what it holds, and Words are
// the caller's.
type Line struct {
	Key   uint64
	Name  uint64 // from the low end: 16 bits of the meter's number, 4 of the kind, 44 of the rest, see Name
	Words [6]uint64
}

const lineBytes = 64

var _ [0]struct{} = [unsafe.Sizeof(Line{}) - lineBytes]struct{}{} // the compiler holds that a line is 64 bytes

// A Kind is what a line holds of its key. The kinds but Head are the caller's.
const (
	Head  = 0 // the one line that a request needs. It is found by meter and key alone
	Kinds = 16
)

const (
	meterBits = 16
	kindBits  = 4
	// RestBits are the bits of a name that are the caller's: a head keeps in them what it likes. In all other lines
	// they are a part of what the line is found by.
	RestBits = 64 - meterBits - kindBits
	restAt   = meterBits + kindBits
	headMask = 1<<restAt - 1
)

// Name returns the name of a line. No meter has the number 0.
func Name(meter uint16, kind uint8, rest uint64) uint64 {
	return uint64(meter) | uint64(kind)<<meterBits | rest<<restAt
}

// Meter returns the number of the line's meter.
func (l *Line) Meter() uint16 { return uint16(l.Name) }

// Kind returns what the line holds.
func (l *Line) Kind() uint8 { return uint8(l.Name>>meterBits) & (Kinds - 1) }

// Rest returns the caller's bits of the name.
func (l *Line) Rest() uint64 { return l.Name >> restAt }

func (l *Line) free() bool { return uint16(l.Name) == 0 }
