package counters

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Config configures a Table.
type Config struct {
	// Origin is the origin of the table's own counts. It must differ at every boot of a node.
	Origin Origin
	// Region is the table's region. Merge ignores counts of other regions' limits of scope Region.
	Region string
	// Seed seeds the hash of keys. It must be random and secret if others choose keys.
	Seed uint64
	// Memory is the budget in bytes for cells, slots and indexes, at least MinMemory; 0 means DefaultMemory. The table
	// takes it as keys come. Each of the 64 shards has an equal part: when it is used up, the shard evicts cells for
	// new ones. Unsent counts of evicted cells, and the results of DrainDirty, Snapshot and Own come on top: up to 5 %.
	Memory int
}

// Bounds of Config.Memory.
const (
	DefaultMemory = 256 << 20
	MinMemory     = 4 << 20
	MaxMemory     = 1 << (30 + 6*(bits.UintSize/64)) // 64 GiB, or 1 GiB where words have 32 bits
)

const (
	shardBits = 6
	shards    = 1 << shardBits
)

// Table holds the counts of many keys of up to [MaxMeters] meters, and decides. It is safe for concurrent use. Locks
// are taken in this order: drain, origins, shards by ascending number, sums, meters, arena.
type Table struct {
	origin  Origin
	seed    uint64
	arena   arena
	shards  [shards]shard
	meters  meterTable
	origins originTable

	region     string
	clusters   [len(scopes)]atomic.Pointer[cluster] // by scope; always empty for Alone
	earlyFlush chan struct{}                        // see EarlyFlush

	drain      sync.Mutex // one drain at a time; guards the fields below
	drainedAt  int64
	drainEvery float64                    // usual time between drains in seconds
	sweep      struct{ shard, place int } // where expire continues
	drained    []*meterState              // buffer of the last drain
	watched    []watchedKey               // buffer of the drain of a shard
	known      []*meterState
	refresh    refresh

	sums  sums // see addup.go
	stats tableStats
	plausibility
	debts  atomic.Pointer[Debts]  // nil: none
	owners atomic.Pointer[Owners] // nil: every node sends to every other one

	bans banFeed
}

type tableStats struct {
	evicted, evictedDenied, evictedRemote, evictedFull, forgotten, expired atomic.Uint64
	refused, originsRefused, retired, deniedByOne                          atomic.Uint64
}

// Stats are totals since the table was made, except Keys and Bytes.
type Stats struct {
	Keys           int    // current cells
	Bytes          int    // currently used part of the budget
	Expired        uint64 // cells removed because they counted nothing any more
	Evicted        uint64 // cells removed to make room
	EvictedDenied  uint64 // evicted cells whose last request was denied: all others were even more in use
	EvictedRemote  uint64 // evicted cells that only peers counted in: those had more than their share of the memory
	EvictedFull    uint64 // evicted cells with half of their limit or more: the table may admit as much again
	Forgotten      uint64 // cost that evicted cells still counted: the table may admit as much again
	Refused        uint64 // slots that Merge refused: future, invalid, too many, or implausible
	Implausible    uint64 // refused slots that count more than a node can have admitted
	OriginsRefused uint64 // refused slots of non-members' origins, of which their sender named too many
	OriginsRetired uint64 // non-members' origins whose counts were dropped to free numbers for members
	DeniedByOne    uint64 // keys, once per sub-window, denied because of a single peer: see LastDenier
}

type shard struct {
	sync.Mutex
	index
	memory
	seed      uint64   // the table's
	ids       []uint64 // of meters, by number
	origins   *originTable
	dirty     struct{ first, last uint32 } // list of cells to drain, those to drain early first
	unsent    []Slot                       // of removed cells
	maxUnsent int                          // maximum of unsent: nobody may be draining
	drainedAt int64                        // time of the last drain
	births    uint32
	gone      int64                     // until when a new cell needs another birth, as a removed one may count
	hand      int                       // position in the index after which eviction continues
	remotes   int                       // cells that only peers counted in
	strangers int                       // slots of strangers' origins, see originState
	bans      banChanges                // see Table.WatchBans
	ownCounts [MaxSubWindows + 1]uint64 // buffer of own
	_         [64]byte
}

// fixedBytes is the part of the budget that the registries take, with eight thousand meters and five thousand origins.
// Each meter beyond takes 20 bytes more, a small part of what its rule takes, and each origin beyond 60.
const fixedBytes = 480 << 10

