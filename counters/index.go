package counters

import (
	"math/bits"
	"unsafe"
)

// index finds the cells of a shard. It is a hash table with open addressing and linear probing. An entry has 32 bits: a
// cell's ref and, in the bits that refs do not need, a tag from the cell's hash, which rules most other cells out
// without a look at them. 0 is a free entry.
type index struct {
	entries []uint32
	refMask uint32 // selects an entry's ref
	keys    int
	maxKeys int // number of keys at which the index is full
}

// The index never grows. It has room for a shard full of cells of indexedBytes each: where cells are smaller, the index
// is full before the memory is.
const (
	indexedBytes = 84
	indexLoad    = 0.875
)

// indexEntries is the number of entries in the index of a shard with a budget of so many bytes.
func indexEntries(bytes int) int { return int(float64(max(1, bytes/indexedBytes))/indexLoad) + 1 }

func newIndex(a *arena, bytes int, refBits uint) index {
	n := indexEntries(bytes)
	words := a.take((n + 1) / 2)
	return index{
		entries: unsafe.Slice((*uint32)(unsafe.Pointer(&words[0])), n), refMask: 1<<refBits - 1,
		maxKeys: max(1, bytes/indexedBytes),
	}
}

// hash mixes a meter's id with a key. Peers choose both; without the seed nobody can find two pairs that collide.
func hash(seed, meter uint64, key Key) uint64 {
	hi, lo := bits.Mul64(uint64(key)^seed, meter^bits.RotateLeft64(seed, 32)|1)
	return hi ^ lo
}

// home is the position where the search for a hash begins. It takes the bits below those that selected the shard; the
// tag takes the lowest bits.
func (ix *index) home(h uint64) int {
	return int(h >> (32 - shardBits) & (1<<32 - 1) * uint64(len(ix.entries)) >> 32)
}

func (ix *index) next(i int) int {
	if i++; i == len(ix.entries) {
		return 0
	}
	return i
}

func (ix *index) ref(entry uint32) uint32           { return entry & ix.refMask }
func (ix *index) entry(ref uint32, h uint64) uint32 { return ref | uint32(h)&^ix.refMask }

// search returns the position of an entry with the given hash. The entry must exist; 0 finds a free one.
func (ix *index) search(entry uint32, h uint64) int {
	i := ix.home(h)
	for ix.entries[i] != entry {
		i = ix.next(i)
	}
	return i
}

// probe is find of a cell that is where the search for it begins. Most are.
func (s *shard) probe(home int, meter uint64, key Key, h uint64) uint32 {
	e := s.entries[home]
	if e == 0 || (e^uint32(h))&^s.refMask != 0 {
		return 0
	}
	if c := s.cell(e & s.refMask); c.key != key || s.ids[c.number()] != meter {
		return 0
	}
	return e & s.refMask
}

// find returns the ref of a key's cell, 0 if it has none.
func (s *shard) find(meter uint64, key Key, h uint64) uint32 {
	i, tag := s.home(h), uint32(h)
	for {
		e := s.entries[i]
		if e == 0 {
			return 0
		}
		if (e^tag)&^s.refMask == 0 {
			ref := s.ref(e)
			if c := s.cell(ref); c.key == key && s.ids[c.number()] == meter {
				return ref
			}
		}
		i = s.next(i)
	}
}

// add inserts a cell that is not in the index. The index must not be full.
func (ix *index) add(ref uint32, h uint64) {
	ix.entries[ix.search(0, h)] = ix.entry(ref, h)
	ix.keys++
}

// drop deletes the entry of a cell, and closes the gap so that no search ends too early. hashOf returns a cell's hash.
func (ix *index) drop(ref uint32, h uint64, hashOf func(ref uint32) uint64) {
	gap := ix.search(ix.entry(ref, h), h)
	for i := ix.next(gap); ix.entries[i] != 0; i = ix.next(i) {
		// An entry may move into the gap if its search begins at the gap or before it.
		home := ix.home(hashOf(ix.ref(ix.entries[i])))
		if ix.distance(home, i) >= ix.distance(gap, i) {
			ix.entries[gap] = ix.entries[i]
			gap = i
		}
	}
	ix.entries[gap] = 0
	ix.keys--
}

func (ix *index) distance(a, b int) int {
	if a > b {
		b += len(ix.entries)
	}
	return b - a
}

// rename replaces the ref of a cell that moved to another block.
func (ix *index) rename(from, to uint32, h uint64) {
	ix.entries[ix.search(ix.entry(from, h), h)] = ix.entry(to, h)
}
