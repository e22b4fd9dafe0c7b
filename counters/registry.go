package counters

import (
	"sync"
	"sync/atomic"
)

// registry gives numbers to ids of 64 bits, those of meters and origins, so that cells and slots stay small. A number
// without holders is given to another id once all numbers have been given.
type registry struct {
	sync.RWMutex
	numbers map[uint64]uint32
	ids     []uint64       // by number; 0 is no number. A holder of a number may read its id without the lock
	holders []atomic.Int32 // by number: how many cells or slots use it
	given   int            // numbers that were ever given
	hand    int            // number after which the search for a free one continues
	changes atomic.Uint32  // how many times a number was given to an id
}

func newRegistry(numbers int) registry {
	return registry{
		numbers: make(map[uint64]uint32), ids: make([]uint64, numbers+1), holders: make([]atomic.Int32, numbers+1),
	}
}

// strangerSearch is how many numbers a registry looks at for an id of others: whoever sends ever new ids, while all
// numbers are in use, must not have it look at all of them each time.
const strangerSearch = 64

// register returns the number of an id. It gives it one, but none of the last `spare`, for ids of others; 0 if it finds
// no free one. The caller holds the lock.
func (r *registry) register(id uint64, spare int) uint32 {
	if k := r.numbers[id]; k != 0 {
		return k
	}
	usable := len(r.ids) - 1 - spare
	if r.given < usable {
		r.given++
		return r.give(r.given, id)
	}
	search := usable
	if spare > 0 {
		search = min(search, strangerSearch)
	}
	for range search {
		if r.hand++; r.hand > usable {
			r.hand = 1
		}
		if r.holders[r.hand].Load() == 0 {
			delete(r.numbers, r.ids[r.hand])
			return r.give(r.hand, id)
		}
	}
	return 0
}

func (r *registry) give(k int, id uint64) uint32 {
	r.ids[k], r.numbers[id] = id, uint32(k)
	r.changes.Add(1)
	return uint32(k)
}
