package counters

import "sync"

// arena gives memory to the shards. It takes large slabs from the runtime, so that the kernel can map them in huge
// pages: with small pages a decision on a cold key would also wait for the processor to find the key's page.
type arena struct {
	sync.Mutex
	rest []uint64 // of the latest slab
	slab int      // words of a slab
}

const (
	maxSlab  = 32 << 20 / wordBytes
	hugePage = 2 << 20 / wordBytes
)

func newArena(bytes int) arena { return arena{slab: min(bytes/wordBytes, maxSlab)} }

// take returns so many unused words, all zero.
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
