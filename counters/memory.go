package counters

import (
	"math/bits"
	"unsafe"
)

// memory is a shard's part of a table's budget. Its only pointers are those to its extents, so that the cost of garbage
// collection does not depend on the number of keys.
//
// It consists of pages of 4 KiB. A page holds blocks of one size: cells of one length, or slots, log entries and the
// like. A page without used blocks may be divided anew. Pages lie in extents, which come from the table's arena when
// they are first needed.
//
// A ref names a block by its page number and its first word in the page. Page 0 is never used: ref 0 is no block.
type memory struct {
	arena   *arena
	extents []*[extentWords]uint64
	pages   []page
	open    [maxBlock + 1]uint32 // by block size: the first page with a free block
	spare   uint32               // the first page without used blocks
	fresh   uint32               // the first page that was never used
	used    int                  // words in used blocks
}

type page struct {
	next, prev uint32 // in the list of open pages of its size, or of spare ones
	size       uint16 // words of a block
	live       uint16 // used blocks
	free       uint16 // the first free block: its word in the page plus 1. Its first word holds the next one's
}

const (
	pageBits    = 9
	pageWords   = 1 << pageBits
	extentBits  = pageBits + 4
	extentWords = 1 << extentBits
	wordBytes   = 8
	// The largest block is the cell of a sliding log with 60 sub-windows: it has two rings.
	maxBlock = headWords + logWords + 2*(maxSubWindows+1)
)

// newMemory lays out as many whole pages as fit into the bytes.
func newMemory(a *arena, bytes int) memory {
	pages := max(2, bytes/(pageWords*wordBytes+int(unsafe.Sizeof(page{}))))
	return memory{
		arena: a, pages: make([]page, pages),
		extents: make([]*[extentWords]uint64, (pages*pageWords+extentWords-1)/extentWords), fresh: 1,
	}
}

func (m *memory) bitsOfRefs() uint { return uint(bits.Len(uint(len(m.pages)*pageWords - 1))) }

// at returns the first word of a block. All access to blocks goes through it.
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

// alloc returns a block of so many words, all zero; 0 if there is no room.
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
	block[0] = 0 // free cleared the other words
	pg.live++
	m.used += size
	if pg.free == 0 {
		m.unlink(p, &m.open[size])
	}
	return ref
}

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

// carve divides a spare or fresh page into blocks of the size.
func (m *memory) carve(size int) uint32 {
	p := m.spare
	switch {
	case p != 0:
		m.unlink(p, &m.spare)
	case int(m.fresh) < len(m.pages):
		p = m.fresh
		m.fresh++
		if e := p << pageBits >> extentBits; m.extents[e] == nil {
			m.extents[e] = (*[extentWords]uint64)(m.arena.take(extentWords))
		}
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

// pop frees the first block of a list. A block of a list holds the ref of the next one in its first 32 bits.
func (m *memory) pop(head *uint32) {
	ref := *head
	*head = *(*uint32)(m.at(ref))
	m.free(ref)
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
