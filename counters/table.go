package counters

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Config says what a Table is to be.
type Config struct {
	// Origin is whose own counts the table keeps. It must differ at every boot of a node.
	Origin Origin
	// Region is where the table stands. What others send of the limits of scope Region is let go unless it is of this
	// one.
	Region string
	// Seed is what keys are strewn by. Where others choose keys it has to be random, and known to nobody.
	Seed uint64
	// Memory is the budget in bytes for cells, slots and what finds them, MinMemory at least; 0 means DefaultMemory. It
	// is taken as keys come, and shared out over 64 shards: when a shard has used up its part, cells go for those that
	// come. Beside it there are up to 5 % for what cells that went have still to tell, and what DrainDirty, Snapshot
	// and Own return.
	Memory int
}

// What a table's budget is, and may be.
const (
	DefaultMemory = 256 << 20
	MinMemory     = 4 << 20
	MaxMemory     = 1 << (30 + 6*(bits.UintSize/64)) // 64 GiB, or 1 GiB where words have 32 bits
)

const (
	shardBits = 6
	shards    = 1 << shardBits
)

// Table holds the counts of many keys, and decides. It is safe for concurrent use. Locks are taken in this order:
// drain, origins, shards by ascending number, meters, arena.
type Table struct {
	origin  Origin
	seed    uint64
	arena   arena
	shards  [shards]shard
	meters  meterTable
	origins originTable

	region     string
	clusters   [len(scopes)]atomic.Pointer[cluster] // by scope; of Alone it stays empty
	watermarks []atomic.Int64                       // by number of origin, see Heard
	earlyFlush chan struct{}                        // see Urgent

	drain      sync.Mutex // one drain at a time
	drainedAt  int64
	drainEvery float64                    // usual time between drains, in seconds
	sweep      struct{ shard, place int } // whose expired cells go next
	drained    []*meterState              // memory of the last drain
	known      []*meterState

	stats tableStats
	plausibility
}

type tableStats struct {
	evicted, evictedDenied, evictedRemote, evictedFull, forgotten, expired atomic.Uint64
	refused, originsRefused, retired, deniedByOne                          atomic.Uint64
}

// Stats are running totals of a Table, but for Keys and Bytes.
type Stats struct {
	Keys          int    // cells held now
	Bytes         int    // of the budget that cells, slots, and what finds them take now
	Expired       uint64 // cells that went because nothing in them counted any more
	Evicted       uint64 // cells that went to make room
	EvictedDenied uint64 // of those, cells whose last request was denied: so much else was used even more
	Forgotten     uint64 // cost that evicted cells still counted: what this table may admit again
	// slots that Merge would not take: from the future, of an invalid meter, too many, beyond belief
	Refused     uint64
	Implausible uint64 // of those, slots that count more than a node can have admitted

	// of the evicted, cells that only peers counted in: they had more than their share of the memory
	EvictedRemote  uint64
	EvictedFull    uint64 // of the evicted, cells with half of their limit or more: as much may be admitted again
	OriginsRefused uint64 // of the refused, slots of origins that are no members, of which their sender named too many
	OriginsRetired uint64 // origins that are no members any more and whose counts went, so that members find numbers
	DeniedByOne    uint64 // keys, once a sub-window each, that were denied because of one peer alone: see LastDenier
}

// shard is a part of the table under a lock of its own.
type shard struct {
	sync.Mutex
	index
	memory
	seed      uint64   // the table's
	ids       []uint64 // of meters, by number
	origins   *originTable
	dirty     struct{ first, last uint32 } // the cells to drain, those that were touched first before others
	unsent    []Slot                       // of cells that went
	maxUnsent int                          // beyond it, slots are not told any more: nobody drains
	drainedAt int64                        // when it last was
	early     []uint32                     // the cells to drain early
	births    uint32
	// until when a cell that went may still count somewhere: one created earlier needs a birth of its own
	gone      int64
	hand      int // where in the index the search for a cell to evict goes on
	remotes   int // cells that only peers counted in
	strangers int // slots of origins that were no members when peers named them
	_         [64]byte
}

// fixedBytes is what the registries take of the budget.
const fixedBytes = 480 << 10

// NewTable returns an empty table. A budget outside MinMemory to MaxMemory is a caller's bug, and panics.
func NewTable(cfg Config) *Table {
	if cfg.Memory == 0 {
		cfg.Memory = DefaultMemory
	}
	if cfg.Memory < MinMemory || cfg.Memory > MaxMemory {
		panic(fmt.Sprintf("counters: a budget of %d bytes is outside %d to %d", cfg.Memory, MinMemory, MaxMemory))
	}
	return newTable(cfg, (cfg.Memory-fixedBytes)/shards)
}

