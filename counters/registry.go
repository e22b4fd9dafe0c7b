package counters

import (
	"sync"
	"sync/atomic"
)

// registry numbers what cells and slots refer to, meters and origins, so that 16 bits name 64. A number that nobody
// bears any more is given to others once there are no new ones.
type registry struct {
	sync.RWMutex
	numbers map[uint64]uint16
	// by number; 0 is no number. Whoever holds a bearer of a number may read its id without the lock
	ids     []uint64
	given   int            // numbers that were ever given
	holders []atomic.Int32 // by number: how many cells or slots bear it
	hand    int            // where the search for a free number goes on
}

func newRegistry(largest int) registry {
	return registry{
		numbers: make(map[uint64]uint16), ids: make([]uint64, largest+1), holders: make([]atomic.Int32, largest+1),
	}
}

// register gives the id a number, none of the last spare ones; 0 if all others are borne. It wants the lock.
func (r *registry) register(id uint64, spare int) uint16 {
	if k := r.numbers[id]; k != 0 {
		return k
	}
	largest := len(r.ids) - 1 - spare
	if r.given < largest {
		r.given++
		return r.give(r.given, id)
	}
	for range largest {
		if r.hand++; r.hand > largest {
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
