package sim

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// StoreReport is what became of the stores in their faults. A slot is a count of one node for a client in a sub-window.
type StoreReport struct {
	Faults []string `json:"faults"`
	Calls  uint64   `json:"calls"`        // of all stores
	Failed uint64   `json:"calls_failed"` // or not answered in time
	// SlotsLost is how many slots stores lost in their faults. After the last fault of each, and after all, every node
	// has two flushes to make it good: SlotsMissing is how many slots the store lacked then of those that a node
	// counted or, if it noticed a loss, knew of others. SlotsTwice is how many held more than their node counted.
	SlotsLost    int `json:"slots_lost"`
	SlotsMissing int `json:"slots_missing"`
	SlotsTwice   int `json:"slots_twice"`
	// RepairMillis is the longest that it took a node to make it good, and RepairFlushes the most flushes, 2 at most.
	// -1 of either: somewhere it was not done after two.
	RepairMillis  float64 `json:"whole_ms"`
	RepairFlushes int     `json:"whole_flushes"`
}

// repair is what a node owes the store of its region, in whose faults it may have missed or lost something.
type repair struct {
	since      int64           // when the last fault had ended; 0: there is one in force
	own        []counters.Slot // of the node, then
	others     []counters.Slot // what it knew of others when the store lost data
	lossesSeen uint64          // how many losses it had noticed by then
	flushes    int             // since the last fault had ended
}

// repairFlushes is within how many flushes a repair is due.
const repairFlushes = 2

// slotID identifies a slot: everything but its count.
type slotID struct {
	rule   string
	key    counters.Key
	index  int64
	origin counters.Origin
	birth  uint32
}

func identify(s *counters.Slot) slotID {
	return slotID{s.Meter.Rule, s.Key, s.Index, s.Origin, s.Birth}
}

// holding is what a store or a table holds.
type holding map[slotID]uint64

func (h holding) add(slots []counters.Slot) {
	for i := range slots {
		h[identify(&slots[i])] = max(h[identify(&slots[i])], slots[i].Count)
	}
}

// lacks is how many slots it holds less of than another one does.
func (h holding) lacks(other holding) (n int) {
	for id, count := range other {
		if h[id] < count {
			n++
		}
	}
	return n
}

// held is what the store holds.
func (s *store) held() holding {
	h := make(holding)
	if err := s.data.Load(context.Background(), s.cluster.now, h.add); err != nil {
		panic(err) // only for a context that ended
	}
	return h
}

// each calls f for all nodes of the region that are up.
func (s *store) each(f func(n *node, p *repair)) {
	for _, n := range s.cluster.up() {
		if n.region == s.region {
			if n.repair == nil {
				n.repair = new(repair)
			}
			f(n, n.repair)
		}
	}
}

// faultBegan, lost and faultsEnded report that a fault has begun, that the store has lost data, and that no fault is in
// force any more.
func (s *store) faultBegan() { s.each(func(_ *node, p *repair) { p.since = 0 }) }

func (s *store) lost(slots int) {
	s.cluster.redis.SlotsLost += slots
	s.each(func(n *node, p *repair) {
		p.lossesSeen = n.reconciler.Stats().Lost
		p.others = slices.DeleteFunc(n.table.Snapshot(s.cluster.clock(n), math.MaxInt),
			func(s counters.Slot) bool { return s.Origin == n.origin })
	})
}

func (s *store) faultsEnded() {
	s.each(func(n *node, p *repair) {
		p.since, p.own, p.flushes = s.cluster.now, n.table.Own(s.cluster.clock(n)), 0
	})
}

// flushed looks at a flush of a node that began at a time. What the node had counted comes to the reconciler within an
// interval, so flushes count from then on.
func (s *store) flushed(n *node, began int64) {
	p, r := n.repair, &s.cluster.redis
	if p == nil || p.since == 0 || began < p.since+int64(s.cluster.opt.Interval) {
		return
	}
	p.flushes++
	held := s.held()
	lacks := held.lacks(s.due(n, p))
	if lacks > 0 && p.flushes < repairFlushes {
		return
	}
	n.repair = nil
	r.SlotsMissing += lacks
	r.RepairMillis = max(r.RepairMillis, millis(time.Duration(s.cluster.now-p.since)))
	r.RepairFlushes = max(r.RepairFlushes, p.flushes)
	r.SlotsTwice += s.cluster.counted().lacks(s.unexpired(held))
}

// due is what the node has to write: all that it counted itself, and, if it noticed the loss, what it knew of others.
func (s *store) due(n *node, p *repair) holding {
	pending := make(holding)
	pending.add(p.own)
	if n.reconciler.Stats().Lost > p.lossesSeen {
		pending.add(p.others)
	}
	return s.unexpired(pending)
}

// unexpired drops what is about to expire: nodes conclude nothing from that, and clocks differ.
func (s *store) unexpired(h holding) holding {
	meter := s.cluster.limit.Meter()
	soon := s.cluster.now + int64(2*time.Second+2*s.cluster.opt.Skew)
	maps.DeleteFunc(h,
		func(id slotID, _ uint64) bool { return (id.index+1)*int64(meter.Sub)+int64(meter.Window) < soon })
	return h
}

// counted is what all nodes counted themselves, also those that are gone.
func (c *cluster) counted() holding {
	h := make(holding)
	for origin, table := range c.tables {
		h.add(table.Own(c.clock(c.home[origin])))
	}
	return h
}

// expectRepairs has the repairs be about the last counts as well. awaitRepairs lets the world go on until they were
// due.
func (c *cluster) expectRepairs() {
	for _, s := range c.stores {
		s.faultsEnded()
	}
}

func (c *cluster) awaitRepairs() {
	for c.now < c.faultsEnd()+int64(settlesWithin) && c.repairing() {
		c.runTo(c.now + int64(lookEvery))
	}
}

func (c *cluster) repairing() bool {
	return slices.ContainsFunc(c.nodes, func(n *node) bool { return n.repair != nil })
}

func (c *cluster) reportStores() *StoreReport {
	r := c.redis
	r.Faults = texts(c.opt.StoreFaults)
	if r.SlotsMissing > 0 || c.repairing() {
		r.RepairMillis, r.RepairFlushes = -1, -1
	}
	return &r
}