// NewTable returns an empty table. It panics if the budget is outside MinMemory to MaxMemory.
func NewTable(cfg Config) *Table {
	if cfg.Memory == 0 {
		cfg.Memory = DefaultMemory
	}
	if cfg.Memory < MinMemory || cfg.Memory > MaxMemory {
		panic(fmt.Sprintf("counters: a budget of %d bytes is outside %d to %d", cfg.Memory, MinMemory, MaxMemory))
	}
	return newTable(cfg, (cfg.Memory-fixedBytes)/shards)
}

// newTable returns a table with so many bytes per shard.
func newTable(cfg Config, part int) *Table {
	t := &Table{origin: cfg.Origin, region: cfg.Region, seed: cfg.Seed, arena: newArena(part * shards),
		meters: newMeterTable(), origins: newOriginTable(), earlyFlush: make(chan struct{}, 1)}
	for i := range t.clusters {
		t.clusters[i].Store(new(cluster))
	}
	for i := range t.shards {
		s := &t.shards[i]
		s.memory = newMemory(&t.arena, part-4*indexEntries(part))
		s.index = newIndex(&t.arena, part, s.memory.bitsOfRefs())
		s.maxUnsent = part / 1024
		s.seed, s.ids, s.origins = t.seed, t.meters.ids, &t.origins
	}
	return t
}

// Origin returns the origin of the table's own counts.
func (t *Table) Origin() Origin { return t.origin }

// Know sets the limits in force, in place of the previous ones. For a known limit the table debits what others take
// from a bucket before it is asked for the key itself, refuses implausible counts, and sends the demand for keys near
// the limit. Counts of an ad-hoc limit ([Meter.AdHoc]) that is not among them any more go with the next drains, unless
// the limit is used again. A limit beyond [MaxMeters] stays unknown.
func (t *Table) Know(limits []*Limit) {
	t.drain.Lock()
	defer t.drain.Unlock()
	known, banning := make([]*meterState, 0, len(limits)), make(map[uint64]*Limit)
	for _, m := range t.known {
		m.known = false
	}
	for _, l := range limits {
		for _, b := range [...]*banSpec{l.ban, l.addressBan} {
			if b != nil {
				banning[b.id] = l
			}
		}
		if m := t.meters.acquire(&l.spec, true); m != nil {
			m.limit.Store(l)
			m.known = true
			known = append(known, m)
			if l.class == nil {
				// Never lowered: counts by an old limit still come after a new one is known.
				raise(&m.maxCount, l.maxSlot())
				continue
			}
		}
		if l.class == nil {
			continue
		}
		if m := t.meters.acquire(&l.class.credit, true); m != nil {
			m.known = true
			known = append(known, m)
		}
	}
	for _, m := range t.known {
		m.release()
	}
	t.known = known
	t.bans.limits.Store(&banning)
}

// take is Take with the shards of the key and of its ban locked.
func (t *Table) take(l *Limit, key, address Key, h, cost uint64, now int64, d *Decision) {
	if l.ban != nil && t.banned(l, key, address, h, cost, 0, now, d) {
		return
	}
	y := t.settled(t.shardOf(h), l, key, h, cost, true, now)
	if l.tallies {
		t.tally(y, l, cost, t.tallyHeld(y, l, cost), now, d)
	} else {
		t.decide(y, l, cost, 0, take, d)
	}
	if l.ban != nil && y.cell != nil {
		t.ban(l, key, address, cost, now, d)
	}
}

// Charge is one layer of a request.
type Charge struct {
	Limit *Limit // nil: no rule, always admitted
	Key   Key
	Cost  uint64 // as in Take
	// Address is the AddressKey of whom a limit with BanAddresses bans in place of Key; 0: unknown, or no address.
	Address Key

	Pending  uint64 // cost that is to be charged later: there has to be room for it, too
	Mode     Mode   // what the layer's denial means for the request
	Each     bool   // charge every request that this layer admits, even if another layer denies it
	Overdraw bool   // charge the request even if it is denied, up to twice the limit (rejected.go)
	// Lender is the layer that an Elastic layer borrows from, as its position among the charges, counted from 1. The
	// lender must not be Elastic itself, nor Decided. Idle: from the idle system. 0: from nobody.
	Lender uint8
	// Decided is the decision on the layer that was made elsewhere, see elsewhere.go; nil: the table decides.
	Decided *Decision
	// Counts has the table count what was decided elsewhere.
	Counts bool
	asked  bool // by Ask
}

