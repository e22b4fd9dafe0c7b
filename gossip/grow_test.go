package gossip

import (
	"fmt"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// addNode adds a node, to one of three regions. All know of it at once.
func (w *fakeNet) addNode() {
	n := &fakeNode{place: len(w.nodes)}
	w.nodes = append(w.nodes, n)
	w.start(n)
	node := func(place int) Node {
		return Node{Region: fmt.Sprint("region-", place%3), Name: fmt.Sprint("node-", place), Version: largestVersion}
	}
	n.replica.Describe(n.origin, node(n.place))
	for _, other := range w.nodes[:n.place] {
		w.join(n, other.origin)
		n.replica.Describe(other.origin, node(other.place))
		w.join(other, n.origin)
		other.replica.Describe(n.origin, node(n.place))
	}
}

// A cluster that grows beyond meshMost forgets what nodes reported that report to their owners from then on: the bound
// does not count them as silent. Those that are out of reach at that time it counts until they answer.
func TestASmallClusterGrows(t *testing.T) {
	w := newFakeNet(t, 0, 100*time.Millisecond)
	for range 15 {
		w.addNode()
	}
	limit, turn := w.limits[0], 0
	rule := limit.Meter().Rule
	offer := func(d time.Duration) { // three times the limit, at all nodes in turn
		for range d / (20 * time.Millisecond) {
			w.take(w.nodes[turn%len(w.nodes)], 1, 12, limit)
			turn++
			w.run(20 * time.Millisecond)
		}
	}
	audit := func() (bounds []float64) {
		for _, n := range w.nodes {
			bounds = append(bounds, n.replica.Audit(map[string]*counters.Limit{rule: limit}, w.now)[rule])
		}
		return bounds
	}
	audit()
	offer(3 * time.Second)
	for place := range 15 {
		if place%3 == 2 {
			for other := range 30 {
				if other%3 != 2 {
					w.cuts[[2]int{place, other}], w.cuts[[2]int{other, place}] = true, true
				}
			}
		}
	}
	offer(3 * time.Second)
	for range 15 {
		w.addNode()
	}
	offer(3 * time.Second)
	for place, bound := range audit()[:15] {
		if r := w.nodes[place].replica; !r.large || bound < float64(limit.Largest()) {
			t.Errorf("while a region is out of reach, node %d (large: %t) bounds the excess by %v", place, r.large,
				bound)
		}
	}
	w.heal()
	offer(12 * time.Second)
	for place, bound := range audit() {
		if bound > 0.2*float64(limit.Largest()) {
			t.Errorf("when all is known, node %d bounds the excess by %v", place, bound)
		}
	}
}
