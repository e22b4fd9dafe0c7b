package sim

import (
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// How old what nodes know is: how long after an admission another node counted it. Some nodes are observed, each about
// one client, while they are asked for it: a node that is not asked for a key needs no counts of it. Counts do not tell
// which admissions they are of; those of a sub-window count as known in the order in which they came.

const (
	maxObservers   = 24
	observedClient = 16              // clients that are observed at most
	settlesIn      = 2 * time.Second // after its first request for a key a node is no newcomer to it any more
)

// admission is what the cluster admitted of an observed client.
type admission struct {
	at   int64
	node int32
}

// observer is a node that is observed about a client.
type observer struct {
	*node
	client   int
	boot     int32
	since    int64 // since when it is asked, without a window's pause
	askedAt  int64 // last; 0: not yet
	progress map[int64]*progress
}

// progress is how much of a sub-window a node knows, of its region and of the others.
type progress struct{ here, across known }

// known is how many admissions are known, and the place in the list of all after the last of them.
type known struct{ count, next int }

// staleness measures. delays are those of admissions of the node's region, and of those of others.
type staleness struct {
	cluster      *cluster
	admissions   []map[int64][]admission // by client, by sub-window
	observers    []*observer
	of           map[[2]int]*observer // by node and client
	here, across []time.Duration
}

// newStaleness has no observers where counts are not in sub-windows alone.
func newStaleness(c *cluster) *staleness {
	s := &staleness{cluster: c, of: make(map[[2]int]*observer)}
	if c.opt.Method > counters.FixedWindow {
		return s
	}
	for range min(c.opt.clients(), observedClient) {
		s.admissions = append(s.admissions, make(map[int64][]admission))
	}
	return s
}

// start begins to observe nodes that lie evenly among all.
func (s *staleness) start() {
	c := s.cluster
	count := min(maxObservers, len(c.nodes))
	if len(s.admissions) == 0 {
		return
	}
	for i := range count {
		o := &observer{node: c.nodes[i*len(c.nodes)/count], client: i % len(s.admissions)}
		s.observers, s.of[[2]int{o.place, o.client}] = append(s.observers, o), o
	}
	var look func()
	look = func() {
		for _, o := range s.observers {
			s.observe(o)
		}
		if c.now < c.endAt {
			c.after(c.opt.Interval/4, look)
		}
	}
	c.after(time.Duration(c.startAt-c.now), look)
}

// decided takes in a decision.
func (s *staleness) decided(n *node, client int, allowed bool) {
	if client >= len(s.admissions) {
		return
	}
	now := s.cluster.now
	if o := s.of[[2]int{n.place, client}]; o != nil {
		if o.askedAt == 0 || now-o.askedAt > int64(s.cluster.opt.Window) {
			o.since = now
		}
		o.askedAt = now
	}
	if allowed {
		index := s.cluster.limit.Meter().Index(s.cluster.clock(n))
		s.admissions[client][index] = append(s.admissions[client][index], admission{now, int32(n.place)})
	}
}

// observe notes which admissions the node has come to know since it was last observed.
func (s *staleness) observe(o *observer) {
	c, meter := s.cluster, s.cluster.limit.Meter()
	if o.boot != o.node.boot {
		o.boot, o.askedAt, o.progress = o.node.boot, 0, make(map[int64]*progress)
	}
	if !o.up || o.paused(c.now) || o.askedAt == 0 {
		return
	}
	here, across := s.counts(o)
	newest := meter.Index(c.clock(o.node))
	for index := newest - int64(meter.SubWindows()); index <= newest+1; index++ {
		if here[index]+across[index] == 0 {
			continue
		}
		p := o.progress[index]
		if p == nil {
			p = new(progress)
			o.progress[index] = p
		}
		all := s.admissions[o.client][index]
		s.here = p.here.advance(s.here, o, all, int(here[index]), c, true)
		s.across = p.across.advance(s.across, o, all, int(across[index]), c, false)
	}
	delete(o.progress, newest-int64(meter.SubWindows())-1)
}

// advance appends how long ago the admissions were that are known now: of the observer's region or of others. Its own
// do not count.
func (k *known) advance(
	delays []time.Duration, o *observer, all []admission, count int, c *cluster, here bool,
) []time.Duration {
	for ; k.count < count && k.next < len(all); k.next++ {
		a := all[k.next]
		if (c.nodes[a.node].region == o.region) != here {
			continue
		}
		k.count++
		if int(a.node) != o.place && a.at > o.since+int64(settlesIn) {
			delays = append(delays, time.Duration(c.now-a.at))
		}
	}
	return delays
}

// counts returns what the node counts of its client, by sub-window: in its region, and in the others. A sum counts
// where it is more than its parts.
func (s *staleness) counts(o *observer) (here, across map[int64]uint64) {
	c := s.cluster
	sums, parts := make(map[placed]uint64), make(map[placed]uint64)
	here, across = make(map[int64]uint64), make(map[int64]uint64)
	for _, slot := range o.table.Slots(c.limit, c.keys[o.client], c.clock(o.node)) {
		switch from := c.home[slot.Origin]; {
		case slot.Origin == o.origin:
			here[slot.Index] += slot.Count
		case slot.Place == slot.Place.Sum():
			sums[placed{slot.Index, slot.Place}] += slot.Count
		case from != nil && from.region == o.region:
			parts[placed{slot.Index, counters.Near.Sum()}] += slot.Count
		default:
			parts[placed{slot.Index, slot.Place.Sum()}] += slot.Count
		}
	}
	for at := range sums {
		parts[at] += 0 // so that all are there
	}
	for at, count := range parts {
		switch count = max(count, sums[at]); at.place {
		case counters.Near.Sum():
			here[at.index] += count
		case counters.Elsewhere:
		default:
			across[at.index] += count
		}
	}
	for at, count := range sums {
		if at.place == counters.Elsewhere {
			across[at.index] = max(across[at.index], count)
		}
	}
	return here, across
}

// placed is a sub-window at a place.
type placed struct {
	index int64
	place counters.Place
}

// knowsAll reports whether every observer that was asked in the last window knows all that was admitted until a time.
func (s *staleness) knowsAll(until int64) bool {
	c, meter := s.cluster, s.cluster.limit.Meter()
	for _, o := range s.observers {
		if !o.up || o.paused(c.now) || o.askedAt == 0 || c.now-o.askedAt > int64(c.opt.Window) {
			continue
		}
		here, across := s.counts(o)
		newest := meter.Index(c.clock(o.node))
		for index := newest - int64(meter.SubWindows()) + 1; index <= newest; index++ {
			var want [2]uint64
			for _, a := range s.admissions[o.client][index] {
				if a.at > until {
					break
				}
				if c.nodes[a.node].region == o.region {
					want[0]++
				} else {
					want[1]++
				}
			}
			if here[index] < want[0] || across[index] < want[1] {
				return false
			}
		}
	}
	return true
}
