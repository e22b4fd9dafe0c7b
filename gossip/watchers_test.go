package gossip

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// In regions of a hundred nodes some own nothing. Each has links with some owners of each other region, and both sides
// know that.
func TestWhoOwnsNothingHearsOtherRegions(t *testing.T) {
	const size = 100
	regions := []string{"east", "north", "west"}
	origin := func(region, i int) counters.Origin { return counters.Origin(1 + region*size + i) }
	node := func(region, i int) Node {
		return Node{Region: regions[region], Name: fmt.Sprint(regions[region], "/n", i), Version: largestVersion}
	}
	replicas := make(map[counters.Origin]*Replica)
	sent := make(map[counters.Origin][]Message) // by sender
	for region := range regions {
		for i := range size {
			r := NewReplica(origin(region, i), 100*time.Millisecond, archive{})
			r.Describe(r.self, node(region, i))
			for other := range regions {
				for j := range size {
					if o := origin(other, j); o != r.self {
						r.Join(o, frameTime)
						r.Describe(o, node(other, j))
					}
				}
			}
			sent[r.self] = r.Tick(counters.Drained{}, frameTime)
			replicas[r.self] = r
		}
	}
	var ownNothing []*Replica
	for o, r := range replicas {
		if r.owned == (counters.PartitionSet{}) {
			ownNothing = append(ownNothing, r)
		}
		for _, to := range r.links {
			if !replicas[to].isLink(o) {
				t.Fatalf("node %d has a link with node %d, and that none with it", o, to)
			}
		}
	}
	if n := len(ownNothing); n < 10 || n > 3*size/2 {
		t.Fatalf("%d of %d nodes own nothing", n, 3*size)
	}
	for _, r := range ownNothing {
		for _, g := range r.regions[1:] {
			links := 0
			for _, m := range g.members {
				if r.isLink(m.origin) {
					links++
				}
			}
			if links == 0 || links > watched {
				t.Fatalf("node %d owns nothing and has links with %d nodes of region %s", r.self, links, g.name)
			}
		}
	}

	r := slices.MinFunc(ownNothing, func(a, b *Replica) int { return int(a.self) - int(b.self) })
	now := frameTime
	c := &Cluster{cfg: Config{Now: func() int64 { return now }}, self: Member{Region: r.regions[0].name}, replica: r}
	c.routes = make(map[counters.Origin]*route)
	for _, g := range r.regions {
		for _, m := range g.members {
			if m.origin != r.self {
				c.routes[m.origin] = &route{member: Member{Region: g.name}, pool: &pool{name: wan}, since: now}
			}
		}
	}
	receive := func(region string) {
		for o, all := range sent {
			for _, m := range all {
				if r.peers[o] != nil && r.peers[o].region.name == region && m.To == r.self {
					if err := r.Receive(m.Data, now); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	receive("north")
	receive("west")
	wants := func(when string, seen ...string) {
		t.Helper()
		all, relayed := c.peerStatuses()
		if len(all) != 3*size-1 {
			t.Fatalf("%s: %d statuses", when, len(all))
		}
		for _, p := range all {
			region := r.peers[p.Origin].region
			if region == r.regions[0] {
				continue
			}
			fresh := slices.Contains(seen, region.name)
			if p.Age <= neverSeen != fresh || p.Idle != fresh || relayed[p.Origin] != fresh {
				t.Errorf("%s: node %d of %s is %v old, idle %t, relayed %t", when, p.Origin, region.name, p.Age, p.Idle,
					relayed[p.Origin])
				return
			}
		}
	}
	wants("at first", "north", "west")
	now += int64(neverSeen) + 200*ms
	for o := range sent {
		f := frame{kind: beacon, origin: o, sent: now, ages: &ages{}}
		if p := r.peers[o]; p != nil && p.region.name == "west" && r.isLink(o) {
			if err := r.Receive(f.encode(nil, emptyBody), now); err != nil {
				t.Fatal(err)
			}
			break // one of them is enough
		}
	}
	r.Tick(counters.Drained{}, now)
	r.Tick(counters.Drained{}, now)
	wants("while a region is out of reach", "west")
	now += int64(neverSeen) + 200*ms
	wants("while all are")
}
