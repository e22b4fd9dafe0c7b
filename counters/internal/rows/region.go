package rows

import "unsafe"

// region is the memory of a store, all zero, and not taken before it is used. The lines of a cache are its lines.
type region struct {
	first unsafe.Pointer
	words []uint64 // keeps memory of the Go heap alive; nil: it is mapped
}

const hugePage = 2 << 20

func (r *region) line(i int) unsafe.Pointer { return unsafe.Add(r.first, i*lineBytes) }

// onHeap returns a region in the Go heap.
func onHeap(lines int) *region {
	words := make([]uint64, (lines+1)*lineBytes/8)
	off := -uintptr(unsafe.Pointer(&words[0])) & (lineBytes - 1)
	return &region{first: unsafe.Pointer(&words[off/8]), words: words}
}
