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
	// SlotsLost is how many slots stores lost in their faults. After the last fault of each, and after all, every node has two flushes to make
	// it good: SlotsMissing is how many slots the store lacked then of those that a node counted or, if it noticed a loss, knew of others.
	// SlotsTwice is how many held more than their node counted.
	SlotsLost    int `json:"slots_lost"`
	SlotsMissing int `json:"slots_missing"`
	SlotsTwice   int `json:"slots_twice"`
	// WholeMillis is the longest that it took a node to make it good, and WholeFlushes the most flushes, 2 at most. -1 of either: somewhere it
	// was not done after two.
	WholeMillis  float64 `json:"whole_ms"`
	WholeFlushes int     `json:"whole_flushes"`
}

// storeBook is what is measured of a store.
type storeBook struct {
	calls, failed        uint64
	lost, missing, twice int
	promises             map[*node]*promise
	broken               bool          // a promise
	took                 time.Duration // the longest that one took
	flushes              int           // the most that one took
}

// promise is what a node owes a store in whose faults it may have missed or lost something.
type promise struct {
	boot    int32
	since   int64           // when the last fault had ended; 0: there is one in force
	own     []counters.Slot // of the node, then
	others  []counters.Slot // what it knew of others when the store lost data
	noticed uint64          // how many losses it had noticed by then
	flushes int             // since the last fault had ended
}

// promised is in how many flushes a promise is kept.
const promised = 2

// slotID tells slots apart: everything but the meter, of which there is one, and the count.
type slotID struct {
	key    counters.Key
	index  int64
	origin counters.Origin
	birth  uint32
}

func identify(s *counters.Slot) slotID { return slotID{s.Key, s.Index, s.Origin, s.Birth} }

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
	if err := s.data.Load(context.Background(), h.add); err != nil {
		panic(err) // only for a context that ended
	}
	return h
}

// promise is that of a node that is up.
func (b *storeBook) promise(n *node) *promise {
	p := b.promises[n]
	if p == nil || p.boot != n.boot {
		p = &promise{boot: n.boot}
		b.promises[n] = p
	}
	return p
}

// each calls f for all nodes of the region that are up.
func (s *store) each(f func(n *node, p *promise)) {
	for _, n := range s.w.nodes {
		if n.up && n.region == s.region {
			f(n, s.book.promise(n))
		}
	}
}

// disturbed, lost and calmed say that a fault has begun, that the store has lost data, and that no fault is in force any more.
func (s *store) disturbed() { s.each(func(_ *node, p *promise) { p.since = 0 }) }

func (s *store) lost(slots int) {
	s.book.lost += slots
	s.each(func(n *node, p *promise) {
		p.noticed = n.reconciler.Stats().Lost
		p.others = slices.DeleteFunc(n.table.Snapshot(s.w.clock(n), math.MaxInt), func(s counters.Slot) bool { return s.Origin == n.origin })
	})
}

func (s *store) calmed() {
	s.each(func(n *node, p *promise) { p.since, p.own, p.flushes = s.w.now, n.table.Own(s.w.clock(n)), 0 })
}

// flushed looks at a flush of a node that began at a time. What the node had counted comes to the reconciler within an interval, so
// flushes count from then on.
func (s *store) flushed(n *node, began int64) {
	p := s.book.promises[n]
	if p == nil || p.boot != n.boot || p.since == 0 || began < p.since+int64(s.w.opt.Interval) {
		return
	}
	p.flushes++
	held := s.held()
	lacks := held.lacks(s.owed(n, p))
	if lacks > 0 && p.flushes < promised {
		return
	}
	delete(s.book.promises, n)
	s.book.missing += lacks
	s.book.broken = s.book.broken || lacks > 0
	s.book.took, s.book.flushes = max(s.book.took, time.Duration(s.w.now-p.since)), max(s.book.flushes, p.flushes)
	s.book.twice += s.w.counted().lacks(s.lasting(held))
}

// owed is what a promise is about: all that the node counted itself, and, if it noticed the loss, what it knew of others.
func (s *store) owed(n *node, p *promise) holding {
	owed := make(holding)
	owed.add(p.own)
	if n.reconciler.Stats().Lost > p.noticed {
		owed.add(p.others)
	}
	return s.lasting(owed)
}

// lasting drops what is about to expire: nodes conclude nothing from that, and clocks differ.
func (s *store) lasting(h holding) holding {
	meter := s.w.limit.Meter()
	soon := s.w.now + int64(2*time.Second+2*s.w.opt.Skew)
	maps.DeleteFunc(h, func(id slotID, _ uint64) bool { return (id.index+1)*int64(meter.Sub)+int64(meter.Window) < soon })
	return h
}

// counted is what all nodes counted themselves, also those that are gone.
func (w *world) counted() holding {
	h := make(holding)
	for origin, table := range w.tables {
		h.add(table.Own(w.clock(w.home[origin])))
	}
	return h
}

// calmStores has all promises be about the last counts as well, and settleStores lets the world go on until they were due.
func (w *world) calmStores() {
	for _, s := range w.stores {
		s.calmed()
	}
}

func (w *world) settleStores() {
	for w.now < w.calm()+int64(settlesWithin) && slices.ContainsFunc(w.stores, func(s *store) bool { return len(s.book.promises) > 0 }) {
		w.runTo(w.now + int64(lookEvery))
	}
}

func (w *world) reportStores() *StoreReport {
	r := &StoreReport{Faults: []string{}}
	for _, f := range w.opt.StoreFaults {
		r.Faults = append(r.Faults, f.String())
	}
	broken := false
	for _, s := range w.stores {
		b := &s.book
		broken = broken || b.broken || len(b.promises) > 0
		r.Calls, r.Failed = r.Calls+b.calls, r.Failed+b.failed
		r.SlotsLost, r.SlotsMissing, r.SlotsTwice = r.SlotsLost+b.lost, r.SlotsMissing+b.missing, r.SlotsTwice+b.twice
		r.WholeMillis, r.WholeFlushes = max(r.WholeMillis, millis(b.took)), max(r.WholeFlushes, b.flushes)
	}
	if broken {
		r.WholeMillis, r.WholeFlushes = -1, -1
	}
	return r
}
