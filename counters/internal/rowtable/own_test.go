package rowtable_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters/internal/rowtable"
)

// ownSlot is a sub-window of a key, and ownCounts what was counted in some.
type (
	ownSlot struct {
		meter, key uint64
		index      int64
	}
	ownCounts map[ownSlot]uint64
)

// A table that is too small for its keys sends what it counted of each, and nothing else, however often it evicts a key
// and whatever others count of it.
func TestOwnCountsOfEvictedKeys(t *testing.T) {
	r, table := rand.New(rand.NewPCG(1, 3)), rowtable.New(tableSize, 1)
	var limits []*rowtable.Limit
	for i, m := range []rowtable.Meter{{N: 10}, {N: 60}, {N: 1}, {N: 10, Algorithm: rowtable.SlidingLog},
		{N: 1, Algorithm: rowtable.TokenBucket}, {N: 5, Algorithm: rowtable.TokenBucket}} {
		m.ID, m.Sub = spread*uint64(2*i+1), int64(time.Second)
		limits = append(limits, rowtable.NewLimit(m, 10_000))
	}
	now, counted, byBirth := int64(start), make(ownCounts), make(map[uint32]ownCounts)
	drained := true // since this sub-window began
	drain := func() {
		drained = true
		for _, s := range table.Drain(nil, now) {
			if byBirth[s.Birth] == nil {
				byBirth[s.Birth] = make(ownCounts)
			}
			of := ownSlot{table.MeterID(s.Meter), s.Key, s.Index}
			byBirth[s.Birth][of] = max(byBirth[s.Birth][of], s.Count)
		}
	}
	for range 60_000 {
		l, key := limits[r.IntN(len(limits))], r.Uint64N(1000)*spread
		switch k := r.IntN(4000); {
		case k < 2400:
			if cost := 1 + r.Uint64N(3); table.Take(l, key, cost, now).Allowed {
				counted[ownSlot{l.ID, key, now / l.Sub}] += cost
			}
		case k < 3986:
			slot := rowtable.Slot{Key: key, Index: now/l.Sub + 1 - r.Int64N(int64(l.N)+1),
				Origin: uint16(2 + r.IntN(40)), Count: r.Uint64N(1 << r.IntN(12)), Birth: uint32(max(0, r.IntN(8)-5))}
			table.Merge(&l.Meter, []rowtable.Slot{slot}, now)
		case k < 3992:
			table.Expire(now)
		case k < 3996:
			drain()
		default:
			if !drained { // what leaves the window is not sent
				drain()
			}
			now += l.Sub
			drained = false
		}
	}
	drain()
	sent := make(ownCounts)
	for _, counts := range byBirth {
		for of, n := range counts {
			sent[of] += n
		}
	}
	for of, n := range sent {
		if n != counted[of] {
			t.Errorf("of %+v it sent %d, want %d", of, n, counted[of])
		}
	}
	if len(sent) != len(counted) || len(byBirth) < 100 {
		t.Errorf("it sent counts of %d sub-windows, want %d, of %d births", len(sent), len(counted), len(byBirth))
	}
}
