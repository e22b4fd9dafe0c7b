package sim

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// Pattern is when and where requests arrive. All arrive at random (Poisson) but for CompliantBurst.
type Pattern string

// The patterns of the accuracy goals.
const (
	Even    Pattern = "even"    // all nodes alike
	Skew    Pattern = "skew"    // 70 % on one node, the rest on the others alike
	Hotspot Pattern = "hotspot" // 80 % on a random node that changes every 3 s
	// Flash is 0.5 times the limit, and 20 times for one second in every 20, on all nodes alike.
	Flash Pattern = "flash"
	// CompliantBurst is clients that keep to 95 % of the limit and spend it in a burst: in 0.2 s, 1 s or 3 s; on one
	// node, on all, on one that moves from burst to burst, or alternating between two.
	CompliantBurst Pattern = "compliant-burst"
)

// Patterns are all patterns.
var Patterns = []Pattern{Even, Skew, Hotspot, Flash, CompliantBurst}

// HasLoad reports whether Options.Load says how much the pattern offers. The others have a load of their own.
func (p Pattern) HasLoad() bool { return p != Flash && p != CompliantBurst }

// load is what the pattern offers on average, as a multiple of the limit, where asked is Options.Load.
func (p Pattern) load(asked float64) float64 {
	switch p {
	case Flash:
		return (backgroundLoad*(flashEvery-flashLength) + flashLoad*flashLength) / flashEvery
	case CompliantBurst:
		return keepsTo
	}
	return asked
}

const (
	skewed         = 0.7
	hot            = 0.8
	hotFor         = 3.0 // seconds
	flashEvery     = 20.0
	flashFrom      = 10.0 // seconds after the beginning of each flashEvery
	flashLength    = 1.0
	flashLoad      = 20.0
	backgroundLoad = 0.5
	keepsTo        = judge.CompliantShare // the part of its limit that a compliant client uses
)

// arrivals are all requests of a run. Clients are named by their numbers; those beside the load come last.
func arrivals(o *Options) traffic.Source {
	var load traffic.Source
	switch {
	case o.Trace != nil:
		load = o.Trace.replay(o)
	case o.Pattern == CompliantBurst:
		load = bursts(o)
	default:
		load = newPoisson(o).next
	}
	if o.Compliant == 0 {
		return load
	}
	return traffic.Merge(load, evenly(o))
}

// poisson is requests of independent clients at random moments.
type poisson struct {
	*Options
	unit                         float64 // requests a second at a load of 1
	at, end                      float64 // seconds since the start
	gaps, clients, places, moves *rand.Rand
	hotspot                      int     // of client 0; those of the others follow it
	moved                        float64 // seconds since the start
}

func newPoisson(o *Options) *poisson {
	s := &poisson{
		Options: o, end: o.Duration.Seconds(), unit: float64(o.Limit) / o.Window.Seconds() * float64(o.Keys),
		gaps: o.stream(drawGaps), clients: o.stream(drawClients), places: o.stream(drawPlaces),
		moves: o.stream(drawHotspot),
	}
	s.hotspot = s.moves.IntN(s.Total())
	return s
}

func (s *poisson) next() (a traffic.Arrival, ok bool) {
	// Time goes as far as it takes for the load to add up to what was drawn.
	for left := s.gaps.ExpFloat64() / s.unit; ; {
		load, until := s.now()
		if need := left / load; s.at+need < until {
			s.at += need
			break
		}
		left -= (until - s.at) * load
		if s.at = until; s.at >= s.end {
			return a, false
		}
	}
	if s.at >= s.end {
		return a, false
	}
	client := 0
	if s.Keys > 1 {
		client = s.clients.IntN(s.Keys)
	}
	after := time.Duration(s.at * float64(time.Second))
	return traffic.Arrival{After: after, Client: strconv.Itoa(client), Node: s.place(client)}, true
}

// now is the load and until when it stays.
func (s *poisson) now() (load, until float64) {
	if s.Pattern != Flash {
		return s.Load, s.end
	}
	round := float64(int64(s.at/flashEvery)) * flashEvery
	switch into := s.at - round; {
	case into < flashFrom:
		return backgroundLoad, round + flashFrom
	case into < flashFrom+flashLength:
		return flashLoad, round + flashFrom + flashLength
	}
	return backgroundLoad, round + flashEvery
}

