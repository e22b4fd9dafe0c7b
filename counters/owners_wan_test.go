package counters_test

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// wan is tables in several regions, and a network that holds their slots until a test delivers them. It routes as the
// package gossip does.
type wan struct {
	t       rapid.TB
	nodes   []*wanNode // those that are up
	regions int
	parcels []parcel
	now     int64
	next    counters.Origin
}

// wanNode is a table, and whom it takes for owners. A node with mesh set knows no owners: it sends to everybody.
type wanNode struct {
	*counters.Table
	wan    *wan
	region int
	origin counters.Origin
	owners [][]counters.Origin // by region and partition
	mesh   bool
}

// parcel is slots on their way.
type parcel struct {
	from, to *wanNode
	slots    []counters.Slot
	snapshot bool
}

const (
	wanPartitions = 3 // those of the keys in use
	maxWANMembers = 9
)

// names of sums, beyond all origins of nodes: the kind in the upper bits, then the region and the partition
const (
	regionSum = counters.Origin(iota+1) << 40
	elsewhereSum
	lostSum
)

// sumOf is the sum of a kind that a region names.
func sumOf(kind counters.Origin, region int) counters.Sum {
	return counters.NewSum(uint64(kind) | uint64(region)<<8)
}

// only is the set of one partition.
func only(partition int) (set counters.PartitionSet) {
	set.Add(partition)
	return set
}

// newWAN returns so many nodes in each region, of which the first owns all.
func newWAN(t rapid.TB, regions, members int, table func(counters.Config) *counters.Table) *wan {
	w := &wan{t: t, regions: regions, now: start, next: 10}
	for r := range regions {
		for range members {
			w.join(r, table)
		}
	}
	for _, n := range w.nodes {
		n.owners = make([][]counters.Origin, regions)
		for r := range regions {
			for range wanPartitions {
				n.owners[r] = append(n.owners[r], w.members(r)[0].origin)
			}
		}
		n.setOwners()
	}
	return w
}

// join adds a node, which takes for owners whom the first node does.
func (w *wan) join(region int, table func(counters.Config) *counters.Table) *wanNode {
	w.next++
	n := &wanNode{Table: table(counters.Config{Origin: w.next, Region: fmt.Sprint("r", region)}), wan: w,
		region: region, origin: w.next}
	if len(w.nodes) > 0 {
		for _, owners := range w.nodes[0].owners {
			n.owners = append(n.owners, slices.Clone(owners))
		}
		n.mesh = w.nodes[0].mesh
	}
	for _, other := range w.nodes {
		other.SetMember(n.origin, true)
		n.SetMember(other.origin, true)
	}
	w.nodes = append(w.nodes, n)
	n.setOwners()
	return n
}

// leave takes a node away, as a crash does.
func (w *wan) leave(n *wanNode) {
	w.nodes = slices.DeleteFunc(w.nodes, func(m *wanNode) bool { return m == n })
	for _, m := range w.nodes {
		m.SetMember(n.origin, false)
	}
}

func (w *wan) members(region int) (of []*wanNode) {
	for _, n := range w.nodes {
		if n.region == region {
			of = append(of, n)
		}
	}
	return of
}

func (w *wan) draw(t *rapid.T, of []*wanNode, label string) *wanNode {
	return of[rapid.IntRange(0, len(of)-1).Draw(t, label)]
}

// homesOf are the regions that are homes of a partition.
func homesOf(partition, regions int) []int {
	if regions == 1 {
		return []int{0}
	}
	return []int{partition % regions, (partition + 1) % regions}
}

// setOwners has the table know whom its node takes for owners.
func (n *wanNode) setOwners() {
	if n.mesh || len(n.owners) == 0 {
		n.SetOwners(nil)
		return
	}
	o := &counters.Owners{Regions: len(n.owners), Members: make([]int, 1+len(n.owners)),
		Region: sumOf(regionSum, n.region), Elsewhere: sumOf(elsewhereSum, n.region), Lost: sumOf(lostSum, n.region)}
	for region := range n.owners { // Far(region) is the place of each, but of its own
		o.Members[1+region] = maxWANMembers
	}
	o.Members[0], o.Members[1+n.region] = maxWANMembers, 0
	for _, m := range n.wan.members(n.region) {
		if m != n {
			o.Others = append(o.Others, m.origin)
		}
	}
	for p := range wanPartitions {
		if n.owners[n.region][p] == n.origin {
			o.Owned.Add(p)
		}
		homes := 0
		for _, r := range homesOf(p, len(n.owners)) {
			switch {
			case r != n.region:
				o.Homes[p][homes] = sumOf(regionSum, r)
				homes++
			case o.Owned.Has(p):
				o.Home.Add(p)
			}
		}
	}
	n.SetOwners(o)
}

