package counters

import (
	"sync"
	"sync/atomic"
)

// registry gives numbers of 16 bits to ids of 64 bits, those of meters and origins, so that cells and slots stay small.
// A number without holders is given to another id once all numbers have been given.
type registry struct {
	sync.RWMutex
	numbers map[uint64]uint16
	ids     []uint64       // by number; 0 is no number. A holder of a number may read its id without the lock
	holders []atomic.Int32 // by number: how many cells or slots use it
	given   int            // numbers that were ever given
	hand    int            // number after which the search for a free one continues
}

func newRegistry(numbers int) registry {
	return registry{
		numbers: make(map[uint64]uint16), ids: make([]uint64, numbers+1), holders: make([]atomic.Int32, numbers+1),
	}
}

// register returns the number of an id. It gives it one, but none of the last `spare`; 0 if none of the others is free.
// The caller holds the lock.
func (r *registry) register(id uint64, spare int) uint16 {
	if k := r.numbers[id]; k != 0 {
		return k
	}
	usable := len(r.ids) - 1 - spare
	if r.given < usable {
		r.given++
		return r.give(r.given, id)
	}
	for range usable {
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

func (r *registry) give(k int, id uint64) uint16 {
	r.ids[k], r.numbers[id] = id, uint16(k)
	return uint16(k)
}
