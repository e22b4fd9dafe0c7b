package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// Staleness is how old what a node knows of another one is: the time from before a request was sent to one node until
// another one, which was asked for the same client at the same time, counts it.
type Staleness struct {
	Samples   int     `json:"samples"`
	P50Millis float64 `json:"p50_ms"`
	P99Millis float64 `json:"p99_ms"`
	MaxMillis float64 `json:"max_ms"`
	Missed    int     `json:"missed"` // that were not counted within probeTimeout
}

const (
	probeEvery   = 500 * time.Millisecond // a pair in a region and one across
	pollsPerTick = 10                     // how often a node is asked in a gossip interval
	probeTimeout = 5 * time.Second
)

// probes are the pairs of nodes whose staleness is measured.
type probes struct {
	fleet *fleet

	mu        sync.Mutex
	near, far []time.Duration
	missed    [2]int // near, far
}

// run measures pairs of nodes until ctx ends.
func (p *probes) run(ctx context.Context) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	var probing sync.WaitGroup
	defer probing.Wait()
	r := rand.New(rand.NewPCG(3, 4))
	o := p.fleet.opt
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		region, i := r.IntN(o.Regions)*o.Nodes, r.IntN(o.Nodes)
		if o.Nodes > 1 {
			near := region + (i+1)%o.Nodes
			probing.Go(func() { p.probe(ctx, fmt.Sprintf("%s-near-%d", keptRule, n), 0, region+i, near) })
		}
		if o.Regions > 1 {
			other := (region + o.Nodes*(1+r.IntN(o.Regions-1))) % (o.Regions * o.Nodes)
			far := other + r.IntN(o.Nodes)
			probing.Go(func() { p.probe(ctx, fmt.Sprintf("%s-far-%d", keptRule, n), 1, region+i, far) })
		}
	}
}

// probe asks two nodes for a new client a few times, at the same moment, and measures how long each takes to count what
// the other admits.
func (p *probes) probe(ctx context.Context, client string, kind, a, b int) {
	nodes, want := [2]int{a, b}, uint64(2)
	for ; want < 2+2*probeRounds; want += 2 {
		var rounds sync.WaitGroup
		began, ages := time.Now(), [2]time.Duration{-1, -1}
		for i := range nodes {
			rounds.Go(func() { ages[i] = p.wait(ctx, nodes[i], client, began, want) })
		}
		rounds.Wait()
		if ctx.Err() != nil || p.fleet.isAway(a) || p.fleet.isAway(b) {
			return
		}
		if want > 2 { // the first is of a client that neither knew
			p.add(kind, ages[:])
		}
	}
}

// probeRounds is how often a pair is measured, the first time not counted.
const probeRounds = 3

// wait asks a node once, and returns how long after began it counts what is wanted; -1: it does not.
func (p *probes) wait(ctx context.Context, i int, client string, began time.Time, want uint64) time.Duration {
	target := p.fleet.nodes[i].target
	if _, err := traffic.Take(ctx, p.fleet.client, target, keptRule, client, 1); err != nil {
		return -1
	}
	err := awaitEvery(ctx, p.fleet.opt.Interval/pollsPerTick, probeTimeout, func() (bool, error) {
		counts, err := traffic.Counts(ctx, p.fleet.client, target, keptRule, []string{client})
		return err == nil && counts[client] >= want, err
	})
	if err != nil {
		return -1
	}
	return time.Since(began)
}

func (p *probes) add(kind int, ages []time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, age := range ages {
		switch {
		case age < 0:
			p.missed[kind]++
		case kind == 0:
			p.near = append(p.near, age)
		default:
			p.far = append(p.far, age)
		}
	}
}

// staleness returns what was measured within a region and across.
func (p *probes) staleness() (near, far Staleness) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return newStaleness(p.near, p.missed[0]), newStaleness(p.far, p.missed[1])
}

func newStaleness(ages []time.Duration, missed int) Staleness {
	s := Staleness{Samples: len(ages), Missed: missed}
	s.P50Millis, s.P99Millis, s.MaxMillis = quantile(ages, 0.5), quantile(ages, 0.99), quantile(ages, 1)
	return s
}

// quantile returns the q-quantile in milliseconds, 0 of nothing.
func quantile(all []time.Duration, q float64) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(q*float64(len(sorted)-1))].Seconds() * 1000
}
