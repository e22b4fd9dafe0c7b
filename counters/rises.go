package counters

import (
	"math"
	"slices"
)

// riseBuckets is how many parts of its partitions a Rises tells apart.
const riseBuckets = 8

// Rises is what a merge raised of the keys that the table was asked for itself, by Key.Partition() modulo riseBuckets:
// of all keys of a part the most.
type Rises [riseBuckets]rise

// rise is what a merge raised of a key.
type rise struct {
	Cost uint64 // by how much it rose
	// Total is the most that the table has known of the key at a moment since the rise was admitted: all that counts
	// now, and for what has left the window meanwhile the largest sub-window. [math.MaxUint64] if that is not known.
	Total uint64
}

// noteRise records that a key rose. It matters only where the table decided on the key.
func (m *merge) noteRise(c *cell, rise uint64) {
	if m.rises == nil || rise == 0 || !c.has(local) {
		return
	}
	if c.key != m.rising {
		m.rising, m.rise = c.key, 0
	}
	m.rise += rise
	at := &m.rises[c.key.Partition()%riseBuckets]
	at.Cost = max(at.Cost, m.rise)
	total := uint64(math.MaxUint64)
	if a := m.spec.algorithm; a == SlidingWindow || a == FixedWindow {
		ring := c.counts(&m.spec.shape)
		total = c.inner + ring[0] + slices.Max(ring)
	}
	at.Total = max(at.Total, total)
}