// MaxLayers is the maximum number of charges of TakeAll and Report.
const MaxLayers = 32

// TakeAll decides on a request under several limits. It charges all of them, or none if one of them denies; modes
// ([Mode]) and Charge.Each may change that. It appends a decision for each layer to dst, in order; the request is
// allowed if and only if all decisions are. Of a denied request, the decisions of the other layers say that they would
// have admitted it. A layer whose denial does not count, by its mode, is waived and not charged, except a full lender
// (elastic.go). TakeAll panics if there are more than MaxLayers charges, or if a Lender is none of them.
func (t *Table) TakeAll(charges []Charge, now int64, dst []Decision) []Decision {
	return t.takeAll(charges, false, now, dst)
}

// takeAll is TakeAll, or with asks Ask.
func (t *Table) takeAll(charges []Charge, asks bool, now int64, dst []Decision) []Decision {
	var hashes [MaxLayers]uint64
	locked := t.lockAll(charges, hashes[:])
	defer t.unlockSet(locked)

	var layers [MaxLayers]layer
	first, tallies, elsewhere := len(dst), false, false
	for i := range charges {
		ch := &charges[i]
		dst = append(dst, Decision{})
		d := &dst[first+i]
		if ch.Limit == nil {
			d.Allowed = true
			continue
		}
		before := min(chargedBefore(charges[:i], dst[first:], ch)+ch.Pending, 2*MaxLimit)
		if ch.Limit.ban != nil && t.banned(ch.Limit, ch.Key, ch.Address, hashes[i], ch.Cost, before, now, d) {
			continue
		}
		if ch.Decided != nil {
			*d, elsewhere = *ch.Decided, true
			continue
		}
		if ch.Limit.tallies {
			layers[i] = t.settled(t.shardOf(hashes[i]), ch.Limit, ch.Key, hashes[i], ch.Cost, true, now)
			layers[i].pin(true)
			tallies = true
			continue
		}
		cost := ch.Cost
		if ch.Overdraw {
			cost = min(cost, ch.Limit.max)
		}
		counts := ch.Limit.countsRejected && ch.Cost > ch.Limit.max // the denial is counted at once
		how := ask
		if ch.asked {
			cost, counts, how = 0, false, askAgain // the demand is recorded
		}
		layers[i] = t.settled(t.shardOf(hashes[i]), ch.Limit, ch.Key, hashes[i], cost, counts, now)
		layers[i].pin(true) // no later layer may evict it
		t.decide(layers[i], ch.Limit, ch.Cost, before, how, d)
	}
	decisions := dst[first:]
	if tallies {
		t.tallyAll(charges, layers[:], now, decisions)
	}
	lend(charges, decisions)
	passes := admit(charges, decisions)
	if asks && passes {
		applyModes(charges, decisions)
		for i := range charges {
			layers[i].pin(false)
			charges[i].asked = charges[i].Decided == nil
		}
		return dst
	}
	// New cells are made only now: a request that is denied evicts nobody.
	for i := range charges {
		ch, d := &charges[i], &decisions[i]
		charged := ch.charged(d, passes)
		if !charged && !ch.overdraws(d) || ch.Cost == 0 || ch.Limit.tallies {
			continue
		}
		// A lender may be charged more than its limit: settled above took that for a request that charges nothing.
		unsettled := ch.Cost > ch.Limit.max && !ch.Overdraw && !ch.Limit.countsRejected
		if layers[i].cell != nil && !unsettled || ch.Decided != nil {
			continue
		}
		cost := min(ch.Cost, ch.Limit.max)
		layers[i] = t.settled(t.shardOf(hashes[i]), ch.Limit, ch.Key, hashes[i], cost, true, now)
		layers[i].pin(true)
		if layers[i].cell == nil && charged {
			ch.Limit.refuse(d)
			passes = admit(charges, decisions)
		}
	}
	for i := range charges {
		ch, y, d := &charges[i], layers[i], &decisions[i]
		switch {
		case y.cell == nil || ch.Cost == 0 || ch.Limit.tallies:
		case ch.overdraws(d):
			t.countDenied(y, ch.Limit, ch.Cost, 0, d)
		case !ch.charged(d, passes):
		case d.Waived:
			t.overcharge(y, ch, d)
		default:
			*d = Decision{}
			t.decide(y, ch.Limit, ch.Cost, 0, charge, d)
		}
		if ch.asked && y.cell != nil && ch.Cost > 0 { // a drain may have come since Ask recorded the demand
			y.shard.noteDemand(y.shard.find(ch.Limit.id, ch.Key, hashes[i]), y.cell, ch.Limit)
		}
	}
	if elsewhere {
		t.countDecided(charges, decisions, hashes[:], passes, now)
	}
	applyModes(charges, decisions)
	for i := range charges {
		layers[i].pin(false)
	}
	for i := range charges { // last: a ban may evict cells
		// Room for what is pending is no fault of who is denied.
		ch := &charges[i]
		if ch.Limit != nil && ch.Limit.ban != nil && ch.Pending == 0 && (layers[i].cell != nil || ch.Decided != nil) {
			t.ban(ch.Limit, ch.Key, ch.Address, ch.Cost, now, &decisions[i])
		}
	}
	return dst
}