// newTable returns a table whose shards have so many bytes each.
func newTable(cfg Config, part int) *Table {
	t := &Table{origin: cfg.Origin, region: cfg.Region, seed: cfg.Seed, arena: newArena(part * shards),
		meters: newMeterTable(), origins: newOriginTable(),
		watermarks: make([]atomic.Int64, maxOrigins+1), earlyFlush: make(chan struct{}, 1)}
	for i := range t.clusters {
		t.clusters[i].Store(new(cluster))
	}
	for i := range t.shards {
		s := &t.shards[i]
		s.memory = newMemory(&t.arena, part-indexBytes(part))
		s.index = newIndex(&t.arena, part, s.memory.bitsOfRefs())
		s.maxUnsent = part / 1024
		s.seed, s.ids, s.origins = t.seed, t.meters.ids, &t.origins
	}
	return t
}

// Origin returns whose own counts the table keeps.
func (t *Table) Origin() Origin { return t.origin }

// Know tells the table the limits that are in force, instead of those that it knew before. What others count for a
// bucket that nobody asked this table for yet can then be debited as it comes, what no node can have admitted is not
// believed, and of the keys that use much of a limit their demand is sent. What was counted here of an ad-hoc limit
// ([Meter.AdHoc]) that is no more among them goes within the next drains, unless it is asked for again.
func (t *Table) Know(limits []*Limit) {
	t.drain.Lock()
	defer t.drain.Unlock()
	known := make([]*meterState, 0, len(limits))
	for _, m := range t.known {
		m.known = false
	}
	for _, l := range limits {
		if m := t.meters.acquire(l.id, &l.meter, true); m != nil {
			m.limit.Store(l)
			m.believes(l)
			m.known = true
			known = append(known, m)
		}
	}
	for _, m := range t.known {
		m.release()
	}
	t.known = known
}

// Take decides on a request of the given cost and counts it if it is admitted. A cost of 0 is a peek: it
// is answered as a cost of 1 and leaves no trace.
func (t *Table) Take(l *Limit, key Key, cost uint64, now int64) (d Decision) {
	h := hash(t.seed, l.id, key)
	if l.ban != nil {
		set := t.shardSet(l, key, h)
		t.lockSet(set)
		defer t.unlockAll(set)
		t.takeOrBan(l, key, h, cost, now, &d)
		return d
	}
	s := t.shardOf(h)
	s.Lock()
	defer s.Unlock()
	t.decide(t.settled(s, l, key, h, cost, true, now), l, cost, 0, take, &d)
	return d
}

// Charge is one layer of a request, or a request of a batch.
type Charge struct {
	Limit *Limit // nil: no rule, always admitted
	Key   Key
	Cost  uint64 // as in Take
	Mode  Mode   // of a layer: what its denial means for the request
	Each  bool   // of a layer: it is charged by every request that it admits, also where another layer denies
	// Overdraw, of a layer: the request is charged whatever becomes of it, up to twice the limit (rejected.go).
	Overdraw bool
	// Lender is whom an Elastic layer borrows from: the place among the charges of another layer, which is not Elastic,
	// counted from 1; or Idle; 0: from nobody.
	Lender uint8
}

// batch is how many requests TakeBatch decides on at a time: as many as a processor can wait for memory for at once.
const batch = 16

// TakeBatch decides on requests that have nothing to do with each other, as Take would one after the other, and appends
// a decision for each to dst. It brings the cells of several into the processor's cache at once, so that many keys that
// it has not seen for long cost it hardly more than a few.
func (t *Table) TakeBatch(charges []Charge, now int64, dst []Decision) []Decision {
	for len(charges) > 0 {
		part := charges[:min(batch, len(charges))]
		charges = charges[len(part):]
		dst = t.takePart(part, now, dst)
	}
	return dst
}

func (t *Table) takePart(charges []Charge, now int64, dst []Decision) []Decision {
	var hashes [batch]uint64
	locked := t.lockAll(charges, hashes[:])
	defer t.unlockAll(locked)
	t.touch(charges, hashes[:])
	for i := range charges {
		ch := &charges[i]
		dst = append(dst, Decision{})
		d := &dst[len(dst)-1]
		if ch.Limit == nil {
			d.Allowed = true
			continue
		}
		if ch.Limit.ban != nil {
			t.takeOrBan(ch.Limit, ch.Key, hashes[i], ch.Cost, now, d)
			continue
		}
		s := t.shardOf(hashes[i])
		t.decide(t.settled(s, ch.Limit, ch.Key, hashes[i], ch.Cost, true, now), ch.Limit, ch.Cost, 0, take, d)
	}
	return dst
}

