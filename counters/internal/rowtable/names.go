package rowtable

import "github.com/edgelimit/edgelimit/counters/internal/rows"

// The kinds of lines.
const (
	slotsKind = 1 + iota // slots of others
	sumsKind             // what others count together, of eight sub-windows
	blockKind            // what 16 origins count in a sub-window, of birth 0
	rowKind              // what one origin counts in sixteen sub-windows, of another birth
	wideKind             // what all count together, of eight sub-windows, where a head has no room
	fewKind              // a row of a key that few origins count, of any birth
	freedKind            // the time that requests which left a queue gave back; of any generation of its head
	logKind              // entries of a log
	hotKind              // the state of a hot key; of any generation of its head
	ratesKind            // what peers are asked for a hot key; of any generation of its head
	partsKind = 13       // what others count in a sub-window, by where, of a head that got sums
	// The kind above that of a block or a row: of its counts what it has no room for. aboveKind is added to a name.
	aboveBy   = 8
	aboveKind = aboveBy << 16
)

const (
	generationBits = 8
	originBits     = 16
	blockOrigins   = 4 // bits of an origin's number, and of a sub-window's, that are a place in a block
	blockSubs      = 0
	rowSubs        = 4
	spanBits       = rows.RestBits - generationBits - originBits

	maxBirth      = 1<<birthBits - 1
	maxGeneration = 1<<generationBits - 1
)

// rest is the rest of a name of a head's line: the head's generation, and what else it is found by. The lines of a head
// that was evicted have another generation.
func rest(c *head, more uint64) uint64 { return c.generation() | more<<generationBits }

func slotsName(c *head) uint64 { return rows.Name(c.line().Meter(), slotsKind, rest(c, 0)) }

func longName(c *head, kind uint8, sub int64) uint64 {
	return rows.Name(c.line().Meter(), kind, rest(c, uint64(sub/longs)))
}

// shortName returns the name of an origin's block or row, and the place of a sub-window in it.
func shortName(c *head, origin uint16, birth uint32, sub int64) (name uint64, place int) {
	if birth == 0 {
		group, span := uint64(origin)>>blockOrigins, uint64(sub)>>blockSubs&(1<<spanBits-1)
		place = int(origin)&(1<<blockOrigins-1)<<blockSubs | int(sub)&(1<<blockSubs-1)
		return rows.Name(c.line().Meter(), blockKind, rest(c, group|span<<originBits)), place
	}
	return rowName(c, rowKind, origin, birth, sub)
}

// rowName returns the name of an origin's row since a birth, and the place of a sub-window in it.
func rowName(c *head, kind uint8, origin uint16, birth uint32, sub int64) (name uint64, place int) {
	span := uint64(shortBirth(birth)) | uint64(sub)>>rowSubs&(1<<(spanBits-birthBits)-1)<<birthBits
	return rows.Name(c.line().Meter(), kind, rest(c, uint64(origin)|span<<originBits)), int(sub) & (1<<rowSubs - 1)
}

// shortBirth is what a table knows of a birth: names of rows have no room for more. Those that are the same are one.
func shortBirth(birth uint32) uint32 {
	if birth == 0 {
		return 0
	}
	return (birth-1)%maxBirth + 1
}
