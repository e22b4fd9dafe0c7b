package counters

// cell is what a table keeps of one meter and key: rings of sub-window counts, one a row. Row 0 is the total of all
// others, on which decisions are made; row 1 is this table's own; one more row for each remote origin and birth.
type cell struct {
	id      cellID
	meter   *meterState
	current int64    // the sub-window of the cell's time; the rings hold from the window's oldest before it to one after
	rings   []uint64 // rows of meter.size places
	rows    []row    // the remote rows, from row 2 on

	birth   uint32
	touched bool   // on its shard's list of cells to drain
	denied  bool   // the last decision was a denial: evicted last
	pinned  bool   // a layer of the request that is being decided: not evicted
	changed uint64 // places of the own ring that changed since the last drain, a bit each
	offered uint64 // cost asked for since the last drain, admitted or not
	used    int64  // when a request or a remote count last came, by the cell's time
}

// row names whose counts a remote ring holds.
type row struct {
	origin Origin
	birth  uint32
}

const (
	totalRow = iota
	ownRow
	remoteRows
)

// maxRows caps what peers can make a cell hold. It is far above the largest cluster.
const maxRows = 4096

func newCell(id cellID, m *meterState, birth uint32, current int64) *cell {
	return &cell{id: id, meter: m, birth: birth, current: current, rings: make([]uint64, remoteRows*m.size)}
}

func (c *cell) ring(row int) []uint64 {
	return c.rings[row*c.meter.size : (row+1)*c.meter.size]
}

func (c *cell) total() []uint64 { return c.ring(totalRow) }

// advance brings the cell to the sub-window index, and lets go what falls out of the window. Remote rows left without a count go
// as well.
func (c *cell) advance(index int64) {
	if index <= c.current {
		return
	}
	size := c.meter.size
	if index-c.current >= int64(size) {
		clear(c.rings)
		c.changed = 0
	} else {
		for i := c.current + 1; i <= index; i++ {
			p := place(i+1, size)
			for r := p; r < len(c.rings); r += size {
				c.rings[r] = 0
			}
			c.changed &^= 1 << p
		}
	}
	c.current = index
	c.dropEmptyRows()
}

func (c *cell) dropEmptyRows() {
	kept := 0
	for i, r := range c.rows {
		ring := c.ring(remoteRows + i)
		if isZero(ring) {
			continue
		}
		if kept != i {
			c.rows[kept] = r
			copy(c.ring(remoteRows+kept), ring)
		}
		kept++
	}
	c.rows = c.rows[:kept]
	c.rings = c.rings[:(remoteRows+kept)*c.meter.size]
}

func isZero(ring []uint64) bool {
	for _, n := range ring {
		if n != 0 {
			return false
		}
	}
	return true
}

// settle brings the cell to the time now and returns where now stands in its rings. Where the clock went back a little, the
// cell stays where it was; where it went back by more than the window, what the cell holds belongs to no time that will
// come soon, and the caller replaces it (ok is false).
func (c *cell) settle(now int64) (at instant, ok bool) {
	m := &c.meter.Meter
	at = m.at(now)
	if back := c.current - at.index; back > 0 {
		at = m.at(c.current * int64(m.Sub))
		at.now = now // from which waits are told
		return at, back <= int64(m.SubWindows())
	}
	c.advance(at.index)
	return at, true
}

// use notes that a request or a remote count came. Where the clock went back, what it counts is of the cell's time.
func (c *cell) use(now int64) { c.used = max(c.used, now, c.current*int64(c.meter.Sub)) }

// charge counts an admitted cost in the sub-window of the instant.
func (c *cell) charge(cost uint64, at instant) {
	p := place(at.index, c.meter.size)
	c.total()[p] = addSaturated(c.total()[p], cost)
	own := c.ring(ownRow)
	own[p] = addSaturated(own[p], cost)
	c.changed |= 1 << p
}

// merge raises a remote slot to the count, and reports whether that was news, and whether there was no row for it.
func (c *cell) merge(s *Slot) (novel, full bool) {
	if s.Index < c.current-int64(c.meter.SubWindows()) || s.Index > c.current+1 || s.Count == 0 {
		return false, false
	}
	i := 0
	for i < len(c.rows) && (c.rows[i].origin != s.Origin || c.rows[i].birth != s.Birth) {
		i++
	}
	if i == len(c.rows) {
		if i == maxRows {
			return false, true
		}
		c.rows = append(c.rows, row{s.Origin, s.Birth})
		c.rings = append(c.rings, make([]uint64, c.meter.size)...)
	}
	p := place(s.Index, c.meter.size)
	known := &c.ring(remoteRows + i)[p]
	if s.Count <= *known {
		return false, false
	}
	total := &c.total()[p]
	*total = addSaturated(*total, s.Count-*known)
	*known = s.Count
	return true, false
}

// countSlots is how many slots the cell holds, of all origins.
func (c *cell) countSlots() (n int) {
	for _, count := range c.rings[c.meter.size:] {
		if count != 0 {
			n++
		}
	}
	return n
}

// appendSlots appends the slots of a row: those of the places in the mask that hold a count in the window of the instant.
func (c *cell) appendSlots(dst []Slot, r int, whose row, mask uint64, at instant) []Slot {
	ring := c.ring(r)
	oldest := max(at.index, c.current) - int64(c.meter.SubWindows())
	for index := oldest; index <= c.current+1; index++ {
		p := place(index, len(ring))
		if ring[p] != 0 && mask&(1<<p) != 0 {
			dst = append(dst, Slot{Meter: &c.meter.Meter, Key: c.id.key, Index: index,
				Origin: whose.origin, Birth: whose.birth, Count: ring[p]})
		}
	}
	return dst
}