// A cell is read ahead line by line of the processor's cache, as far as a window of twenty sub-windows goes.
const (
	lineWords    = 64 / wordBytes
	touchedWords = 4 * lineWords
)

// touch reads the places where the requests' cells are found, then the cells. No read waits for another, so that the
// processor waits for all of them together.
func (t *Table) touch(charges []Charge, hashes []uint64) {
	var entries [batch]uint32
	for i := range charges {
		if charges[i].Limit != nil {
			s := t.shardOf(hashes[i])
			entries[i] = s.entries[s.home(hashes[i])]
		}
	}
	var sum uint64
	for i := range charges {
		s := t.shardOf(hashes[i])
		if e := entries[i]; e != 0 {
			ref := s.ref(e)
			// what is there may be another, shorter cell
			end := min(ref+min(uint32(charges[i].Limit.words), touchedWords), (ref|(pageWords-1))+1)
			for at := ref; at < end; at += lineWords {
				sum += *(*uint64)(s.at(at))
			}
			sum += *(*uint64)(s.at(end - 1))
		}
	}
	touched(sum)
}

// touched keeps the compiler from leaving reads out.
//
//go:noinline
func touched(uint64) {}

// MaxLayers is how many layers TakeAll accepts.
const MaxLayers = 32

// TakeAll decides on a request that meets several limits and charges it in all of them, or in none if it is denied: by
// one of them, unless modes say otherwise. It appends a decision for each layer to dst, in order; the request is
// allowed if and only if all of them are. Of a request that is denied, the other layers' decisions say that they would
// have admitted it. A layer that denies but may not, by its mode, is waived, and not charged, but for a full lender
// (elastic.go). More than MaxLayers charges is a caller's bug and panics, and so is a Lender that is none of them.
func (t *Table) TakeAll(charges []Charge, now int64, dst []Decision) []Decision {
	if len(charges) > MaxLayers {
		panic(fmt.Sprintf("counters: %d layers, at most %d are allowed", len(charges), MaxLayers))
	}
	var hashes [MaxLayers]uint64
	locked := t.lockAll(charges, hashes[:])
	defer t.unlockAll(locked)

	var layers [MaxLayers]layer
	first, elastic := len(dst), false
	for i := range charges {
		ch := &charges[i]
		elastic = elastic || ch.Mode == Elastic
		dst = append(dst, Decision{})
		if ch.Limit == nil {
			dst[first+i].Allowed = true
			continue
		}
		before := chargedBefore(charges[:i], dst[first:], ch)
		if ch.Limit.ban != nil && t.banned(ch.Limit, ch.Key, hashes[i], ch.Cost, before, now, &dst[first+i]) {
			continue
		}
		counts := ch.Limit.countsRejected && ch.Cost > ch.Limit.max // it is denied, and counted at once
		layers[i] = t.settled(t.shardOf(hashes[i]), ch.Limit, ch.Key, hashes[i], ch.asked(), counts, now)
		if c := layers[i].cell; c != nil {
			c.raise(pinned) // so that no later layer evicts it
		}
		t.decide(layers[i], ch.Limit, ch.Cost, before, ask, &dst[first+i])
	}
	decisions := dst[first:]
	if elastic {
		lend(charges, decisions)
	}
	passes := admit(charges, decisions)
	// Cells are made only now: one who is denied somewhere pushes nobody out elsewhere.
	for i := range charges {
		ch := &charges[i]
		charged := ch.charged(&decisions[i], passes)
		if !charged && !ch.overdraws(&decisions[i]) || layers[i].cell != nil || ch.Cost == 0 {
			continue
		}
		cost := min(ch.Cost, ch.Limit.max) // a lender may be charged more than it holds
		layers[i] = t.settled(t.shardOf(hashes[i]), ch.Limit, ch.Key, hashes[i], cost, true, now)
		if layers[i].cell == nil { // there is no room at all
			if !charged {
				continue // it was denied already
			}
			decisions[i] = Decision{}
			ch.Limit.refuse(&decisions[i])
			passes = admit(charges, decisions)
			continue
		}
		layers[i].cell.raise(pinned)
	}
	for i := range charges {
		ch, y := &charges[i], layers[i]
		switch {
		case y.cell == nil || ch.Cost == 0:
		case ch.overdraws(&decisions[i]):
			t.countDenied(y, ch.Limit, ch.Cost, 0, &decisions[i])
		case !ch.charged(&decisions[i], passes):
		case decisions[i].Waived:
			t.overcharge(y, ch, &decisions[i])
		default:
			decisions[i] = Decision{}
			t.decide(y, ch.Limit, ch.Cost, 0, charge, &decisions[i])
		}
	}
	waive(charges, decisions)
	for _, y := range layers[:len(charges)] {
		if y.cell != nil {
			y.cell.lower(pinned)
		}
	}
	t.banAll(charges, layers[:], now, decisions) // last: it evicts cells
	return dst
}

