package rowtable

import (
	"math"
	"slices"

	"github.com/edgelimit/edgelimit/counters/internal/rows"
)

// RiseBuckets is how many parts of keys a Rises tells apart.
const RiseBuckets = 8

// Rises is what a merge raised of the keys that the table was asked for itself, by key modulo RiseBuckets: of all keys
// of a part the most. Times of bans and lifts are no rises.
type Rises [RiseBuckets]Rise

// Rise is what a merge raised of a key.
type Rise struct {
	Cost uint64 // by how much it rose
	// Total is the most that the table has known of the key at a moment since the rise was admitted: all that counts
	// now, and for what has left the window meanwhile the largest sub-window. [math.MaxUint64] if that is not known.
	Total uint64
}

// merging is one call of MergeRises.
type merging struct {
	*Table
	m     *Meter
	now   int64
	rises *Rises // nil: nobody asks
	key   uint64 // whose slots follow each other
	rise  uint64 // by how much it rose
}

// noteRise records that a key rose. It matters only where the table decided on the key.
func (g *merging) noteRise(s *rows.Shard, h uint64, c *head, rise uint64) {
	if g.rises == nil || !c.has(local) {
		return
	}
	if c.key != g.key {
		g.key, g.rise = c.key, 0
	}
	g.rise += rise
	at := &g.rises[c.key%RiseBuckets]
	at.Cost = max(at.Cost, g.rise)
	total := uint64(math.MaxUint64)
	if a := g.m.Algorithm; a <= FixedWindow {
		var r ring
		g.load(s, h, c, g.m, &r)
		total = c.newest() + c.sum() + c.leaving() + slices.Max(r.counts[:g.m.N+1])
	}
	at.Total = max(at.Total, total)
}
