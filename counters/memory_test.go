package counters

import (
	"slices"
	"testing"
	"unsafe"
)

// A page that is cleared may hold watches besides cells.
func TestAWatchIsNoCell(t *testing.T) {
	if at, want := unsafe.Offsetof(hotKey{}.none), unsafe.Offsetof(cell{}.meter); at != want {
		t.Errorf("what tells a watch from a cell is at %d, a cell has its meter at %d", at, want)
	}
}

// audit holds what is found in a shard against what the shard says of itself. It stops the test at the first thing that
// is wrong.
type audit struct {
	t     *testing.T
	table *Table
	*shard
	when  string            // the seed and the step of the test
	spare map[uint32]bool   // pages that belong to no size
	open  map[uint32]int    // pages that have a free block, and the size in whose list they are
	freed map[uint32]bool   // free blocks
	held  map[uint32]string // blocks that something refers to, and what
	words int               // in those
}

// auditShard checks all that has to hold of a shard between two calls.
func auditShard(t *testing.T, table *Table, number int, when string) {
	a := &audit{
		t: t, table: table, shard: &table.shards[number], when: when,
		spare: make(
			map[uint32]bool,
		), open: make(map[uint32]int), freed: make(map[uint32]bool), held: make(map[uint32]string),
	}
	a.pageLists()
	used := 0
	for p := uint32(1); p < a.fresh; p++ {
		if !a.spare[p] {
			a.freeBlocks(p)
			used += int(a.pages[p].live) * int(a.pages[p].size)
		}
	}
	if used != a.used {
		a.fail("pages have %d words in use, the memory says %d", used, a.used)
	}
	dirty := a.cells()
	if a.words != used {
		a.fail("cells refer to %d words, %d are in use: %d are lost", a.words, used, used-a.words)
	}
	a.remoteCells()
	a.dirtyList(dirty)
	a.earlyCells()
}

// remoteCells checks that the cells which only peers counted in are as many as the shard says.
func (a *audit) remoteCells() {
	n := 0
	for _, e := range a.entries {
		if e != 0 && !a.cell(a.ref(e)).has(local) {
			n++
		}
	}
	if n != a.remotes {
		a.fail("%d cells are of peers alone, the shard says %d", n, a.remotes)
	}
}

func (a *audit) fail(format string, args ...any) {
	a.t.Helper()
	a.t.Fatalf(a.when+": "+format, args...)
}

// pageLists checks that each page which is spare or has a free block is in the one list where it is looked for.
func (a *audit) pageLists() {
	for size, p := range a.memory.open {
		for prev := uint32(0); p != 0; prev, p = p, a.pages[p].next {
			pg := a.pages[p]
			if before, twice := a.open[p]; twice {
				a.fail("page %d is in the list of size %d and in that of size %d", p, before, size)
			}
			if pg.prev != prev || int(pg.size) != size || pg.free == 0 {
				a.fail("page %d after %d in the list of size %d: %+v", p, prev, size, pg)
			}
			a.open[p] = size
		}
	}
	for p, prev := a.memory.spare, uint32(0); p != 0; prev, p = p, a.pages[p].next {
		if a.spare[p] || a.open[p] != 0 || a.pages[p].live != 0 || a.pages[p].prev != prev {
			a.fail("spare page %d after %d: %+v, in the list of size %d", p, prev, a.pages[p], a.open[p])
		}
		a.spare[p] = true
	}
}

// freeBlocks checks that the free blocks of a page are the ones that nobody uses, each once and cleared.
func (a *audit) freeBlocks(p uint32) {
	pg, n := a.pages[p], 0
	if (a.open[p] != 0) != (pg.free != 0) {
		a.fail("page %d: %+v, in the list of size %d", p, pg, a.open[p])
	}
	for free := pg.free; free != 0; n++ {
		ref := p<<pageBits | uint32(free-1)
		if int(free-1)%int(pg.size) != 0 || a.freed[ref] {
			a.fail("page %d: block %d of %d words is free twice, or is none", p, free-1, pg.size)
		}
		a.freed[ref] = true
		block := a.block(ref, int(pg.size))
		if slices.Max(block[1:]) != 0 {
			a.fail("page %d: the free block %d is not cleared: %x", p, free-1, block)
		}
		free = uint16(block[0])
	}
	if want := pageWords / int(pg.size); n+int(pg.live) != want {
		a.fail("page %d: %d blocks free and %d in use, want %d of %d words", p, n, pg.live, want, pg.size)
	}
}

// hold notes that something refers to a block of so many words.
func (a *audit) hold(ref uint32, words int, what string) {
	a.t.Helper()
	p := ref >> pageBits
	switch {
	case p == 0 || p >= a.fresh || a.spare[p]:
		a.fail("%s is at %d, on page %d, which is not in use", what, ref, p)
	case a.freed[ref]:
		a.fail("%s is at %d, which is free", what, ref)
	case a.held[ref] != "":
		a.fail("%s is at %d, as is %s", what, ref, a.held[ref])
	case int(a.pages[p].size) != words:
		a.fail("%s of %d words is on page %d: %+v", what, words, p, a.pages[p])
	}
	a.held[ref], a.words = what, a.words+words
}