// asked is what the key of a layer is asked for: what may be overdrawn, for no more than its limit.
func (ch *Charge) asked() uint64 {
	if ch.Overdraw {
		return min(ch.Cost, ch.Limit.max)
	}
	return ch.Cost
}

// shardOf is the shard of a hash.
func (t *Table) shardOf(h uint64) *shard { return &t.shards[h>>(64-shardBits)] }

// layer is where one charge of a request is decided.
type layer struct {
	shard *shard
	cell  *cell
	at    instant
}

// chargedBefore is what the layers before charge to the same key of the same meter: those that meet in one cell have to
// fit together. One that denies, but may be waived, takes no room.
func chargedBefore(before []Charge, decisions []Decision, ch *Charge) (sum uint64) {
	for i := range before {
		b := &before[i]
		if !decisions[i].Allowed && (b.Mode == Shadow || b.Mode == Quota || b.Mode == Elastic) {
			continue
		}
		if b.Limit != nil && b.Key == ch.Key && b.Limit.id == ch.Limit.id && b.Limit.chargeable(b.Cost) {
			sum = min(sum+min(b.Cost, 2*MaxLimit), 2*MaxLimit)
		}
	}
	return sum
}

// lockAll notes the hashes of all charges and locks their shards, in ascending order so that requests cannot wait for
// each other in a ring.
func (t *Table) lockAll(charges []Charge, hashes []uint64) uint64 {
	var set uint64 // a bit a shard
	for i := range charges {
		if l := charges[i].Limit; l != nil {
			hashes[i] = hash(t.seed, l.id, charges[i].Key)
			set |= t.shardSet(l, charges[i].Key, hashes[i])
		}
	}
	t.lockSet(set)
	return set
}

// shardSet is the shards, a bit each, of a key and of its ban.
func (t *Table) shardSet(l *Limit, key Key, h uint64) uint64 {
	set := uint64(1) << (h >> (64 - shardBits))
	if l.ban != nil {
		set |= 1 << (hash(t.seed, l.ban.id, key) >> (64 - shardBits))
	}
	return set
}

// lockShards is lockAll for hashes that are known.
func (t *Table) lockShards(hashes []uint64) uint64 {
	var set uint64
	for _, h := range hashes {
		set |= 1 << (h >> (64 - shardBits))
	}
	t.lockSet(set)
	return set
}

func (t *Table) lockSet(set uint64) {
	for ; set != 0; set &= set - 1 {
		t.shards[bits.TrailingZeros64(set)].Lock()
	}
}

func (t *Table) unlockAll(set uint64) {
	for ; set != 0; set &= set - 1 {
		t.shards[bits.TrailingZeros64(set)].Unlock()
	}
}

// View is what is used of the limit now, as far as this table knows: the count of the window that ends now, or a
// bucket's debt.
func (t *Table) View(l *Limit, key Key, now int64) uint64 {
	h := hash(t.seed, l.id, key)
	s := t.shardOf(h)
	s.Lock()
	defer s.Unlock()
	return t.used(s, l, key, h, now)
}

// used is View in a shard that is locked.
func (t *Table) used(s *shard, l *Limit, key Key, h uint64, now int64) uint64 {
	ref := s.find(l.id, key, h)
	if ref == 0 {
		return 0
	}
	c := s.cell(ref)
	at, ok := s.settle(c, &l.shape, now)
	if !ok {
		return 0
	}
	if l.algorithm.bucket() {
		t.debitPending(s, l, c, at)
	}
	return s.view(c, t.meters.states[c.meter], at)
}

// Stats returns the table's totals.
func (t *Table) Stats() Stats {
	st := Stats{
		Bytes:         fixedBytes,
		Expired:       t.stats.expired.Load(),
		Evicted:       t.stats.evicted.Load(),
		EvictedDenied: t.stats.evictedDenied.Load(),
		Forgotten:     t.stats.forgotten.Load(),
		Refused:       t.stats.refused.Load(),
		Implausible:   t.implausible.Load(),

		EvictedRemote:  t.stats.evictedRemote.Load(),
		EvictedFull:    t.stats.evictedFull.Load(),
		OriginsRefused: t.stats.originsRefused.Load(),
		OriginsRetired: t.stats.retired.Load(),
		DeniedByOne:    t.stats.deniedByOne.Load(),
	}
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		st.Keys += s.keys
		st.Bytes += s.used*wordBytes + len(s.entries)*4
		s.Unlock()
	}
	return st
}
