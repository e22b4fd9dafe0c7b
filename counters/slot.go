package counters

// Key is what a rule counts by: a keyed 64-bit hash of an identity, the same on every node of a cluster. Identities
// themselves never reach this package.
type Key uint64

// Origin is one boot of one node: a hash of node id and boot incarnation. Only the origin itself raises its own slots.
// Zero is no origin.
type Origin uint64

// Slot is a cumulative count: the cost that Origin has admitted for Key in the sub-window Index since Birth.
//
// Two slots that differ in Count alone are merged by max. Slots that differ in Birth belong to cells that lived one
// after the other at the same origin; their counts add up.
//
// Demand, CompleteThrough, SentAt, Sender, Place and To describe the message that brought the slot, or is to bring it.
// They are no part of its identity, and only Demand travels.
type Slot struct {
	Meter  *Meter // shared, never written to
	Key    Key
	Index  int64 // sub-window: wall time in nanoseconds / Meter.Sub
	Origin Origin
	Birth  uint32 // maxBirth at most
	// Demand is the cost per second that the origin is asked for the key, admitted or not; 0: not reported. It travels
	// rounded to about a twelfth.
	Demand float32
	Count  uint64 // MaxCount at most
	// CompleteThrough is the time, in nanoseconds, up to which the sender had sent all that the origin counted before;
	// 0: unknown. A bucket debits the increase of a slot as of this time.
	CompleteThrough int64
	// SentAt is when the slot was sent, by the sender's clock, in nanoseconds; 0: unknown. What the origin admits later
	// is not in the slot: D in thin.go depends on it.
	SentAt int64
	// Sender is the origin of the peer that sent the slot, which may be another's; 0: unknown, as from a store. The
	// table bounds what one sender can add to it (origins.go, evict.go).
	Sender Origin
	// Place is where the origin counts, as seen from the table that merges the slot; see owners.go.
	Place Place
	// To is to whom a drained slot goes: 0 to the owner of its key (or, where nobody owns keys, to all peers), a
	// member, the sum of a region to that region's owner, AllMembers or AllRegions.
	To Origin
}