func (t *Table) shardOf(h uint64) *shard { return &t.shards[h>>(64-shardBits)] }

// locate returns the hash and the shard of a key's cell.
func (t *Table) locate(meter uint64, key Key) (h uint64, s *shard) {
	h = hash(t.seed, meter, key)
	return h, t.shardOf(h)
}

// layer is a cell, in its shard, at the time of a decision.
type layer struct {
	shard *shard
	cell  *cell // nil: none
	at    instant
}

// pin protects the cell from eviction, or no longer does.
func (y layer) pin(on bool) {
	if y.cell != nil {
		y.cell.put(pinned, on)
	}
}

// chargedBefore is the cost that earlier layers charge to the same cell as ch: all have to fit in together. A denial
// that may be waived charges nothing.
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

// lockAll stores the hashes of all charges, and locks their shards. It returns the set of locked shards.
func (t *Table) lockAll(charges []Charge, hashes []uint64) uint64 {
	if len(charges) > len(hashes) {
		panic(fmt.Sprintf("counters: %d layers, at most %d are allowed", len(charges), len(hashes)))
	}
	var set uint64
	for i := range charges {
		if l := charges[i].Limit; l != nil {
			hashes[i] = hash(t.seed, l.id, charges[i].Key)
			set |= t.shardSet(l, charges[i].Key, charges[i].Address, hashes[i])
		}
	}
	t.lockSet(set)
	return set
}

// shardSet is the set of shards, one bit each, of a key and its ban.
func (t *Table) shardSet(l *Limit, key, address Key, h uint64) uint64 {
	set := shardBit(h)
	if l.ban != nil {
		b, key := l.banOf(key, address)
		set |= shardBit(hash(t.seed, b.id, key))
	}
	return set
}

func shardBit(h uint64) uint64 { return 1 << (h >> (64 - shardBits)) }

// lockSet locks shards in ascending order, so that requests cannot deadlock.
func (t *Table) lockSet(set uint64) {
	for ; set != 0; set &= set - 1 {
		t.shards[bits.TrailingZeros64(set)].Lock()
	}
}

func (t *Table) unlockSet(set uint64) {
	for ; set != 0; set &= set - 1 {
		t.shards[bits.TrailingZeros64(set)].Unlock()
	}
}

// View returns how much of the limit is used now, as far as this table knows: the count of the window that ends now, or
// a bucket's debt.
func (t *Table) View(l *Limit, key Key, now int64) uint64 {
	h, s := t.locate(l.id, key)
	s.Lock()
	defer s.Unlock()
	return t.used(s, l, key, h, now)
}

// used is View with the shard locked.
func (t *Table) used(s *shard, l *Limit, key Key, h uint64, now int64) uint64 {
	ref, at, ok := s.live(&l.spec, key, h, now)
	if !ok {
		return 0
	}
	c := s.cell(ref)
	if l.algorithm.bucket() {
		t.debitPending(s, l, c, at)
	}
	return s.viewUnder(l, c, t.meters.states[c.meter], at)
}

// Stats returns the table's totals.
func (t *Table) Stats() Stats {
	st := Stats{
		Bytes:          fixedBytes,
		Expired:        t.stats.expired.Load(),
		Evicted:        t.stats.evicted.Load(),
		EvictedDenied:  t.stats.evictedDenied.Load(),
		EvictedRemote:  t.stats.evictedRemote.Load(),
		EvictedFull:    t.stats.evictedFull.Load(),
		Forgotten:      t.stats.forgotten.Load(),
		Refused:        t.stats.refused.Load(),
		Implausible:    t.implausible.Load(),
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