// cells checks all cells, and returns those that are to be drained.
func (a *audit) cells() map[uint32]bool {
	keys, listed := 0, make(map[uint32]bool)
	for i, e := range a.entries {
		if e == 0 {
			continue
		}
		keys++
		ref := a.ref(e)
		c := a.cell(ref)
		m := a.table.meters.state(c.number())
		a.hold(ref, m.words, "a cell of "+m.meter.Rule)
		if found := a.find(m.id, c.key, a.hashOf(ref)); found != ref {
			a.fail("key %d of %s is in place %d of the index at %d, and is found at %d", c.key, m.meter.Rule, i,
				ref, found)
		}
		if c.has(pinned) {
			a.fail("key %d of %s is still kept from eviction", c.key, m.meter.Rule)
		}
		if c.has(dirty) {
			listed[ref] = true
		}
		a.counts(c, m)
		a.watch(c, m)
		if m.algorithm == SlidingLog {
			a.journal(c, m)
		}
	}
	if keys != a.keys {
		a.fail("%d cells are in the index, which says %d", keys, a.keys)
	}
	return listed
}

// hotKey checks that what is known of the demand for a key is where the cell says.
func (a *audit) watch(c *cell, m *meterState) {
	if c.hotKey == 0 {
		return
	}
	a.hold(c.hotKey, hotKeyWords, "a watch of "+m.meter.Rule)
	w := a.memory.hotKey(c.hotKey)
	for ref := w.peerRates; ref != 0; ref = a.memory.peerRate(ref).next {
		a.hold(ref, peerRateWords, "a voice of "+m.meter.Rule)
	}
	if w.owned != 0 {
		a.hold(w.owned, ownedRateWords, "an owner's rate of "+m.meter.Rule)
	}
	if w.estimate != 0 {
		a.hold(w.estimate, estimateWords, "a estimate of "+m.meter.Rule)
	}
}

// counts checks that a ring adds up, that slots come newest first, and that the ring holds no less than they count.
func (a *audit) counts(c *cell, m *meterState) {
	ring := c.counts(&m.shape)
	sum := uint64(0)
	for _, n := range ring[1:] {
		sum += n
	}
	if sum != c.inner {
		a.fail("key %d of %s: the ring %v adds up to %d, the cell says %d", c.key, m.meter.Rule, ring, sum, c.inner)
	}
	own, last := append([]uint64(nil), ring...), uint64(0)
	for ref := c.slots; ref != 0; ref = a.remote(ref).next {
		a.hold(ref, remoteWords, "a slot of "+m.meter.Rule)
		r := a.remote(ref)
		age := r.age(c)
		if age < last || age > uint64(m.n+1) {
			a.fail("key %d of %s: a slot %d sub-windows old comes after one of %d, of %d", c.key, m.meter.Rule, age,
				last, m.n)
		}
		if last = age; age == 0 {
			continue // ahead of the cell's time: in no ring yet
		}
		if i := len(own) - int(age); own[i] < r.count() {
			a.fail("key %d of %s: %v in place %d of the ring %v, where slots count %d more", c.key, m.meter.Rule,
				ring[i], i, ring, r.count()-own[i])
		} else {
			own[i] -= r.count()
		}
	}
}

// requestLog checks that a log's entries come in the order of time and add up.
func (a *audit) journal(c *cell, m *meterState) {
	j := c.requestLog()
	sum, newest, time := uint64(0), uint32(0), int64(0)
	for ref := j.oldest; ref != 0; ref = a.memory.entry(ref).next {
		a.hold(ref, entryWords, "an entry of "+m.meter.Rule)
		e := a.memory.entry(ref)
		if e.time < time {
			a.fail("key %d of %s: an entry %d ns before the one that it follows", c.key, m.meter.Rule, time-e.time)
		}
		sum, newest, time = sum+uint64(e.cost), ref, e.time
	}
	if sum != j.sum || newest != j.newest {
		a.fail("key %d of %s: the log adds up to %d and ends at %d, it says %d and %d", c.key, m.meter.Rule, sum,
			newest, j.sum, j.newest)
	}
}

// dirtyList checks that the cells to be drained are in the list of them, each once.
func (a *audit) dirtyList(dirty map[uint32]bool) {
	n, prev := 0, uint32(0)
	for ref := a.dirty.first; ref != 0; ref = a.cell(ref).next {
		if !dirty[ref] || a.cell(ref).prev != prev {
			a.fail("the cell at %d after %d is listed to be drained: %+v", ref, prev, *a.cell(ref))
		}
		n, prev = n+1, ref
	}
	if n != len(dirty) || prev != a.dirty.last {
		a.fail("%d cells are listed to be drained, the last at %d, want %d, the last at %d", n, prev, len(dirty),
			a.dirty.last)
	}
}

// earlyCells checks that the cells to be drained early come first in the list to drain, and have hot-key state.
func (a *audit) earlyCells() {
	listed := make(map[uint32]bool)
	for ref := a.dirty.first; ref != 0 && a.cell(ref).has(flushEarly); ref = a.cell(ref).next {
		if c := a.cell(ref); a.held[ref] == "" || c.hotKey == 0 {
			a.fail("the cell at %d is listed to be drained early: %+v", ref, *c)
		}
		listed[ref] = true
	}
	for _, e := range a.entries {
		if e != 0 && a.cell(a.ref(e)).has(flushEarly) != listed[a.ref(e)] {
			a.fail("the cell at %d is not listed to be drained early", a.ref(e))
		}
	}
}
