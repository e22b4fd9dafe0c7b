package rowtable_test

import (
	"testing"

	"github.com/edgelimit/edgelimit/counters/internal/rowtable"
)

// Whatever is asked for while a refresh goes on, each partition is gone through as a whole, and no other one.
func TestRefresh(t *testing.T) {
	table, l := rowtable.New(32*tableSize, 1), smallLimit(100)
	const keys = 200_000 // more than a drain goes through
	for key := range uint64(keys) {
		table.Take(l, key, 1, start)
	}
	table.Drain(nil, start)
	only := func(p int) (s rowtable.PartitionSet) {
		s.Add(p)
		return s
	}
	table.Refresh(only(5))
	sent := make(map[uint64]int)
	for drains := 0; !table.Refreshed(); drains++ {
		for _, slot := range table.Drain(nil, start) {
			sent[slot.Key]++
		}
		if drains == 0 {
			if table.Refreshed() {
				t.Fatal("one drain went through all")
			}
			table.Refresh(rowtable.PartitionSet{})
			table.Refresh(only(9))
		}
	}
	for key := range uint64(keys) {
		p := key % rowtable.Partitions
		if n := sent[key]; (p == 5 || p == 9) != (n > 0) || n > 2 {
			t.Fatalf("a key of partition %d was sent %d times", p, n)
		}
	}
}
