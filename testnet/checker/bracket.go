package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/counters/counterstest"
)

// clockLag is how far a node's clock may be behind the recorder's: it decides by a coarse time that is kept by a goroutine, which has to wait
// for its turn on a machine that is busy.
const clockLag = int64(25 * time.Millisecond)

// bracket holds the truth between what all nodes together must have counted and what they may have counted. A record does not tell
// when a node decided, but that it was between sent and done, nor whether a node admitted a request whose answer was lost. A verdict
// has to hold whatever was the case.
type bracket struct {
	limit *counters.Limit
	// least is what was admitted for certain, each cost as soon as its answer had come, in the earliest sub-window that it may lie in.
	least *counterstest.Model
	// most is what may have been admitted, lost answers included, each cost as soon as it was sent, in the latest sub-window.
	most *counterstest.Model
	// wide is most with each cost in every sub-window that it may lie in.
	wide *counterstest.Model
	// offered is most with all requests, as if all had been admitted.
	offered *counterstest.Model
	// certain is what was admitted for certain and had the time to be told, by key and in the order of the answers.
	certain map[counters.Key][]admission
}

// admission is a cost that was admitted.
type admission struct {
	done  int64
	index int64 // the earliest sub-window that it may lie in
	cost  uint64
}

func newBracket(l *counters.Limit) *bracket {
	return &bracket{
		limit: l, least: counterstest.NewModel(l), most: counterstest.NewModel(l),
		wide: counterstest.NewModel(l), offered: counterstest.NewModel(l), certain: make(map[counters.Key][]admission),
	}
}

// sent takes in that a request was sent.
func (b *bracket) sent(d *decision) {
	meter := b.limit.Meter()
	first, last := meter.Index(d.sent-clockLag), meter.Index(d.done)
	b.offered.Add(d.key, last, d.cost)
	if d.outcome == denied {
		return
	}
	b.most.Add(d.key, last, d.cost)
	for i := first; i <= last; i++ {
		b.wide.Add(d.key, i, d.cost)
	}
}

// done takes in that a request was answered, by a node that had the time to tell of it or died first.
func (b *bracket) done(d *decision, told bool) {
	if d.outcome != allowed {
		return
	}
	meter := b.limit.Meter()
	index := meter.Index(d.sent - clockLag)
	b.least.Add(d.key, index, d.cost)
	if told {
		b.certain[d.key] = append(b.certain[d.key], admission{d.done, index, d.cost})
	}
}

// atMost is the most that a node can have known of the key at a moment that was not before sent, if all that was sent before the end
// of that moment has been taken in.
func (b *bracket) atMost(key counters.Key, sent int64) uint64 {
	return seenFrom(b.most, key, sent)
}

// askedAtMost is atMost if everything had been admitted.
func (b *bracket) askedAtMost(key counters.Key, sent int64) uint64 {
	return seenFrom(b.offered, key, sent)
}

// atLeast is the least that all nodes together know of the key at a moment that is not after done.
func (b *bracket) atLeast(key counters.Key, done int64) uint64 {
	return b.least.View(key, done)
}

// known is the least that a node counts of the key at a moment that is not after done, if it has heard of all that was answered before
// a time.
func (b *bracket) known(key counters.Key, before, done int64) uint64 {
	meter, told := b.limit.Meter(), b.certain[key]
	end, _ := slices.BinarySearchFunc(told, before, func(a admission, t int64) int { return cmp.Compare(a.done, t) })
	heard := counterstest.NewModel(b.limit)
	for i := end - 1; i >= 0 && told[i].done > done-int64(meter.Window+meter.Sub); i-- {
		heard.Add(key, told[i].index, told[i].cost)
	}
	return heard.View(key, done)
}

// leaves is the most by which a node's view of the key can fall from a moment after sent to one before done, as the window moves on. Both
// ends are rounded up to whole numbers, by the node and here.
func (b *bracket) leaves(key counters.Key, sent, done int64) uint64 {
	before, after := seenFrom(b.wide, key, sent), b.wide.View(key, done)
	return before - min(before, after) + 2
}

// seenFrom is the largest view of the model that a node can have from a time on, if nothing is added: the weight of a sub-window only falls
// once it has come.
func seenFrom(m *counterstest.Model, key counters.Key, from int64) uint64 {
	from -= clockLag
	return m.View(key, from) + m.Ahead(key, from)
}

// forget lets go what no view from the time on sees.
func (b *bracket) forget(before int64) {
	for _, m := range []*counterstest.Model{b.least, b.most, b.wide, b.offered} {
		m.Forget(before)
	}
}
