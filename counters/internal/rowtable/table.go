package rowtable

import (
	"sync"
	"sync/atomic"

	"github.com/edgelimit/edgelimit/counters/internal/rows"
)

const shardBits = 6

// Table counts keys and decides, as counters.Table does.
type Table struct {
	seed   uint64
	store  *rows.Store
	shards [1 << shardBits]shard // by the same number as those of the store, with the same locks
	dirty  []*rows.Line          // buffer of a drain

	implausible suspicion
	clusters    [scopes]atomic.Pointer[cluster]
	origins     origins
	stats       tableStats
	demands     demandMeasure
	refresh     refresh
	owners      atomic.Pointer[Owners] // nil: every node sends to every other one
	earlyFlush  chan struct{}          // see EarlyFlush
	bans        banFeed
	debts       atomic.Pointer[Debts] // nil: none

	meters struct {
		sync.RWMutex
		ids     rows.Meters
		numbers map[uint64]uint16
		states  *[rows.Numbers]*meterState // by number. Who holds the lock of a line with a number may read its state
		given   int
	}
}

// shard is what a shard has beside its lines.
type shard struct {
	births, generations uint64 // the last ones that were given, see head.generation

	heads, remotes int // of these, those that only others count

	gone   int64  // until when a new head needs both, as a removed one may count
	unsent []Slot // of removed heads
	bans   banChanges
	early  []earlyKey // to be drained early

	drainedAt int64   // time of the last drain
	scans     []*Scan // that are in the shard
}

// New returns an empty table.
func New(bytes int, seed uint64) *Table {
	t := &Table{seed: seed, earlyFlush: make(chan struct{}, 1)}
	for i := range t.clusters {
		t.clusters[i].Store(new(cluster))
	}
	t.meters.numbers, t.meters.states = make(map[uint64]uint16), new([rows.Numbers]*meterState)
	t.implausible.at = make(map[uint16]int64)
	t.store = rows.New(rows.Config{Bytes: bytes, Shards: len(t.shards), Seed: seed, Meters: &t.meters.ids})
	return t
}

func (t *Table) shardOf(h uint64) *shard { return &t.shards[h>>(64-shardBits)] }

// number returns the number of a meter, 0 if none is left.
func (t *Table) number(m *Meter) uint16 {
	t.meters.RLock()
	k := t.meters.numbers[m.ID]
	t.meters.RUnlock()
	if k != 0 {
		return k
	}
	t.meters.Lock()
	defer t.meters.Unlock()
	if k = t.meters.numbers[m.ID]; k != 0 || t.meters.given == rows.Numbers-1 {
		return k
	}
	t.meters.given++
	k = uint16(t.meters.given)
	t.meters.states[k] = &meterState{Meter: *m}
	if d := t.debts.Load(); d != nil {
		d.recognize(t.meters.states[k])
	}
	t.meters.ids[k], t.meters.numbers[m.ID] = m.ID, k
	return k
}

func (t *Table) meter(k uint16) *Meter { return &t.meters.states[k].Meter }

func (t *Table) stateOf(c *head) *meterState { return t.meters.states[c.line().Meter()] }

// meterState is what a table knows of a meter.
type meterState struct {
	Meter
	limit atomic.Pointer[Limit] // the limit that is known, or of a bucket the one that decided last; nil: none
	meterDemand
}

// Know makes limits known: merges debit buckets by them before the table is asked for the keys itself, and drains send
// the demand for keys near them.
func (t *Table) Know(limits []*Limit) {
	for _, l := range limits {
		if k := t.number(&l.Meter); k != 0 {
			t.meters.states[k].limit.Store(l)
		}
	}
}

// localize records that this table was asked for the key of a head.
func (t *Table) localize(h uint64, c *head) {
	if !c.has(local) {
		c.raise(local)
		t.shardOf(h).remotes--
	}
}

// Lines returns the number of lines.
func (t *Table) Lines() (n int) {
	for i := range t.store.Shards() {
		s := &t.store.Shards()[i]
		s.Lock()
		n += s.Used()
		s.Unlock()
	}
	return n
}

// MeterID returns the id of a meter by its number.
func (t *Table) MeterID(number uint16) uint64 { return t.meters.ids[number] }
