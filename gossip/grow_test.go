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
	w.introduce(n, n, region)
	for _, other := range w.nodes[:n.place] {
		w.introduce(n, other, other.replica.regions[0].name)
		w.introduce(other, n, region)
	}
}

// introduce has a node learn of another one and its region, or of its own.
func (w *fakeNet) introduce(n, other *fakeNode, region string) {
	w.join(n, other.origin)
	n.replica.Describe(other.origin,
		Node{Region: region, Name: fmt.Sprint("node-", other.place)})
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
	asked := 6 * 200.0 // of the region that is out of reach: a third of 12 every 20 ms
	for place, bound := range audit()[:15] {
		if r := w.nodes[place].replica; !r.large || bound < 0.8*asked {
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

// When the owner of a key stops, or starts again, while a region is cut off, its own region goes on to bound what that
// one admits: the new owner may not have reported it yet.
func TestAnOwnerGoesWhileARegionIsCutOff(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("again=%t", again), func(t *testing.T) { checkOwnerGoesInACut(t, again) })
	}
}

func checkOwnerGoesInACut(t *testing.T, again bool) {
	w := newFakeNet(t, 0, 100*time.Millisecond)
	const nodes = 24
	region := func(n *fakeNode) string { return fmt.Sprint("region-", n.place%2) }
	for place := range nodes {
		w.addNodeTo(region(&fakeNode{place: place}))
	}
	for _, n := range w.nodes {
		n.table.Know(w.limits)
	}
	limit, turn := w.limits[0], 0
	rule := limit.Meter().Rule
	w.run(time.Second)
	owner := w.home[w.nodes[0].replica.regions[0].owners[1]]
	largest := 0.0                   // of the bounds of its region
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
			if n.up && region(n) == region(owner) {
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
	offer(9 * time.Second)
	before := owner.origin
	if again {
		w.start(owner)
		owner.table.Know(w.limits)
		w.introduce(owner, owner, region(owner))
	} else {
		owner.replica.ResendEveryTick()
		offer(time.Second)
		for _, m := range owner.replica.Goodbye(w.now) {
			w.deliver(w.home[m.To], m.Data)
		}
		owner.up = false
	}
	for _, n := range w.nodes {
		if n == owner || region(n) != region(owner) && !again {
			continue
		}
		if region(n) == region(owner) {
			w.leave(n, before, true)
		}
		if again {
			w.introduce(owner, n, region(n))
		}
		if again && region(n) == region(owner) {
			w.introduce(n, owner, region(owner))
		}
	}
	for range 10 {
		largest = 0
		offer(500 * time.Millisecond)
		sides := [2]uint64{}
		for _, n := range w.nodes {
			if n.up {
				sides[n.place%2] = max(sides[n.place%2], n.table.View(limit, 1, w.now))
			}
		}
		if excess := float64(sides[0]+sides[1]) - float64(limit.Largest()); largest < excess {
			t.Errorf("the sides admitted %v more than the limit, and that region bounds it by %v", excess, largest)
		}
	}
}

// A cluster that was large takes in again what a node that starts brings together of one that was killed, once no sum
// counts any more.
func TestLastFrameOfTheKilledInWhatWasALargeCluster(t *testing.T) {
	w := newFakeNet(t, 0, 100*time.Millisecond)
	const stay = 4
	for range meshMost + 2 {
		w.addNodeTo("region-0")
	}
	for _, n := range w.nodes {
		n.table.Know(w.limits)
	}
	w.run(2 * time.Second)
	for i := range counters.Key(50) {
		for _, n := range w.nodes {
			w.take(n, 100+i, 1, w.limits[0])
		}
		w.run(20 * time.Millisecond)
	}
	for _, n := range w.nodes[stay:] {
		for _, m := range n.replica.Goodbye(w.now) {
			w.deliver(w.home[m.To], m.Data)
		}
		n.up = false
		for _, o := range w.nodes[:stay] {
			w.leave(o, n.origin, true)
		}
	}
	w.nodes = w.nodes[:stay]
	w.run(130 * time.Second) // the longest window is a minute
	killed, knows := w.nodes[0], w.nodes[1]
	if knows.replica.large {
		t.Fatal("it is large still")
	}
	w.take(killed, 1, 5, w.limits[1])
	w.run(time.Second)
	w.take(killed, 1, 10, w.limits[1])
	w.kill(killed, knows)
	w.run(time.Second)
	before := killed.origin
	w.start(killed)
	killed.table.Know(w.limits)
	w.introduce(killed, killed, "region-0")
	for _, n := range w.nodes[1:] {
		w.leave(n, before, true)
		w.introduce(n, killed, "region-0")
		w.introduce(killed, n, "region-0")
	}
	w.run(20 * time.Second)
	w.wantViews(t, 15)
}