// place draws the node.
func (s *poisson) place(client int) int {
	nodes, share := s.Total(), 0.0
	switch s.Pattern {
	case Skew:
		share = skewed
	case Hotspot:
		share = hot
		for ; s.at >= s.moved+hotFor; s.moved += hotFor {
			s.hotspot = (s.hotspot + 1 + s.moves.IntN(max(1, nodes-1))) % nodes
		}
	}
	if share == 0 || nodes == 1 {
		return s.places.IntN(nodes)
	}
	busy := (s.hotspot + client) % nodes
	if s.places.Float64() < share {
		return busy
	}
	return (busy + 1 + s.places.IntN(nodes-1)) % nodes
}

// evenly is clients beside the load, each of which spends 95 % of its limit as evenly as can be, at nodes drawn at
// random. No window of any algorithm ever holds more than that of them.
func evenly(o *Options) traffic.Source {
	largest := int64(keepsTo * float64(o.Limit))
	if largest == 0 { // the limit leaves room for one request, and 95 % of it for none
		return traffic.Merge()
	}
	places, clients := o.stream(drawCompliant), int64(o.Compliant)
	gap := (int64(o.countedFor())-1)/largest + 1 // between two requests of a client
	phase, count := places.Int64N(gap), int64(0)
	next := func() (traffic.Arrival, bool) {
		round, client := count/clients, count%clients
		at := phase + round*gap + client*(gap/clients)
		count++
		name := strconv.Itoa(o.Keys + int(client))
		return traffic.Arrival{After: time.Duration(at), Client: name, Node: places.IntN(o.Total())}, true
	}
	return traffic.Source(next).Until(o.Duration)
}

// burstLengths and Placements are gone through in turn, client by client: all twelve pairs of them in as many clients.
var burstLengths = []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second}

// Placement is where the bursts of a client come.
type Placement string

// The placements of the accuracy goals.
const (
	OnOne       Placement = "one"         // one node for all bursts
	OnAll       Placement = "even"        // all nodes alike, each request at one drawn at random
	Moving      Placement = "moving"      // one node for a burst, and another one for the next
	Alternating Placement = "alternating" // two nodes in turn, request by request
)

// Placements are all placements.
var Placements = []Placement{OnOne, OnAll, Moving, Alternating}

// BurstKeys is how many clients it takes for every burst length at every placement.
const BurstKeys = 12

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

// anyNode has the node of a request drawn in the order of arrival.
const anyNode = -1

// bursts are clients that spend 95 % of the limit in a burst, wait, and do it again.
//
// The requests of a client come at the same moments of each of its bursts, and the next burst begins not before the
// last has stopped to count: so each request has left the window for good when its like in the next burst comes, and no
// view ever exceeds 95 %.
func bursts(o *Options) traffic.Source {
	places := o.stream(drawPlaces)
	var clients []traffic.Source
	for client := range o.Keys {
		clients = append(clients, o.burstsOf(client))
	}
	next := traffic.Merge(clients...).Until(o.Duration)
	return func() (traffic.Arrival, bool) {
		a, ok := next()
		if a.Node == anyNode {
			a.Node = places.IntN(o.Total())
		}
		return a, ok
	}
}

// burstsOf are the bursts of one client, without end.
func (o *Options) burstsOf(client int) traffic.Source {
	name, draw := strconv.Itoa(client), o.stream(drawGaps+concern(client)<<8)
	length, where := o.burst(client)
	spacing, spread := int64(o.countedFor()), max(1, int64(o.Window/4))
	home, began := draw.IntN(o.Total()), draw.Int64N(spacing)
	offsets := make([]int64, uint64(keepsTo*float64(o.Limit))) // of the requests of a burst
	if len(offsets) == 0 {
		return traffic.Merge()
	}
	for i := range offsets {
		offsets[i] = draw.Int64N(int64(length))
	}
	slices.Sort(offsets)
	i := 0
	return func() (traffic.Arrival, bool) {
		a := traffic.Arrival{After: time.Duration(began + offsets[i]), Client: name, Node: home}
		switch where {
		case OnAll:
			a.Node = anyNode
		case Alternating:
			a.Node = (home + i%2*(o.Total()/2)) % o.Total()
		}
		if i++; i == len(offsets) {
			i, began = 0, began+spacing+draw.Int64N(spread)
			if where == Moving {
				home = draw.IntN(o.Total())
			}
		}
		return a, true
	}
}
