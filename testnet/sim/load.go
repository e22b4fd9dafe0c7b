package sim

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Load is what a deployment is asked for, in more keys than can be simulated. Each key belongs to one node, and the
// keys of a node share its requests by Zipf's law (exponent 1). Some keys are asked for elsewhere as well, and their
// requests are spread evenly over all nodes that are asked.
//
// Of the options it takes the size of the cluster, limit, window, interval, delays, loss and seed. Each of
// Options.Keys is asked for at every node, at Options.Load times the limit in all; there may be none.
type Load struct {
	Options
	KeysTotal int // live keys: those asked for within a window
	// Overlap is the part of the keys that are seen in three regions, at a node of each, and the part of them that are
	// seen by two nodes of a region: 0.05 is 5 % and 5 %.
	Overlap  float64
	Requests float64 // a second and node, for these keys; 0: as many as it has keys
	New      float64 // keys a second and node that come beside them, once, and never again

	// What is simulated of it at most, about; 0: as usual.
	MaxRequests float64 // requests a second
	MaxNodes    int     // nodes; beyond, a node stands for each region but one
}

// seenIn is the number of regions that a key of the overlap is seen in.
const seenIn = 3

// Validate reports everything that is wrong with the load.
func (l *Load) Validate() error {
	o := l.Options
	o.Keys, o.Duration = max(1, o.Keys), time.Second
	return errors.Join(o.Validate(),
		inRange("%d keys in all", l.KeysTotal, 0, 1_000_000_000),
		inRange("an overlap of %g", l.Overlap, 0, 0.5),
		inRange("%g requests a second at a node", l.Requests, 0, 10_000_000),
		inRange("%g new keys a second at a node", l.New, 0, 1_000_000),
		require(l.KeysTotal > 0 || l.New > 0 || l.Keys > 0, "no keys"))
}

// keysOf is the number of keys that belong to a node.
func (l *Load) keysOf() int { return (l.KeysTotal + l.Total() - 1) / max(1, l.Total()) }

// Rate is the requests a second at a node for the keys of KeysTotal.
func (l *Load) Rate() float64 {
	if l.Requests == 0 || l.KeysTotal == 0 {
		return float64(l.KeysTotal) / float64(l.Total())
	}
	return l.Requests
}

// hotRate is the requests a second for the keys that are hot everywhere, at a node.
func (l *Load) hotRate() float64 {
	return float64(l.Keys) * l.Load * float64(l.Limit) / l.Window.Seconds() / float64(l.Total())
}

// askers are the requests that one simulated node is asked for one key.
type askers struct {
	node int
	key  counters.Key
	rate float64 // a second
}

// population is the sampled keys of a load, and who is asked for them.
type population struct {
	*Load
	standIns    bool
	one, oneHot int // one key in so many is in the sample
	asked       []askers
	class       map[counters.Key]class // of sampled keys, but for new ones
	hot         []counters.Key
	// home are the partitions that the first region is a home of, with stand-ins.
	home counters.PartitionSet
}

func newPopulation(l *Load) *population {
	p := &population{Load: l, one: 1, oneHot: 1}
	requests, most := cmp.Or(l.MaxRequests, usualRequests), cmp.Or(l.MaxNodes, usualNodes)
	p.standIns = l.Total() > most && l.Nodes+l.Regions-1 > 16 // in fewer nodes, owners would not add up
	nodes := float64(l.Total())
	if p.standIns {
		nodes = 3 * float64(l.Nodes) // a region, and what others send to it as a home
	}
	p.one = max(1, int(math.Ceil(nodes*(l.Rate()+l.New)/requests)))
	if l.Keys > 0 {
		p.oneHot = min(l.Keys, max(1, int(math.Ceil(l.hotRate()*float64(l.Total())*hotCost/requests))))
	}
	return p
}

// nodeOf is the simulated node that stands for one of a region.
func (p *population) nodeOf(region, number int) int {
	if p.standIns && region > 0 {
		return p.Nodes + region - 1
	}
	return region*p.Nodes + number
}

// concerns reports whether the sample needs a key that only other regions are asked for.
func (p *population) concerns(key counters.Key) bool {
	return !p.standIns || p.home.Has(key.Partition())
}

// class is what the sample has to know of a key.
type class uint8

const (
	hotKey  class = 1 << iota // it is asked for at every node
	inFirst                   // the first region is asked for it
)

