package counters

import (
	"math/bits"
	"unsafe"
)

// index finds the cells of a shard: open addressing with linear probing over entries of 32 bits. An entry is a cell's
// ref and, in the bits that the refs do not need, a tag of its hash, so that other cells are hardly ever looked at. 0
// is an empty place.
type index struct {
	entries []uint32
	refMask uint32 // the bits of an entry that are a ref
	keys    int
	maxKeys int // keys at which it is full
}

// An index is made for cells of so many bytes: where they are smaller, it is what ends the table.
const (
	indexedBytes = 84
	indexLoad    = 0.875
)

func newIndex(a *arena, bytes int, refBits uint) index {
	largest := max(1, bytes/indexedBytes)
	places := int(float64(largest)/indexLoad) + 1
	words := a.take((places + 1) / 2)
	return index{
		entries: unsafe.Slice((*uint32)(unsafe.Pointer(&words[0])), places), refMask: 1<<refBits - 1, maxKeys: largest,
	}
}

// indexBytes is the part of a shard's bytes that its index takes.
func indexBytes(bytes int) int { return int(float64(bytes/indexedBytes)/indexLoad+1) * 4 }

// hash mixes a meter's id and a key, which is a keyed hash of an identity already. Peers choose both: who does not know
// the seed finds no two that meet.
func hash(seed, meter uint64, key Key) uint64 {
	hi, lo := bits.Mul64(uint64(key)^seed, meter^bits.RotateLeft64(seed, 32)|1)
	return hi ^ lo
}

// home is where the search for a hash begins. The highest bits have chosen the shard, some of the lowest are the tag.
func (ix *index) home(h uint64) int {
	return int(h >> (32 - shardBits) & (1<<32 - 1) * uint64(len(ix.entries)) >> 32)
}

// next is the place after i, around the end.
func (ix *index) next(i int) int {
	if i++; i == len(ix.entries) {
		return 0
	}
	return i
}

func (ix *index) ref(entry uint32) uint32           { return entry & ix.refMask }
func (ix *index) entry(ref uint32, h uint64) uint32 { return ref | uint32(h)&^ix.refMask }

// add enters a cell that is not in the index, which is not full.
func (ix *index) add(ref uint32, h uint64) {
	i := ix.home(h)
	for ix.entries[i] != 0 {
		i = ix.next(i)
	}
	ix.entries[i] = ix.entry(ref, h)
	ix.keys++
}

// drop takes the entry of a cell out, and moves those after it up so that no search ends too early. hashOf tells a
// cell's hash.
func (ix *index) drop(ref uint32, h uint64, hashOf func(ref uint32) uint64) {
	hole := ix.home(h)
	for want := ix.entry(ref, h); ix.entries[hole] != want; {
		hole = ix.next(hole)
	}
	for i := ix.next(hole); ix.entries[i] != 0; i = ix.next(i) {
		// It may fill the hole if its search begins there or before, counted backwards from where it is.
		home := ix.home(hashOf(ix.ref(ix.entries[i])))
		if ix.before(home, i) >= ix.before(hole, i) {
			ix.entries[hole] = ix.entries[i]
			hole = i
		}
	}
	ix.entries[hole] = 0
	ix.keys--
}

// before is how many places a comes before b, around the end.
func (ix *index) before(a, b int) int {
	if a > b {
		b += len(ix.entries)
	}
	return b - a
}

// rename has the entry of a cell lead to another block.
func (ix *index) rename(from, to uint32, h uint64) {
	i := ix.home(h)
	for want := ix.entry(from, h); ix.entries[i] != want; {
		i = ix.next(i)
	}
	ix.entries[i] = ix.entry(to, h)
}
