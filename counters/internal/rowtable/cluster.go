package rowtable

import (
	"math"
	"sync/atomic"
	"time"
)

// Scope is which nodes count a meter together. The numbers are those of counters.Scope.
type Scope uint8

// The scopes of meters.
const (
	Global Scope = iota // all nodes
	Region              // the nodes of a region
	Alone               // none: each node has its own count, and does not send it
	scopes
)

// cluster is what a table knows of the nodes that count meters of a scope with it.
type cluster struct {
	peers   int
	horizon int64 // nanoseconds
}

// SetCluster sets, for a scope other than Alone, the number of peers that count with this table, initially 0, and the
// horizon: the usual time until all of them know what one node admits.
func (t *Table) SetCluster(of Scope, peers int, horizon time.Duration) {
	if now := t.clusters[of].Load(); now.peers != peers || now.horizon != int64(horizon) {
		t.clusters[of].Store(&cluster{peers, int64(horizon)})
	}
}

// keepers are the nodes that count a meter with this table.
func (t *Table) keepers(m *Meter) *cluster { return t.clusters[m.Scope].Load() }

// Gone is the watermark of an origin that admits nothing any more.
const Gone = math.MaxInt64

// originState is what a table knows of an origin.
type originState struct {
	watermark atomic.Int64 // see SetWatermark; 0: none was set
	member    atomic.Bool
	place     atomic.Uint32                            // see Place
	sums      atomic.Pointer[[Partitions]atomic.Int64] // of a sum, in place of the watermark: one for each partition
}

// origins are the states of origins by number, in parts that are made when they are needed.
type origins [1 << (originBits - originsBits)]atomic.Pointer[[1 << originsBits]originState]

const originsBits = 8

func (o *origins) of(origin uint16) *originState {
	at := &o[origin>>originsBits]
	part := at.Load()
	if part == nil {
		at.CompareAndSwap(nil, new([1 << originsBits]originState))
		part = at.Load()
	}
	return &part[origin&(1<<originsBits-1)]
}

// SetWatermark sets the time up to which this table has received all that an origin admitted. Before the first call for
// an origin, it is the time of its first report of a demand.
func (t *Table) SetWatermark(origin uint16, watermark int64) {
	t.origins.of(origin).watermark.Store(watermark)
}

// SetSumWatermarks sets the time up to which this table has received all that a sum counts, for some partitions. All
// sums over the same nodes have one number.
func (t *Table) SetSumWatermarks(origin uint16, of PartitionSet, watermark int64) {
	sums := t.origins.of(origin).sums.Load()
	if sums == nil { // none of its demands came
		return
	}
	for p := range sums {
		if of.Has(p) {
			sums[p].Store(watermark)
		}
	}
}

// SetPlace sets where an origin counts of which slots came while that was unknown.
func (t *Table) SetPlace(origin uint16, at Place) {
	t.origins.of(origin).place.CompareAndSwap(uint32(Unplaced), uint32(at))
}

func (o *origins) setPlace(origin uint16, at Place) {
	if place := &o.of(origin).place; place.Load() != uint32(at) {
		place.Store(uint32(at))
	}
}

func (o *origins) placeOf(origin uint16) Place { return Place(o.of(origin).place.Load()) }

// watermarkOf is the watermark of an origin for a key.
func (o *origins) watermarkOf(origin uint16, key uint64) *atomic.Int64 {
	state := o.of(origin)
	if sums := state.sums.Load(); sums != nil {
		return &sums[partitionOf(key)]
	}
	return &state.watermark
}

// SetMember sets whether an origin is a member of the cluster, initially not. All others count as one where keys that
// only peers count compete for room.
func (t *Table) SetMember(origin uint16, member bool) { t.origins.of(origin).member.Store(member) }
