package judge

import (
	"cmp"
	"slices"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// truth holds what all nodes together must have counted and what they may have counted. A record says only that a node
// decided between sending and answer, and not whether it admitted a request whose answer was lost. A verdict has to
// hold in every case.
type truth struct {
	limit *counters.Limit
	// least is what was certainly admitted: each cost from its answer on, in the earliest sub-window that it may lie
	// in.
	least *oracle.Model
	// largest is what may have been admitted, lost answers included: each cost from its sending on, in the latest
	// sub-window that it may lie in.
	largest *oracle.Model
	wide    *oracle.Model // largest with each cost in every sub-window that it may lie in
	offered *oracle.Model // largest as if all requests had been admitted
	// replicated is what was certainly admitted by nodes that lived to replicate it, by key, in the order of answers.
	replicated map[counters.Key][]admission
}

// admission is a cost that was admitted.
type admission struct {
	done  int64
	index int64 // the earliest sub-window that it may lie in
	cost  uint64
}

func newTruth(l *counters.Limit) *truth {
	return &truth{
		limit: l, least: oracle.NewModel(l), largest: oracle.NewModel(l), wide: oracle.NewModel(l),
		offered: oracle.NewModel(l), replicated: make(map[counters.Key][]admission),
	}
}

// earliest is the earliest sub-window that a decision may lie in.
func (t *truth) earliest(d *decision) int64 { return t.limit.Meter().Index(d.Sent - int64(ClockLag)) }

// sent takes in that a request was sent.
func (t *truth) sent(d *decision) {
	last := t.limit.Meter().Index(d.Done)
	t.offered.Add(d.key, last, d.Cost)
	if !d.Allowed && d.Error == "" {
		return
	}
	t.largest.Add(d.key, last, d.Cost)
	for i := t.earliest(d); i <= last; i++ {
		t.wide.Add(d.key, i, d.Cost)
	}
}

// done takes in that a request was answered. replicated is false if the node died before it could replicate its count.
func (t *truth) done(d *decision, replicated bool) {
	if !d.Allowed {
		return
	}
	t.least.Add(d.key, t.earliest(d), d.Cost)
	if replicated {
		t.replicated[d.key] = append(t.replicated[d.key], admission{d.Done, t.earliest(d), d.Cost})
	}
}

// minKnown is the least that a node counts of the key at a time not after done, if it has received all that was
// answered before a time.
func (t *truth) minKnown(key counters.Key, before, done int64) uint64 {
	meter, all := t.limit.Meter(), t.replicated[key]
	end, _ := slices.BinarySearchFunc(all, before, func(a admission, t int64) int { return cmp.Compare(a.done, t) })
	received := oracle.NewModel(t.limit)
	for i := end - 1; i >= 0 && all[i].done > done-int64(meter.Window+meter.Sub); i-- {
		received.Add(key, all[i].index, all[i].cost)
	}
	return received.View(key, done)
}

// maxExpired is the most by which a node's count of the key can fall from a time after sent to one before done, as the
// window moves on. Both counts are rounded up to whole numbers, by the node and here: hence the 2.
func (t *truth) maxExpired(key counters.Key, sent, done int64) uint64 {
	before, after := maxView(t.wide, key, sent), t.wide.View(key, done)
	return before - min(before, after) + 2
}

// maxView is the largest view of the model that a node can have at a time not before from, once all that was sent by
// the end of that time has been taken in: the weight of a sub-window only falls once it has come.
func maxView(m *oracle.Model, key counters.Key, from int64) uint64 {
	from -= int64(ClockLag)
	return m.View(key, from) + m.Ahead(key, from)
}

// forget drops what no view from the time on contains.
func (t *truth) forget(before int64) {
	for _, m := range []*oracle.Model{t.least, t.largest, t.wide, t.offered} {
		m.Forget(before)
	}
}
