package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/testnet/judge"
)

// Pattern is when and where requests arrive. All arrive at random (Poisson) but for CompliantBurst.
type Pattern string

// The patterns of the accuracy goals.
const (
	// Even is all nodes alike.
	Even Pattern = "even"
	// Skew is 70 % on one node, the rest on the others alike.
	Skew Pattern = "skew"
	// Hotspot is 80 % on a random node that changes every 3 s.
	Hotspot Pattern = "hotspot"
	// Flash is 0.5 times the limit, and 20 times for one second in every 20, on all nodes alike.
	Flash Pattern = "flash"
	// CompliantBurst is clients that keep to 95 % of the limit and spend it in a burst: in 0.2 s, 1 s or 3 s; on one
	// node, on all, on one that moves from burst to burst, or alternating between two.
	CompliantBurst Pattern = "compliant-burst"
)

// Patterns are all patterns.
var Patterns = []Pattern{Even, Skew, Hotspot, Flash, CompliantBurst}

func (p Pattern) known() bool { return slices.Contains(Patterns, p) }

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

// arrival is a request of a client at a node.
type arrival struct {
	after  int64 // ns since the start
	node   int
	client int
}

// source gives the arrivals in the order of their times.
type source interface {
	next() (arrival, bool)
}

func newSource(o *Options) source {
	if o.Compliant > 0 {
		return newMerged(newLoad(o), newCompliant(o))
	}
	return newLoad(o)
}

// newLoad is what clients 0 to Keys-1 ask for.
func newLoad(o *Options) source {
	switch {
	case o.Trace != nil:
		return o.Trace.source(o)
	case o.Pattern == CompliantBurst:
		return newBursts(o)
	}
	s := &poisson{
		pattern: o.Pattern, nodes: o.Total(), keys: o.Keys, end: o.Duration.Seconds(),
		unit: float64(o.Limit) / o.Window.Seconds() * float64(o.Keys), load: o.Load,
		gaps: o.stream(
			drawGaps,
		), clients: o.stream(drawClients), places: o.stream(drawPlaces), moves: o.stream(drawHotspot),
	}
	s.hotspot = s.moves.IntN(s.nodes)
	return s
}

// poisson is requests of independent clients at random moments.
type poisson struct {
	pattern                      Pattern
	nodes, keys                  int
	unit                         float64 // requests a second at a load of 1
	load, at, end                float64
	gaps, clients, places, moves *rand.Rand
	hotspot                      int // of client 0; those of the others follow it
	moved                        float64
}

func (s *poisson) next() (arrival, bool) {
	// Time goes as far as it takes for the load to add up to what was drawn.
	for left := s.gaps.ExpFloat64() / s.unit; ; {
		load, until := s.now()
		if need := left / load; s.at+need < until {
			s.at += need
			break
		}
		left -= (until - s.at) * load
		if s.at = until; s.at >= s.end {
			return arrival{}, false
		}
	}
	if s.at >= s.end {
		return arrival{}, false
	}
	client := 0
	if s.keys > 1 {
		client = s.clients.IntN(s.keys)
	}
	return arrival{after: int64(s.at * float64(time.Second)), node: s.place(client), client: client}, true
}

// now is the load and until when it stays.
func (s *poisson) now() (load, until float64) {
	if s.pattern != Flash {
		return s.load, s.end
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
	var share float64
	switch s.pattern {
	case Skew:
		share = skewed
	case Hotspot:
		share = hot
		for ; s.at >= s.moved+hotFor; s.moved += hotFor {
			s.hotspot = (s.hotspot + 1 + s.moves.IntN(max(1, s.nodes-1))) % s.nodes
		}
	}
	if share == 0 || s.nodes == 1 {
		return s.places.IntN(s.nodes)
	}
	busy := (s.hotspot + client) % s.nodes
	if s.places.Float64() < share {
		return busy
	}
	return (busy + 1 + s.places.IntN(s.nodes-1)) % s.nodes
}
