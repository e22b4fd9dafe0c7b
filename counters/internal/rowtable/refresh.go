package rowtable

import (
	"sync"

	"github.com/edgelimit/edgelimit/counters/internal/rows"
)

// Partitions is the number of partitions of keys.
const Partitions = 128

// partitionOf is the number of a key's partition.
func partitionOf(key uint64) int { return int(key % Partitions) }

// PartitionSet is a set of partitions, one bit each. The zero value is empty.
type PartitionSet [Partitions / 64]uint64

// Has reports whether the partition is in the set.
func (p *PartitionSet) Has(partition int) bool { return p[partition/64]&(1<<(partition%64)) != 0 }

// Add adds a partition to the set.
func (p *PartitionSet) Add(partition int) { p[partition/64] |= 1 << (partition % 64) }

func (p *PartitionSet) remove(partition int) { p[partition/64] &^= 1 << (partition % 64) }

// refresh is what Refresh has not gone through yet.
type refresh struct {
	sync.Mutex
	partitions PartitionSet
	left       [Partitions]uint8 // shards, of these partitions
	shard      int
	cursor     rows.Cursor // of the shard
}

// refreshParts is how many parts of a scan a drain goes through to refresh heads.
const refreshParts = 256

// Refresh has the next drains return again all that the table counted of the keys of some partitions, for somebody who
// is new. It goes through the table a part at a time, once for each partition and call: a call while others are not
// over returns nothing of their partitions again.
func (t *Table) Refresh(partitions PartitionSet) {
	r := &t.refresh
	r.Lock()
	defer r.Unlock()
	for p := range Partitions {
		if partitions.Has(p) {
			r.partitions.Add(p)
			r.left[p] = uint8(len(t.shards)) + 1 // the current shard comes again at the end
		}
	}
}

// Refreshed reports whether drains have returned all that Refresh asked for.
func (t *Table) Refreshed() bool {
	t.refresh.Lock()
	defer t.refresh.Unlock()
	return t.refresh.partitions == PartitionSet{}
}

// refreshSome marks heads that are to be sent again: those of so many parts of a scan.
func (t *Table) refreshSome(parts int) {
	r := &t.refresh
	r.Lock()
	defer r.Unlock()
	for ; r.partitions != (PartitionSet{}) && parts > 0; parts-- {
		if !t.refreshPart(&t.store.Shards()[r.shard]) {
			continue
		}
		r.shard = (r.shard + 1) % len(t.shards)
		for p := range Partitions {
			if !r.partitions.Has(p) {
				continue
			}
			if r.left[p]--; r.left[p] == 0 {
				r.partitions.remove(p)
			}
		}
	}
}

// refreshPart marks the heads of a part of a shard as if all of them had just changed.
func (t *Table) refreshPart(s *rows.Shard) (done bool) {
	s.Lock()
	defer s.Unlock()
	return s.Scan(&t.refresh.cursor, scanPlaces, func(l *rows.Line) bool {
		m := t.meter(l.Meter())
		if l.Kind() == rows.Head && m.Scope != Alone && t.refresh.partitions.Has(partitionOf(l.Key)) {
			headOf(l).setChanged(m.N + 1)
			s.Mark(l)
		}
		return false
	})
}
