package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// compliantClients are clients beside the load, each of which spends 95 % of its limit as evenly as can be, at nodes
// drawn at random. No window of any algorithm ever holds more than that of them.
type compliantClients struct {
	clients, nodes, first int
	gap, phase, end       int64
	count                 int64
	places                *rand.Rand
}

func newCompliant(o *Options) source {
	b := &compliantClients{
		clients: o.Compliant, nodes: o.Total(), first: o.Keys, end: int64(o.Duration), places: o.stream(drawCompliant),
	}
	largest := int64(keepsTo * float64(o.Limit))
	if largest == 0 {
		b.end = 0 // the limit leaves room for one request, and 95 % of it for none
		return b
	}
	b.gap = (int64(o.countedFor())-1)/largest + 1
	b.phase = b.places.Int64N(b.gap)
	return b
}

// next goes through the clients in turn; each comes once in a gap.
func (b *compliantClients) next() (arrival, bool) {
	round, client := b.count/int64(b.clients), b.count%int64(b.clients)
	at := b.phase + round*b.gap + client*(b.gap/int64(b.clients))
	if at >= b.end {
		return arrival{}, false
	}
	b.count++
	return arrival{after: at, node: b.places.IntN(b.nodes), client: b.first + int(client)}, true
}

// merged is the arrivals of two sources.
type merged struct {
	sources [2]source
	heads   [2]arrival
	more    [2]bool
}

func newMerged(a, b source) source {
	m := &merged{sources: [2]source{a, b}}
	for i := range m.sources {
		m.heads[i], m.more[i] = m.sources[i].next()
	}
	return m
}

func (m *merged) next() (arrival, bool) {
	i := 0
	if !m.more[0] || m.more[1] && m.heads[1].after < m.heads[0].after {
		i = 1
	}
	a, ok := m.heads[i], m.more[i]
	if ok {
		m.heads[i], m.more[i] = m.sources[i].next()
	}
	return a, ok
}

// burstLengths and Placements are gone through in turn, client by client: all twelve pairs of them in as many clients.
var burstLengths = []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second}

// Placement is where the bursts of a client come.
type Placement string

// The placements of the accuracy goals.
const (
	// OnOne is one node for all bursts.
	OnOne Placement = "one"
	// OnAll is all nodes alike, each request at one drawn at random.
	OnAll Placement = "even"
	// Moving is one node for a burst, and another one for the next.
	Moving Placement = "moving"
	// Alternating is two nodes in turn, request by request.
	Alternating Placement = "alternating"
)

// Placements are all placements.
var Placements = []Placement{OnOne, OnAll, Moving, Alternating}

// BurstKeys is how many clients it takes for every burst length at every placement.
const BurstKeys = 12

// bursts are clients that spend 95 % of the limit in a burst, wait, and do it again.
//
// The requests of a client come at the same moments of each of its bursts, and the next burst begins not before the
// last has stopped to count: so each request has left the window for good when its like in the next burst comes, and no
// view ever exceeds 95 %.
type bursts struct {
	clients []*burster
	nodes   int
	spacing int64 // least
	spread  int64 // of what is added to it at random
	end     int64
	places  *rand.Rand
}

type burster struct {
	offsets []int64 // of the requests of a burst, ascending
	began   int64   // the burst that is under way
	i       int     // the next request of it
	where   Placement
	home    int
	rand    *rand.Rand
}

func newBursts(o *Options) source {
	b := &bursts{
		nodes: o.Total(), end: int64(o.Duration), places: o.stream(drawPlaces),
		spacing: int64(o.countedFor()), spread: max(1, int64(o.Window/4)),
	}
	for client := range o.Keys {
		r := o.stream(drawGaps + concern(client)<<8)
		length, where := o.burst(client)
		c := &burster{where: where, home: r.IntN(b.nodes), began: r.Int64N(b.spacing), rand: r}
		for range uint64(keepsTo * float64(o.Limit)) {
			c.offsets = append(c.offsets, r.Int64N(int64(length)))
		}
		slices.Sort(c.offsets)
		if len(c.offsets) > 0 {
			b.clients = append(b.clients, c)
		}
	}
	return b
}

// burst is how long the bursts of a client last, and where they come.
func (o *Options) burst(client int) (length time.Duration, where Placement) {
	if length, where = o.Burst, o.BurstAt; length == 0 {
		length = min(burstLengths[client%len(burstLengths)], o.Window)
		client /= len(burstLengths)
	}
	if where == "" {
		where = Placements[client%len(Placements)]
	}
	return length, where
}

func (c *burster) at() int64 { return c.began + c.offsets[c.i] }

// next looks at all clients: there are few of them.
func (b *bursts) next() (arrival, bool) {
	first := -1
	for i, c := range b.clients {
		if first < 0 || c.at() < b.clients[first].at() {
			first = i
		}
	}
	if first < 0 || b.clients[first].at() >= b.end {
		return arrival{}, false
	}
	c := b.clients[first]
	a := arrival{after: c.at(), client: first, node: b.place(c)}
	if c.i++; c.i == len(c.offsets) {
		c.i = 0
		c.began += b.spacing + c.rand.Int64N(b.spread)
		if c.where == Moving {
			c.home = c.rand.IntN(b.nodes)
		}
	}
	return a, true
}

func (b *bursts) place(c *burster) int {
	switch c.where {
	case OnAll:
		return b.places.IntN(b.nodes)
	case Alternating:
		return (c.home + c.i%2*(b.nodes/2)) % b.nodes
	}
	return c.home
}
