package counters

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Config says what a Table is to be.
type Config struct {
	// Origin is whose own counts the table keeps. It must differ at every boot of a node.
	Origin Origin
	// MaxKeys caps the cells that the table holds; at the cap a cell goes for each that comes. It is shared out over 64 shards, in
	// whole cells and at least one each. 0 means DefaultMaxKeys.
	MaxKeys int
}

// DefaultMaxKeys is the cap on a table's cells: some hundred megabytes with ten sub-windows.
const DefaultMaxKeys = 1 << 20

const (
	shardBits = 6
	shards    = 1 << shardBits
)

// Table holds the counts of many keys, and decides. It is safe for concurrent use. Locks are taken in this order: drain,
// shards by ascending number, meters.
type Table struct {
	origin Origin
	cap    int // cells a shard
	shards [shards]shard

	drain      sync.Mutex // one drain at a time
	drainedAt  int64
	drainEvery float64 // usual time between drains, in seconds
	sweep      int     // the shard whose expired cells go next

	meters meterTable
	stats  tableStats
}

type tableStats struct {
	evicted, forgotten, expired, refused atomic.Uint64
}

// Stats are running totals of a Table, but for Keys.
type Stats struct {
	Keys      int    // cells held now
	Expired   uint64 // cells that went because their window had passed
	Evicted   uint64 // cells that went to make room
	Forgotten uint64 // cost that evicted cells still counted: what this table may admit again
	Refused   uint64 // slots that Merge would not take: from the future, of an invalid meter, too many
}

type shard struct {
	sync.Mutex
	cells   map[cellID]*cell
	touched []*cell
	births  uint32
	gone    int64 // until when a cell that went may still count somewhere: one created earlier needs a birth of its own
	_       [64]byte
}

type cellID struct {
	meter uint64
	key   Key
}

// NewTable returns an empty table.
func NewTable(cfg Config) *Table {
	if cfg.MaxKeys <= 0 {
		cfg.MaxKeys = DefaultMaxKeys
	}
	t := &Table{origin: cfg.Origin, cap: max(1, cfg.MaxKeys/shards)}
	for i := range t.shards {
		t.shards[i].cells = make(map[cellID]*cell)
	}
	t.meters.byID = make(map[uint64]*meterState)
	return t
}

// Origin returns whose own counts the table keeps.
func (t *Table) Origin() Origin { return t.origin }

func (id cellID) shard() int {
	return int((uint64(id.key) ^ id.meter) * 0x9e3779b97f4a7c15 >> (64 - shardBits))
}

// Take decides on a request of the given cost (at most MaxLimit) and charges it if it is admitted. A cost of 0 is a peek: it
// is answered as a cost of 1 and leaves no trace.
func (t *Table) Take(l *Limit, key Key, cost uint64, now int64) Decision {
	id := cellID{l.id, key}
	s := &t.shards[id.shard()]
	s.Lock()
	defer s.Unlock()
	c, at := t.settled(s, l, id, cost, now)
	d := decide(c, l, cost, 0, at)
	if d.Allowed && cost > 0 {
		charge(c, &d, cost, at)
	}
	return d
}

// Charge is one layer of a request.
type Charge struct {
	Limit *Limit // nil: no rule, always admitted
	Key   Key
	Cost  uint64 // as in Take; the same for all layers
}

// MaxLayers is how many layers TakeAll accepts.
const MaxLayers = 32

// TakeAll decides on a request that meets several limits and charges it in all of them, or in none if any of them denies.
// It appends a decision for each layer to dst, in order; of a request that is denied, the other layers' decisions say that
// they would have admitted it. More than MaxLayers charges is a caller's bug and panics.
func (t *Table) TakeAll(charges []Charge, now int64, dst []Decision) []Decision {
	if len(charges) > MaxLayers {
		panic(fmt.Sprintf("counters: %d layers, at most %d are allowed", len(charges), MaxLayers))
	}
	locked := t.lockAll(charges)
	defer t.unlockAll(locked)

	var cells [MaxLayers]*cell
	var ats [MaxLayers]instant
	allowed, first := true, len(dst)
	for i := range charges {
		ch := &charges[i]
		if ch.Limit == nil {
			dst = append(dst, Decision{Allowed: true})
			continue
		}
		id := cellID{ch.Limit.id, ch.Key}
		cells[i], ats[i] = t.settled(&t.shards[id.shard()], ch.Limit, id, ch.Cost, now)
		if cells[i] != nil {
			cells[i].pinned = true // so that no later layer evicts it
		}
		// Layers that meet in one cell have to fit together.
		var before uint64
		for j := range i {
			if cells[j] != nil && cells[j] == cells[i] {
				before += charges[j].Cost
			}
		}
		d := decide(cells[i], ch.Limit, ch.Cost, before, ats[i])
		allowed = allowed && d.Allowed
		dst = append(dst, d)
	}
	for i, c := range cells[:len(charges)] {
		if c == nil {
			continue
		}
		c.pinned = false
		if allowed && charges[i].Cost > 0 {
			charge(c, &dst[first+i], charges[i].Cost, ats[i])
		}
	}
	return dst
}

