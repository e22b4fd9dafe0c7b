package regions

import (
	"context"
	"errors"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Store is the memory of a region: slots merged by max, shared by the region's nodes and outliving each of them.
//
// The time now, in Unix nanoseconds, is the caller's, by whose wall clock windows are indexed; the store's own does not
// matter. A store keeps a slot for as long as it can still count by the clock of any caller that raised it, and may
// forget it at any time after. Slots that have expired by the caller's clock change nothing.
//
// A store is safe for concurrent use, by many nodes. Its methods return soon after their context ends, with an error
// that wraps the context's. Slots given to it are read only and not kept hold of; their meters are valid.
type Store interface {
	// Merge raises each slot to its count where that is larger, in the order given. A count of zero only reads. Without
	// slots it answers the epoch and the time.
	//
	// With an error, Merged is empty and any part of the slots may have been merged. It is safe to repeat the call.
	Merge(ctx context.Context, slots []counters.Slot, now int64) (Merged, error)

	// Restore raises slots on behalf of origins that may be gone, after the store lost data. Merge and Load return
	// them, each slot once and with the larger count; but Before does not include them. So an origin that lives notices
	// its own loss.
	Restore(ctx context.Context, slots []counters.Slot, now int64) error

	// Load calls page with every slot that can still count, in any order, some thousand at a time at most: what a cold
	// node starts from. Of slots that change meanwhile it may give an older count, or several. A page is the callee's
	// only until it returns. After an error, what was given is true but not all.
	Load(ctx context.Context, now int64, page func(slots []counters.Slot)) error
}

// Merged is a store's answer to the slots of one Merge.
type Merged struct {
	// Before is parallel to the slots given: what the store held of each just before it; 0 is nothing. Restored counts
	// do not count. When it is lower than what an earlier Merge set, the store has lost data.
	Before []uint64
	// Others are the slots that the store holds of the same meters, keys and sub-windows, without those that were
	// given: other origins, and other births of the same origin. Each is there once, in any order, and belongs to the
	// caller.
	Others []counters.Slot
	// Epoch changes when the store was restarted, replaced or emptied, or evicted something, and so may have lost data.
	// It is that of the store as a whole, whichever part of it answered. Empty: unknown.
	Epoch string
	// Time is the store's clock at some moment of the call; zero: unknown.
	Time time.Time
}

// ErrFull says that a store had no room for some of the slots: those it refused are new to it. It merged all the others
// and lost nothing that it has. There is room again when what it holds has expired.
var ErrFull = errors.New("the store is full")

// slotID is what makes two slots the same: everything but the count.
type slotID struct {
	meter  counters.Meter
	key    counters.Key
	index  int64
	origin counters.Origin
	birth  uint32
}

func identify(s *counters.Slot) slotID {
	return slotID{*s.Meter, s.Key, s.Index, s.Origin, s.Birth}
}

// expired says whether a sub-window can no longer count at the time now (Unix nanoseconds), that is whether
// (index+1)*Sub + Window < now, turned round so that no index overflows.
func expired(m *counters.Meter, index, now int64) bool {
	return index < (now-int64(m.Window)-1)/int64(m.Sub)
}

// lifetime is for how long from now a sub-window that has not expired can still count. One from further ahead than a
// window, which a clock that was set back leaves behind, counts as the one that begins after a window.
func lifetime(m *counters.Meter, index, now int64) time.Duration {
	index = min(index, m.Index(now)+int64(m.SubWindows())+1)
	return time.Duration((index+1)*int64(m.Sub) + int64(m.Window) - now)
}