// refreshAll has the node send again all that it knows.
func (n *wanNode) refreshAll() {
	var all counters.PartitionSet
	for p := range wanPartitions {
		all.Add(p)
	}
	n.Refresh(all)
}

// flush drains a node and sends what it drained.
func (w *wan) flush(n *wanNode) { w.route(n, n.DrainDirty(w.now).Slots) }

// route puts drained slots on their way to those whom they are for.
func (w *wan) route(n *wanNode, slots []counters.Slot) {
	to := make(map[counters.Origin][]counters.Slot)
	give := func(o counters.Origin, s counters.Slot) {
		if o != n.origin && o != s.Origin {
			to[o] = append(to[o], s)
		}
	}
	for _, s := range slots {
		partition := s.Key.Partition()
		switch {
		case n.mesh:
			for _, m := range w.nodes {
				give(m.origin, s)
			}
		case s.To == 0:
			give(n.owners[n.region][partition], s)
		case s.To == counters.AllMembers:
			for _, m := range w.members(n.region) {
				give(m.origin, s)
			}
		case s.To == counters.AllRegions:
			for r := range w.regions {
				if r != n.region {
					give(n.owners[r][partition], s)
				}
			}
		case s.To >= regionSum:
			if region := int(s.To>>8) & 0xff; s.To < elsewhereSum {
				give(n.owners[region][partition], s)
			}
		default:
			give(s.To, s)
		}
	}
	for _, m := range w.nodes {
		if len(to[m.origin]) > 0 {
			w.parcels = append(w.parcels, parcel{from: n, to: m, slots: to[m.origin]})
		}
	}
}

// deliver merges a parcel as a replica does.
func (w *wan) deliver(p parcel) {
	var slots []counters.Slot
	for _, s := range p.slots {
		place, known := placeAt(p, &s)
		if !known {
			continue
		}
		s.Place, s.Sender, s.To, s.SentAt = place, p.from.origin, 0, w.now
		slots = append(slots, s)
	}
	p.to.Merge(slots, w.now)
}

// placeAt is where a slot's origin counts, as seen from whom it reaches; known is false where that is not to know.
func placeAt(p parcel, s *counters.Slot) (place counters.Place, known bool) {
	near := p.from.region == p.to.region
	region := int(s.Origin>>8) & 0xff
	switch {
	case s.Origin >= lostSum:
		return counters.Lost, near
	case s.Origin >= elsewhereSum:
		return counters.Elsewhere, near
	case s.Origin >= regionSum && near:
		return counters.Near.Sum(), region == p.to.region
	case s.Origin >= regionSum:
		return counters.Far(region).Sum(), region != p.to.region
	case p.snapshot && s.Origin != p.from.origin:
		return counters.Unplaced, true
	case near:
		return counters.Near, true
	case s.Origin == p.from.origin || !s.Meter.Algorithm.Counts():
		return counters.Far(p.from.region), true
	}
	return counters.Unplaced, true
}

// settle delivers all until nothing is on its way: everybody knows all that it is to know.
func (w *wan) settle() {
	for quiet := 0; quiet < 3; {
		for _, n := range w.nodes {
			w.flush(n)
		}
		if len(w.parcels) == 0 {
			quiet++
		}
		for len(w.parcels) > 0 {
			p := w.parcels[0]
			w.parcels = w.parcels[1:]
			w.deliver(p)
		}
	}
}

// agree has all nodes take the same node for the owner of a partition in a region, and send again.
func (w *wan) agree(region, partition int, owner counters.Origin) {
	for _, n := range w.nodes {
		n.owners[region][partition] = owner
		n.setOwners()
	}
	for _, n := range w.nodes {
		n.refreshAll()
	}
}

// wantTruth holds that no view exceeds the truth.
func (w *wan) wantTruth(l *counters.Limit, truth *oracle.Model, keys int) {
	for _, n := range w.nodes {
		for key := range counters.Key(keys) {
			if view, largest := n.View(l, key, w.now), truth.View(key, w.now); view > largest {
				w.t.Fatalf("node %d of region %d has a view of %d of key %d, of which there are %d\n%+v", n.origin,
					n.region, view, key, largest, n.Slots(l, key, w.now))
			}
		}
	}
}

// wide is a table with room for all that a test counts.
func wide(cfg counters.Config) *counters.Table {
	cfg.Memory = counters.MinMemory
	return counters.NewTable(cfg)
}

// unlimited is a limit of an algorithm that nobody reaches.
func unlimited(t rapid.TB, rule string, a counters.Algorithm) *counters.Limit {
	m := counters.NewMeter(rule, a, 10*time.Second)
	if isBucket(a) {
		return newBucket(t, m, 10000, 1000)
	}
	return newLimit(t, m, 10000)
}