// lockAll locks the shards of all charges, in ascending order so that requests cannot wait for each other in a ring.
func (t *Table) lockAll(charges []Charge) uint64 {
	var set uint64 // a bit a shard
	for i := range charges {
		if charges[i].Limit != nil {
			set |= 1 << cellID{charges[i].Limit.id, charges[i].Key}.shard()
		}
	}
	for i := range t.shards {
		if set&(1<<i) != 0 {
			t.shards[i].Lock()
		}
	}
	return set
}

func (t *Table) unlockAll(set uint64) {
	for i := range t.shards {
		if set&(1<<i) != 0 {
			t.shards[i].Unlock()
		}
	}
}

// View is the count of the limit's window that ends now, as far as this table knows.
func (t *Table) View(l *Limit, key Key, now int64) uint64 {
	id := cellID{l.id, key}
	s := &t.shards[id.shard()]
	s.Lock()
	defer s.Unlock()
	c, at := t.settled(s, l, id, 0, now)
	if c == nil {
		return 0
	}
	return view(c.total(), &c.meter.Meter, at)
}

// settled finds the cell, brings it to now and notes what is asked of it. For a peek, a cost of 0, and for a cost that no wait can
// make room for it makes no cell: it may return nil.
func (t *Table) settled(s *shard, l *Limit, id cellID, cost uint64, now int64) (*cell, instant) {
	c, at := s.cells[id], l.meter.at(now)
	if c != nil {
		if in, ok := c.settle(now); ok {
			at = in
		} else {
			if l.chargeable(cost) {
				t.remove(s, c)
			}
			c = nil
		}
	}
	if !l.chargeable(cost) {
		return c, at
	}
	if c == nil {
		c = t.create(s, t.localMeter(l), id, at.index, now)
	}
	c.offered = addSaturated(c.offered, cost)
	c.use(now)
	if !c.touched {
		c.touched = true
		s.touched = append(s.touched, c)
	}
	return c, at
}

// decide answers a request without charging it. `before` is what the same request charges to the same cell already. The cell is
// nil where a key was never charged, and is not to be.
func decide(c *cell, l *Limit, cost, before uint64, at instant) Decision {
	d := Decision{Allowed: true, Rule: l.meter.Rule, Window: l.meter.Window, Limit: l.max, Remaining: l.max}
	asked := max(cost, 1)
	if c == nil {
		if asked > l.max {
			d.Allowed, d.RetryAfter = false, Never
		}
		return d
	}
	ring, m := c.total(), &c.meter.Meter
	seen := addSaturated(view(ring, m, at), before)
	d.Remaining = l.max - min(seen, l.max)
	d.ResetAfter = resetAfter(ring, m, at)
	if asked > d.Remaining {
		d.Allowed = false
		d.RetryAfter = roomAfter(ring, m, at, l.max, addSaturated(asked, before))
	}
	if l.chargeable(cost) {
		c.denied = !d.Allowed
	}
	return d
}

func charge(c *cell, d *Decision, cost uint64, at instant) {
	c.charge(cost, at)
	d.Remaining -= min(cost, d.Remaining)
	d.ResetAfter = resetAfter(c.total(), &c.meter.Meter, at)
}

// Stats returns the table's totals.
func (t *Table) Stats() Stats {
	st := Stats{
		Expired:   t.stats.expired.Load(),
		Evicted:   t.stats.evicted.Load(),
		Forgotten: t.stats.forgotten.Load(),
		Refused:   t.stats.refused.Load(),
	}
	for i := range t.shards {
		t.shards[i].Lock()
		st.Keys += len(t.shards[i].cells)
		t.shards[i].Unlock()
	}
	return st
}
