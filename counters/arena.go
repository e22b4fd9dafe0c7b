package counters

import "sync"

// arena is where the shards get memory from. It comes in slabs so large that the kernel can map them in huge pages: a
// million keys lie in tens of thousands of small ones, which is more than a processor keeps the addresses of, and a
// decision on a key that it has not seen for long would wait for those as well.
type arena struct {
	sync.Mutex
	rest []uint64 // of the latest slab
	slab int      // words of one
}

const (
	largestSlab = 32 << 20 / wordBytes
	hugePage    = 2 << 20 / wordBytes
)

func newArena(bytes int) arena { return arena{slab: min(bytes/wordBytes, largestSlab)} }

// take returns so many words that nobody has. They are all zero.
func (a *arena) take(words int) []uint64 {
	a.Lock()
	defer a.Unlock()
	if len(a.rest) < words {
		a.rest = make([]uint64, max(a.slab, words))
		if len(a.rest) >= hugePage {
			adviseHugePages(a.rest)
		}
	}
	taken := a.rest[:words:words]
	a.rest = a.rest[words:]
	return taken
}
