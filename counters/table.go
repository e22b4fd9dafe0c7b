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

// Table holds the counts of many keys of up to 262,140 meters, and decides. It is safe for concurrent use. Locks
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
	DeniedByOne    uint64 // keys, at most once per sub-window, denied because of what a single peer reported

	LastImplausible Implausible // the last implausible slot, zero if none came
	LastDenier      Origin      // the peer of the last key in DeniedByOne, 0 if there was none
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
	gone      int64      // until when a new cell needs another birth, as a removed one may count
	hand      int        // position in the index after which eviction continues
	remotes   int        // cells that only peers counted in
	strangers int        // slots of strangers' origins, see originState
	bans      banChanges // see Table.WatchBans
	_         [64]byte
}

// fixedBytes is the part of the budget that the registries take, with eight thousand meters and five thousand origins.
// Each meter beyond takes 20 bytes more, a small part of what its rule takes, and each origin beyond about 100.
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
// the limit. Counts of an ad-hoc limit (Meter.adHoc) that is not among them any more go with the next drains, unless
// the limit is used again. A limit beyond 262,140 stays unknown.
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

func (t *Table) shardOf(h uint64) *shard { return &t.shards[h>>(64-shardBits)] }

// locate returns the hash and the shard of a key's cell.
func (t *Table) locate(meter uint64, key Key) (h uint64, s *shard) {
	h = hash(t.seed, meter, key)
	return h, t.shardOf(h)
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
		LastDenier:     Origin(t.denier.Load()),
	}
	if last := t.last.Load(); last != nil {
		st.LastImplausible = *last
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
