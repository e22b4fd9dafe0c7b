package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// burstLengths and the placements below are gone through in turn, client by client: all twelve of them in as many clients.
var burstLengths = []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second}

type placement int

const (
	onOne placement = iota
	onAll
	moving
	alternating
	placements
)

// bursts are clients that spend 95 % of the limit in a burst, wait, and do it again.
//
// The requests of a client come at the same moments of each of its bursts, and the next burst begins not before a window and a sub-window
// after the last: so each request has left the window for good when its like in the next burst comes, and no view ever exceeds 95 %.
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
	where   placement
	home    int
	rand    *rand.Rand
}

func newBursts(o *Options) source {
	limit, err := newLimit(o)
	if err != nil {
		panic(err) // Validate has made one
	}
	b := &bursts{
		nodes: o.Total(), end: int64(o.Duration), places: o.stream(drawPlaces),
		spacing: int64(o.Window + limit.Meter().Sub), spread: max(1, int64(o.Window/4)),
	}
	for client := range o.Keys {
		r := o.stream(drawGaps + concern(client)<<8)
		length := min(burstLengths[client%len(burstLengths)], o.Window)
		c := &burster{where: placement(client / len(burstLengths) % int(placements)), home: r.IntN(b.nodes), began: r.Int64N(b.spacing), rand: r}
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
		if c.where == moving {
			c.home = c.rand.IntN(b.nodes)
		}
	}
	return a, true
}

func (b *bursts) place(c *burster) int {
	switch c.where {
	case onAll:
		return b.places.IntN(b.nodes)
	case alternating:
		return (c.home + c.i%2*(b.nodes/2)) % b.nodes
	}
	return c.home
}
