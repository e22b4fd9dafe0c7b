package sim

import (
	"context"
	"math"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
)

// A sample is a simulation of a part of a load, from which the whole of it can be computed: some of the keys, drawn
// evenly from all ranks of all nodes. What a key costs does not depend on other keys, but for the messages that they
// share; so counts sent are scaled up, and messages are not (testnet/plan computes those).
//
// In a large cluster the first region is simulated node by node, and each other region as a single node, which is asked
// for what all its nodes would be: to the owners of the first region it sends what the owners there would.

const (
	// usualRequests and usualNodes are what is simulated where a load does not limit it. A request for a hot key costs
	// hotCost times as much as others: it reaches every node.
	usualRequests, usualNodes = 10_000, 60
	hotCost                   = 2.5
	// maxWindow is the longest window that is simulated. A longer one is simulated as one of this length, with as much
	// less of a limit.
	maxWindow = 20 * time.Second
	// settling is how long requests come, beyond the window, before counts are measured, and measuring for how long
	// they are.
	settling, measuring = 2 * time.Second, 4 * time.Second
)

// Sample is what a sample showed. All figures are of the whole load.
type Sample struct {
	Nodes     int // simulated
	StandIns  int // of them, those that stand for a region each
	OneIn     int // one in so many keys was simulated
	Keys      int // so many in all
	HotKeys   int // and so many of those that are hot everywhere
	Requests  int // simulated
	Window    time.Duration
	Measured  time.Duration
	Region    []NodeSample // the nodes of the first region; where there are no stand-ins, all nodes
	HasOwners bool         // owners of keys add up; otherwise every node sends to every other one
}

// Flow is what goes from a node, or to it, each second.
type Flow struct {
	Slots float64 // counts
	Bytes float64 // of them, as frames have them
}

func (f *Flow) add(size, weight float64) {
	f.Slots += weight
	f.Bytes += size * weight
}

// NodeSample is what a node does each second.
type NodeSample struct {
	Owned                                    int     // partitions
	Decisions, Changed                       float64 // requests, and own counts that changed in an interval
	RegionOut, RegionIn, AcrossOut, AcrossIn Flow    // within the region, and between it and others
	UpOut                                    Flow    // of RegionOut: to owners
	Keys, OwnSlots, Bytes                    float64 // held at the end: keys, own counts, and memory for all of it

	// As simulated, and not of the whole load: frames that went within the region and across, their bytes, and how many
	// of them were early.
	SimFrames, SimBytes, SimEarly [2]float64
	SimFlushes, SimFlushed        float64 // early flushes, and the keys in them
}

// sampler is a run under way.
type sampler struct {
	c       *cluster
	p       *population
	nodes   []NodeSample
	owners  []*counters.Owners      // by node
	regions map[counters.Origin]int // by the name of a sum over one
	ownerOf [][counters.Partitions]int
	pending []pending // by node
	empty   int       // bytes of an empty table
	drawn   int

	// What all nodes send and receive of hot keys, as members and as owners, where one of those stands for several:
	// they would meet few owners. It is spread over all in the end.
	member, owner, elsewhere NodeSample
}

// pending is what was drained last, until it turns out whether that was an early flush.
type pending struct {
	messages [2]float64
	keys     float64
}

// TakeSample simulates a part of a load.
func TakeSample(ctx context.Context, l Load) (*Sample, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if l.Window > maxWindow {
		l.Limit = uint64(math.Ceil(float64(l.Limit) * maxWindow.Seconds() / l.Window.Seconds()))
		l.Window = maxWindow
	}
	s := &sampler{p: newPopulation(&l), regions: make(map[counters.Origin]int)}
	if err := s.build(); err != nil {
		return nil, err
	}
	defer s.c.close()
	s.c.runTo(s.c.startAt)
	s.learn()
	s.p.fill()
	if err := s.play(ctx); err != nil {
		return nil, err
	}
	return s.sample(), nil
}

// sampledCounts is the table of a node, of which it learns who owns what. The node has as many peers as in the whole
// cluster.
type sampledCounts struct {
	gossip.Counts
	s     *sampler
	place int
}

func (k sampledCounts) SetOwners(o *counters.Owners) {
	k.s.owners[k.place] = o
	k.Counts.SetOwners(o)
}

func (k sampledCounts) SetCluster(_ int, horizon time.Duration) {
	k.Counts.SetCluster(k.s.p.Total()-1, horizon)
}

// build starts the nodes.
func (s *sampler) build() (err error) {
	o := s.p.Options
	o.Keys, o.Duration, o.standIns = 1, time.Hour, s.p.standIns
	limit, err := newLimit(&o)
	if err != nil {
		return err
	}
	h := noHooks()
	h.counts = func(n *node) gossip.Counts {
		s.owners, s.pending = append(s.owners, nil), append(s.pending, pending{})
		s.nodes = append(s.nodes, NodeSample{})
		n.table = counters.NewTable(
			counters.Config{Origin: n.origin, Seed: o.Seed ^ uint64(n.origin), Memory: s.memory()})
		n.table.Know([]*counters.Limit{limit})
		s.empty = n.table.Stats().Bytes
		return sampledCounts{n.table, s, n.place}
	}
	h.drained, h.sent, h.ticked = s.drained, s.sent, s.ticked
	s.c, err = newCluster(o, h)
	return err
}

// memory is enough for a table to evict nobody.
func (s *sampler) memory() int {
	p := s.p
	keys := 1000 + (p.KeysTotal+int(p.New*float64(p.Total())*(p.Window+10*time.Second).Seconds()))/p.one
	if p.standIns { // those of the first region, and of homes
		keys = 1000 + 4*keys/p.Regions
	}
	bytes := counters.MinMemory + 400*keys
	return min(bytes+p.hotKeys()*16*(p.Nodes+p.Regions)*(counters.DefaultSubWindows+4), counters.MaxMemory)
}

// learn finds who owns what.
func (s *sampler) learn() {
	s.ownerOf = make([][counters.Partitions]int, s.p.Regions)
	for place, o := range s.owners {
		if o == nil {
			return
		}
		region := s.c.nodes[place].region
		for partition := range counters.Partitions {
			s.regions[o.Region.Of(partition)] = region
			if o.Owned.Has(partition) {
				s.ownerOf[region][partition] = place
				s.nodes[place].Owned++
			}
			if region == 0 && o.Home.Has(partition) {
				s.p.home.Add(partition)
			}
		}
	}
}

// play has requests come.
func (s *sampler) play(ctx context.Context) error {
	c, q := s.c, s.p.arrive()
	for end := s.measuredFrom() + int64(measuring); ; s.drawn++ {
		d := q.next()
		if c.startAt+int64(d.after) >= end {
			c.runTo(end)
			return nil
		}
		if s.drawn%10_000 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.runTo(c.startAt + int64(d.after))
		n := c.nodes[d.node]
		n.table.Take(c.limit, d.key, 1, c.clock(n))
		c.flushSoon(n)
	}
}

func (s *sampler) measuredFrom() int64 { return s.c.startAt + int64(s.p.Window+settling) }

func (s *sampler) measures() bool { return s.c.now >= s.measuredFrom() }

// weight is how many keys a sampled one stands for.
func (s *sampler) weight(key counters.Key) float64 {
	if s.p.class[key]&hotKey != 0 {
		return float64(s.p.Keys) / float64(s.p.hotKeys())
	}
	return float64(s.p.one)
}