// fill draws the keys of the sample. Of the keys of all other regions those matter that the first region, whose
// nodes are measured, is asked for as well or is a home of.
func (p *population) fill() {
	r := p.stream(drawKeys)
	p.class = make(map[counters.Key]class)
	weight := 0.0
	for rank := range p.keysOf() {
		weight += 1 / float64(rank+1)
	}
	for region := range p.Regions {
		for number := range p.Nodes {
			for rank := r.IntN(p.one); rank < p.keysOf(); rank += p.one {
				p.add(r, region, number, p.Rate()/weight/float64(rank+1))
			}
		}
	}
	for range p.hotKeys() {
		key := counters.Key(r.Uint64())
		p.class[key], p.hot = hotKey|inFirst, append(p.hot, key)
		rate := p.hotRate() / float64(p.Keys)
		for region := range p.Regions {
			for number := range p.Nodes {
				p.asked = append(p.asked, askers{p.nodeOf(region, number), key, rate})
			}
		}
	}
}

// homes is the number of partitions that the first region is a home of.
func (p *population) homes() (n int) {
	for i := range counters.Partitions {
		if p.home.Has(i) {
			n++
		}
	}
	return n
}

// hotKeys is how many of the hot keys are in the sample.
func (p *population) hotKeys() int { return p.Keys / p.oneHot }

// add adds a key that belongs to a node.
func (p *population) add(r *rand.Rand, region, number int, rate float64) {
	key := counters.Key(r.Uint64())
	at := [seenIn][2]int{{region, number}}
	seen := 1
	switch u := r.Float64(); {
	case u < p.Overlap && p.Regions > 1:
		for ; seen < min(seenIn, p.Regions); seen++ {
			other := (at[seen-1][0] + 1 + r.IntN(max(1, p.Regions-2))) % p.Regions
			if seen == 2 && other == region {
				other = (other + 1) % p.Regions
			}
			at[seen] = [2]int{other, r.IntN(p.Nodes)}
		}
	case u >= p.Overlap && u < 2*p.Overlap && p.Nodes > 1:
		at[1] = [2]int{region, (number + 1 + r.IntN(p.Nodes-1)) % p.Nodes}
		seen = 2
	}
	var c class
	for _, a := range at[:seen] {
		if a[0] == 0 {
			c = inFirst
		}
	}
	if c == 0 && !p.concerns(key) {
		return
	}
	p.class[key] = c
	for _, a := range at[:seen] {
		p.asked = append(p.asked, askers{p.nodeOf(a[0], a[1]), key, rate / float64(seen)})
	}
}

// draw is a request of a population.
type draw struct {
	after time.Duration
	node  int
	key   counters.Key
}

// requests are the requests for a population, in order, without end.
type requests struct {
	*population
	r        *rand.Rand
	sums     []float64 // of the rates, up to each of the askers
	newFirst float64   // new keys a second in the first region
	newOther float64   // in all others, of those that the first region may receive
	at       float64   // seconds
}

func (p *population) arrive() *requests {
	q := &requests{population: p, r: p.stream(drawGaps)}
	sum := 0.0
	for _, a := range p.asked {
		sum += a.rate
		q.sums = append(q.sums, sum)
	}
	q.newFirst = p.New * float64(p.Nodes) / float64(p.one)
	q.newOther = q.newFirst * float64(p.Regions-1)
	if p.standIns {
		q.newOther *= float64(p.homes()) / counters.Partitions
	}
	return q
}

func (q *requests) next() (d draw) {
	known := 0.0
	if n := len(q.sums); n > 0 {
		known = q.sums[n-1]
	}
	all := known + q.newFirst + q.newOther
	q.at += q.r.ExpFloat64() / all
	d.after = time.Duration(q.at * float64(time.Second))
	switch u := q.r.Float64() * all; {
	case u < known:
		i, _ := slices.BinarySearch(q.sums, u)
		d.node, d.key = q.asked[i].node, q.asked[i].key
	case u < known+q.newFirst:
		d.node, d.key = q.nodeOf(0, q.r.IntN(q.Nodes)), counters.Key(q.r.Uint64())
	default:
		d.node = q.nodeOf(1+q.r.IntN(q.Regions-1), q.r.IntN(q.Nodes))
		for d.key = counters.Key(q.r.Uint64()); !q.concerns(d.key); {
			d.key = counters.Key(q.r.Uint64())
		}
	}
	return d
}
