package counters

// Key identifies whom a rule counts: a 64-bit keyed hash of the identity, the same on every node of a cluster.
// Identities themselves never reach this package.
type Key uint64

// Origin is one boot of one node: node id and boot incarnation folded into 64 bits. Only the origin itself ever raises
// its own slots. Zero is no origin.
type Origin uint64

// Slot is a cumulative count: the cost that Origin has admitted for Key in the sub-window Index since Birth.
//
// Two slots that agree in everything but Count are merged by max. Slots that differ in Birth belong to cells that lived
// one after the other at the same origin; their counts add up.
type Slot struct {
	Meter  *Meter // shared, never written to
	Key    Key
	Index  int64 // sub-window: wall time in nanoseconds / Meter.Sub
	Origin Origin
	Birth  uint32
	// Demand is how much the origin is asked for the key, admitted or not, in cost per second; 0: it says nothing. It
	// is no part of the slot's count, and travels rounded to a twelfth or so.
	Demand float32
	Count  uint64 // MaxCount at most
	// CompleteThrough says that whoever sends the slot had sent all that its origin counted before this time, in
	// nanoseconds; 0 if unknown. A bucket debits what is new in the slot as of then. It is no part of the slot itself,
	// and does not travel.
	CompleteThrough int64
	// SentAt is when it was sent, by the sender's clock, in nanoseconds; 0 if unknown: what the origin admits of the
	// key later is not in it. It is what D in thin.go goes by, and does not travel either.
	SentAt int64
	// Sender is the origin of the peer that sent the slot, which may be of another origin; 0: unknown, as of a
	// store's. What one sender can add to a table is bounded (origins.go, evict.go). It is no part of the slot, and
	// does not travel.
	Sender Origin
}
