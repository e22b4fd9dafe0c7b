package gossip

import (
	"fmt"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// addNode adds a node, to one of three regions. All know of it at once.
func (w *fakeNet) addNode() { w.addNodeTo(fmt.Sprint("region-", len(w.nodes)%3)) }

// addNodeTo adds a node to a region.
func (w *fakeNet) addNodeTo(region string) {
	n := &fakeNode{place: len(w.nodes)}
	w.nodes = append(w.nodes, n)
	w.start(n)
	self := Node{Region: region, Name: fmt.Sprint("node-", n.place), Version: largestVersion}
	n.replica.Describe(n.origin, self)
	for _, other := range w.nodes[:n.place] {
		w.join(n, other.origin)
		n.replica.Describe(other.origin, Node{Region: other.replica.regions[0].name,
			Name: fmt.Sprint("node-", other.place), Version: largestVersion})
		w.join(other, n.origin)
		other.replica.Describe(n.origin, self)
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

// A region that is cut off and small remains part of a large cluster when it gives up the others: what it knows of them
// came from owners. It goes on to admit its share, and both sides bound what they admit together.
func TestASmallRegionWaitsForTheOthers(t *testing.T) {
	w := newFakeNet(t, 0, 100*time.Millisecond)
	const nodes, inRegion = 18, 2
	for place := range nodes {
		w.addNodeTo(fmt.Sprint("region-", place/inRegion))
	}
	for _, n := range w.nodes {
		n.table.Know(w.limits)
	}
	limit, turn := w.limits[0], 0
	rule := limit.Meter().Rule
	largest, admitted := 0.0, uint64(0) // of the bounds; of both sides, by their own views
	offer := func(d time.Duration) {    // six times the limit, at all nodes in turn
		for range d / (5 * time.Millisecond) {
			w.take(w.nodes[turn%nodes], 1, 6, limit)
			turn++
			w.run(5 * time.Millisecond)
		}
		for _, n := range w.nodes {
			largest = max(largest, n.replica.Audit(map[string]*counters.Limit{rule: limit}, w.now)[rule])
		}
		admitted = w.nodes[0].table.View(limit, 1, w.now) + w.nodes[nodes-1].table.View(limit, 1, w.now)
	}
	offer(15 * time.Second)
	for a := range inRegion {
		for b := inRegion; b < nodes; b++ {
			w.cuts[[2]int{a, b}], w.cuts[[2]int{b, a}] = true, true
		}
	}
	offer(15 * time.Second)
	share := w.nodes[0].table.View(limit, 1, w.now)
	for b := inRegion; b < nodes; b++ {
		for a := range inRegion {
			w.leave(w.nodes[a], w.nodes[b].origin, false)
			w.leave(w.nodes[b], w.nodes[a].origin, false)
		}
		offer(time.Second)
	}
	largest = 0
	offer(25 * time.Second)
	if r := w.nodes[0].replica; !r.large {
		t.Error("it became a small cluster while it waited for the others")
	}
	if now := w.nodes[0].table.View(limit, 1, w.now); now > share+limit.Largest()/10 {
		t.Errorf("it admits %d of %d, and %d before it gave up the others", now, limit.Largest(), share)
	}
	if excess := float64(admitted) - float64(limit.Largest()); excess > largest {
		t.Errorf("both sides admit %d of %d, and no bound is above %.0f", admitted, limit.Largest(), largest)
	}
}

// When the owner of a key stops while a region is cut off, the others go on to bound what that region admits: its
// successor has yet to tell them of it.
func TestAnOwnerLeavesWhileARegionIsCutOff(t *testing.T) {
	w := newFakeNet(t, 0, 100*time.Millisecond)
	const nodes = 24
	for place := range nodes {
		w.addNodeTo(fmt.Sprint("region-", place%2))
	}
	for _, n := range w.nodes {
		n.table.Know(w.limits)
	}
	limit, turn := w.limits[0], 0
	rule := limit.Meter().Rule
	w.run(time.Second)
	owner := w.home[w.nodes[0].replica.regions[0].owners[1]]
	largest := 0.0                   // of the bounds of others of its region
	offer := func(d time.Duration) { // six times the limit, at all nodes in turn
		for range d / (5 * time.Millisecond) {
			if n := w.nodes[turn%nodes]; n.up {
				w.take(n, 1, 6, limit)
			}
			turn++
			w.run(5 * time.Millisecond)
		}
		for _, n := range w.nodes {
			bound := n.replica.Audit(map[string]*counters.Limit{rule: limit}, w.now)[rule]
			if n != owner && n.place%2 == owner.place%2 {
				largest = max(largest, bound)
			}
		}
	}
	offer(15 * time.Second)
	for a := range nodes {
		for b := range nodes {
			if a%2 != b%2 {
				w.cuts[[2]int{a, b}] = true
			}
		}
	}
	offer(5 * time.Second)
	owner.replica.ResendEveryTick()
	offer(time.Second)
	for _, m := range owner.replica.Goodbye(w.now) {
		w.deliver(w.home[m.To], m.Data)
	}
	owner.up = false
	for _, n := range w.nodes {
		if n != owner && n.place%2 == owner.place%2 {
			w.leave(n, owner.origin, true)
		}
	}
	for range 10 {
		largest = 0
		offer(500 * time.Millisecond)
		sides := [2]uint64{}
		for _, n := range w.nodes {
			if n != owner {
				sides[n.place%2] = max(sides[n.place%2], n.table.View(limit, 1, w.now))
			}
		}
		if excess := float64(sides[0]+sides[1]) - float64(limit.Largest()); largest < excess {
			t.Errorf("the sides admitted %v more than the limit, and the others bound it by %v", excess, largest)
		}
	}
}
