package rowtable_test

import (
	"testing"

	"github.com/edgelimit/edgelimit/counters/internal/rowtable"
)

// flood has an origin report so many keys from the first on, with large counts.
func flood(table *rowtable.Table, l *rowtable.Limit, origin uint16, first, n uint64) {
	for key := first; key < first+n; key++ {
		slot := rowtable.Slot{Key: key * 0x9e3779b97f4a7c15, Index: start / l.Sub, Origin: origin, Count: 1000}
		table.Merge(&l.Meter, []rowtable.Slot{slot}, start)
	}
}

// seen is how many of so many keys from the first on count.
func seen(table *rowtable.Table, l *rowtable.Limit, first, n uint64) (count uint64) {
	for key := first; key < first+n; key++ {
		if table.View(l, key*0x9e3779b97f4a7c15, start) > 0 {
			count++
		}
	}
	return count
}

// Peers evict nothing that this table counts while that is less than half of the heads.
func TestPeersEvictTheirOwn(t *testing.T) {
	table, l := rowtable.New(tableSize, 1), smallLimit(1<<20)
	const own = 3000
	for key := range uint64(own) {
		table.Take(l, key*0x9e3779b97f4a7c15, 1, start)
	}
	flood(table, l, 2, own, 100_000)
	if n := seen(table, l, 0, own); n != own {
		t.Errorf("of %d keys that this table counts, %d are left", own, n)
	}
	if st := table.Stats(); st.EvictedRemote != st.Evicted || st.Evicted < 80_000 || st.Keys < own+1000 {
		t.Errorf("%+v", st)
	}
}

// A peer that makes up keys evicts its own, and few of a peer that reports few.
func TestAPeerEvictsItsOwn(t *testing.T) {
	for _, members := range []bool{true, false} {
		table, l := rowtable.New(tableSize, 1), smallLimit(1<<20)
		for origin := range uint16(50) {
			table.SetMember(origin, members || origin == 2)
		}
		const few = 500
		for key := range uint64(few) {
			slot := rowtable.Slot{Key: key * 0x9e3779b97f4a7c15, Index: start / l.Sub, Origin: 2, Count: 1}
			table.Merge(&l.Meter, []rowtable.Slot{slot}, start)
		}
		for origin := range uint16(10) { // a forger names several where nobody knows them
			if members {
				origin = 0
			}
			flood(table, l, 3+origin, few+uint64(origin)*10_000, 10_000)
		}
		if n := seen(table, l, 0, few); n < few*9/10 {
			t.Errorf("members: %v: of %d keys of a peer, %d are left", members, few, n)
		}
	}
}

// What an eviction forgets is reported.
func TestForgotten(t *testing.T) {
	table, l := rowtable.New(tableSize, 1), smallLimit(3)
	table.Know([]*rowtable.Limit{l})
	for key := range uint64(20_000) {
		table.Take(l, key*0x9e3779b97f4a7c15, 1+key%2, start)
	}
	table.Drain(nil, start)
	st := table.Stats()
	if found := table.Demands(); len(found) != 1 || found[0].Forgotten == 0 || st.Forgotten < st.Evicted {
		t.Errorf("%+v, %+v", found, st)
	}
	if st.Evicted < 5000 || st.EvictedRemote != 0 || st.EvictedDenied != 0 || st.EvictedFull == 0 {
		t.Errorf("%+v", st)
	}
}
