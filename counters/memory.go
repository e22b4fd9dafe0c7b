package counters

import (
	"math/bits"
	"unsafe"
)

// memory is a shard's part of a table's budget. It holds no pointers but those to its extents, so that the garbage
// collector does not care how many keys there are.
//
// It consists of pages of 4 KiB, each cut into blocks of one size: cells of one length, or the two words of a remote
// slot or of a log's entry. A page whose last block is freed can be cut anew. Pages lie in extents, which are taken
// from the table's arena as they are needed.
//
// A block is named by its ref: page number and word in the page. Page 0 is never used, so that 0 names no block.
type memory struct {
	arena   *arena
	extents []*[extentWords]uint64
	pages   []page
	open    [maxBlock + 1]uint32 // by block size: the first page that has a free block
	spare   uint32               // the first page that belongs to no size
	fresh   uint32               // pages from this one on were never used
	used    int                  // words in blocks that are in use
}

type page struct {
	next, prev uint32 // in the list of open pages of its size, or of spare ones
	size       uint16 // words of a block
	live       uint16 // blocks in use
	free       uint16 // the first free block: its word in the page, and 1; each holds the next in its first word
}

const (
	pageBits    = 9
	pageWords   = 1 << pageBits
	extentBits  = pageBits + 4
	extentWords = 1 << extentBits
	wordBytes   = 8
	// The largest block is the cell of a log of 60 sub-windows, which has two rings.
	maxBlock = headWords + logWords + 2*(MaxSubWindows+1)
)

// newMemory lays out as many whole pages as fit into the bytes.
func newMemory(a *arena, bytes int) memory {
	pages := max(2, bytes/(pageWords*wordBytes+int(unsafe.Sizeof(page{}))))
	return memory{
		arena: a, pages: make([]page, pages),
		extents: make([]*[extentWords]uint64, (pages*pageWords+extentWords-1)/extentWords), fresh: 1,
	}
}

// bitsOfRefs is how many bits a ref of the memory has at most.
func (m *memory) bitsOfRefs() uint { return uint(bits.Len(uint(len(m.pages)*pageWords - 1))) }

// at is the word that a ref names. The one way from refs to memory: everything that lies in a block is reached by it.
func (m *memory) at(ref uint32) unsafe.Pointer {
	return unsafe.Pointer(&m.extents[ref>>extentBits][ref&(extentWords-1)])
}

func (m *memory) cell(ref uint32) *cell     { return (*cell)(m.at(ref)) }
func (m *memory) remote(ref uint32) *remote { return (*remote)(m.at(ref)) }
func (m *memory) entry(ref uint32) *entry   { return (*entry)(m.at(ref)) }

func (m *memory) block(ref uint32, size int) []uint64 {
	return unsafe.Slice((*uint64)(m.at(ref)), size)
}

// has reports whether alloc would find a block of the size.
func (m *memory) has(size int) bool {
	return m.open[size] != 0 || m.spare != 0 || int(m.fresh) < len(m.pages)
}

// alloc returns a block of so many words, all zero; 0 if there is none.
func (m *memory) alloc(size int) uint32 {
	p := m.open[size]
	if p == 0 {
		if p = m.carve(size); p == 0 {
			return 0
		}
	}
	pg := &m.pages[p]
	ref := p<<pageBits | uint32(pg.free-1)
	block := m.block(ref, size)
	pg.free = uint16(block[0])
	block[0] = 0 // all other words were cleared when it was freed
	pg.live++
	m.used += size
	if pg.free == 0 {
		m.unlink(p, &m.open[size])
	}
	return ref
}

// free gives a block back.
func (m *memory) free(ref uint32) {
	p := ref >> pageBits
	pg := &m.pages[p]
	size := int(pg.size)
	block := m.block(ref, size)
	clear(block)
	if pg.free == 0 {
		m.link(p, &m.open[size])
	}
	block[0] = uint64(pg.free)
	pg.free = uint16(ref&(pageWords-1)) + 1
	pg.live--
	m.used -= size
	if pg.live == 0 {
		m.unlink(p, &m.open[size])
		m.link(p, &m.spare)
	}
}

// carve makes a page of blocks of the size: a spare one, or one that was never used.
func (m *memory) carve(size int) uint32 {
	p := m.spare
	switch {
	case p != 0:
		m.unlink(p, &m.spare)
	case int(m.fresh) < len(m.pages):
		p = m.fresh
		m.fresh++
		m.extend(p)
	default:
		return 0
	}
	pg := &m.pages[p]
	pg.size, pg.live, pg.free = uint16(size), 0, 0
	words := m.block(p<<pageBits, pageWords)
	clear(words)
	for at := (pageWords/size - 1) * size; at >= 0; at -= size {
		words[at] = uint64(pg.free)
		pg.free = uint16(at) + 1
	}
	m.link(p, &m.open[size])
	return p
}

// extend takes the extent of a page, if it is the first one in it.
func (m *memory) extend(p uint32) {
	if e := p << pageBits >> extentBits; m.extents[e] == nil {
		m.extents[e] = (*[extentWords]uint64)(m.arena.take(extentWords))
	}
}

func (m *memory) link(p uint32, head *uint32) {
	pg := &m.pages[p]
	pg.next, pg.prev = *head, 0
	if *head != 0 {
		m.pages[*head].prev = p
	}
	*head = p
}

func (m *memory) unlink(p uint32, head *uint32) {
	pg := &m.pages[p]
	if pg.prev != 0 {
		m.pages[pg.prev].next = pg.next
	} else {
		*head = pg.next
	}
	if pg.next != 0 {
		m.pages[pg.next].prev = pg.prev
	}
}
