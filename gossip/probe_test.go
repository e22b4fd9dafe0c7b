package gossip

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// watched is a cluster of three regions of a hundred nodes, of which one is looked at. Of the others those begin to run
// that it sends something, and hear from it alone.
type watched struct {
	t        *testing.T
	now      int64
	replicas map[counters.Origin]*Replica
	self     *Replica
	c        *Cluster
	down     func(o counters.Origin) bool // nothing comes from them, and they hear nothing
	asked    int                          // how often self has asked nodes of other regions
	answered int                          // and was answered
}

const watchedSize = 100

var watchedRegions = []string{"east", "north", "west"}

func regionOf(o counters.Origin) string { return watchedRegions[int(o-1)/watchedSize] }

// newWatched returns the cluster. which picks the node to look at.
func newWatched(t *testing.T, which func(*Replica) bool) *watched {
	w := &watched{t: t, now: frameTime, down: func(counters.Origin) bool { return false }}
	for self := counters.Origin(1); w.self == nil || !which(w.self); self++ {
		w.self = w.boot(self)
	}
	w.replicas = map[counters.Origin]*Replica{w.self.self: w.self}
	w.c = &Cluster{cfg: Config{Now: func() int64 { return w.now }}, self: Member{Region: regionOf(w.self.self)},
		replica: w.self}
	w.c.routes = make(map[counters.Origin]*route)
	for o := range w.self.peers {
		w.c.routes[o] = &route{member: Member{Region: regionOf(o)}, pool: &pool{name: wan}, since: w.now}
	}
	return w
}

// boot starts a node that knows all others.
func (w *watched) boot(self counters.Origin) *Replica {
	r := NewReplica(self, 500*time.Millisecond, archive{})
	describe := func(o counters.Origin) {
		r.Describe(o, Node{Region: regionOf(o), Name: fmt.Sprint("n", o)})
	}
	describe(self)
	for o := range counters.Origin(len(watchedRegions) * watchedSize) {
		if o++; o != self {
			r.Join(o, w.now)
			describe(o)
		}
	}
	r.Tick(counters.Drained{}, w.now)
	return r
}

// run lets time pass.
func (w *watched) run(d time.Duration) {
	own := w.c.self.Region
	for end := w.now + int64(d); w.now < end; w.now += 10 * ms {
		w.now += 500 * ms
		for _, m := range w.self.Tick(counters.Drained{}, w.now) {
			if regionOf(m.To) == own || w.down(m.To) { // nothing that its own region sends matters
				continue
			}
			if w.replicas[m.To] == nil {
				w.replicas[m.To] = w.boot(m.To)
			}
			if asks := w.deliver(w.replicas[m.To], m.Data); asks && !w.self.isLink(m.To) {
				w.asked++
			}
		}
		for _, o := range slices.Sorted(maps.Keys(w.replicas)) {
			if o == w.self.self {
				continue
			}
			for _, m := range w.replicas[o].Tick(counters.Drained{}, w.now) {
				if m.To == w.self.self && !w.down(o) && !w.deliver(w.self, m.Data) {
					w.answered++
				}
			}
		}
	}
}

// deliver hands over a frame, and reports whether who is no link of its sender is to answer it.
func (w *watched) deliver(to *Replica, data []byte) bool {
	f, err := decodeFrame(data)
	if err == nil {
		err = to.Receive(data, w.now)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return f.ages != nil
}

// sees checks which other regions the node takes to be within reach.
func (w *watched) sees(when string, regions ...string) {
	w.t.Helper()
	all, relayed := w.c.peerStatuses()
	if len(all) != len(w.self.peers) {
		w.t.Fatalf("%s: %d statuses", when, len(all))
	}
	lost := make(map[string]int)
	for _, p := range all {
		region := regionOf(p.Origin)
		if region == w.c.self.Region || w.self.isLink(p.Origin) && !w.self.mayBeSilent(p.Origin) {
			continue
		}
		if p.Age > neverSeen {
			lost[region]++
		}
		if p.Idle != (p.Age <= neverSeen) || relayed[p.Origin] != p.Idle {
			w.t.Fatalf("%s: node %d of %s is %v old, idle %t, relayed %t", when, p.Origin, region, p.Age, p.Idle,
				relayed[p.Origin])
		}
	}
	for _, region := range watchedRegions {
		if region != w.c.self.Region && lost[region] > 0 == slices.Contains(regions, region) {
			w.t.Errorf("%s: %d nodes of %s are out of reach", when, lost[region], region)
		}
	}
}

// A node that owns nothing, and so has no links with other regions, sees all the same whether they can be reached:
// while half of their nodes are dead, too. It sends no more for that than some links would.
func TestWhoOwnsNothingSeesOtherRegions(t *testing.T) {
	w := newWatched(t, func(r *Replica) bool {
		return !slices.ContainsFunc(r.links, func(o counters.Origin) bool { return regionOf(o) != regionOf(r.self) })
	})
	w.sees("at first", "east", "north", "west")
	w.run(15 * time.Second)
	w.sees("when all is well", "east", "north", "west")
	rounds := 2 * int(15*time.Second/probeAfter) // of both regions
	if w.asked > (rounds+2)*probes || w.answered > w.asked || w.answered < w.asked-2*probes {
		t.Errorf("in 15 s it asked %d times and was answered %d times", w.asked, w.answered)
	}
	other := watchedRegions[1]
	if other == w.c.self.Region {
		other = watchedRegions[0]
	}
	w.down = func(o counters.Origin) bool { return regionOf(o) == other || o%2 == 0 && o != w.self.self }
	w.run(6 * time.Second)
	rest := slices.DeleteFunc(slices.Clone(watchedRegions), func(r string) bool { return r == other })
	w.sees("while one is dark", rest...)
	w.down = func(o counters.Origin) bool { return regionOf(o) != w.c.self.Region }
	w.run(5 * time.Second)
	w.sees("while its own is cut off")
	w.down = func(counters.Origin) bool { return false }
	w.run(2 * time.Second)
	w.sees("after that", "east", "north", "west")
	for o, r := range w.replicas {
		for from := range r.inbound {
			if (o == w.self.self || from == w.self.self) && !r.isLink(from) {
				t.Errorf("node %d keeps something of node %d, which it has no link with", o, from)
			}
		}
	}
}

// One that owns something asks as well where none of its links answers: those with a region may all be with one node
// that has crashed. A link from which nothing ever came does not hide that others of its region are well.
func TestOwnersSeeRegionsWhoseLinksAreDead(t *testing.T) {
	w := newWatched(t, func(r *Replica) bool { return r.owned != counters.PartitionSet{} })
	var links []counters.Origin
	for _, o := range w.self.links {
		if regionOf(o) != w.c.self.Region {
			links = append(links, o)
		}
	}
	w.down = func(o counters.Origin) bool { return o == links[0] } // has never been heard
	w.run(5 * time.Second)
	w.sees("without one link", "east", "north", "west")
	w.down = func(o counters.Origin) bool { return slices.Contains(links, o) }
	w.run(6 * time.Second)
	w.sees("without any link", "east", "north", "west")
	w.down = func(o counters.Origin) bool { return regionOf(o) != w.c.self.Region }
	w.run(6 * time.Second)
	w.sees("while its region is cut off")
}

// farReplica is a replica of a cluster with another region, and of its nodes one that is a link and one that is none.
func farReplica(t *testing.T) (r *Replica, link, none counters.Origin) {
	t.Helper()
	r = largeReplica(t, meshMost)
	r.log.tick = 5 // as after others left: the frames of those who join from here on do not begin with the first
	for o := range counters.Origin(150) {
		join(r, 200+o, "there")
	}
	r.Tick(counters.Drained{}, frameTime+100*ms)
	for o := range counters.Origin(150) {
		if r.isLink(200 + o) {
			link = 200 + o
		} else {
			none = 200 + o
		}
	}
	return r, link, none
}

// A member that is no link and crashes is waited for by nobody, also where it sent frames before: others of its region
// tell what it admitted. One that is a link is. Either is known again when it comes back.
func TestWhoIsNoLinkIsNotWaitedFor(t *testing.T) {
	r, link, none := farReplica(t)
	for _, o := range []counters.Origin{link, none} {
		f := frame{kind: data, origin: o, tick: 3, sent: frameTime, ages: &ages{}} // the first two are missing
		if err := r.Receive(f.encode(nil, emptyBody), frameTime); err != nil {
			t.Fatal(err)
		}
	}
	waits := func(o counters.Origin, now int64) (peer, silent bool) {
		peer = slices.ContainsFunc(r.Peers(now), func(p PeerStatus) bool { return p.Origin == o })
		return peer, slices.ContainsFunc(r.silent(now), func(h *inbound) bool { return h.origin == o })
	}
	later := frameTime + int64(10*time.Second)
	for _, member := range []bool{true, false} {
		for o, want := range map[counters.Origin]bool{link: true, none: false} {
			peer, silent := waits(o, later)
			if peer != (want || member) || silent != want {
				t.Errorf("member: %t, link: %t: it is a peer: %t, and counts as silent: %t", member, want, peer, silent)
			}
		}
		r.Leave(link, false)
		r.Leave(none, false)
	}
	join(r, none, "there")
	if peer, _ := waits(none, later); !peer {
		t.Error("who comes back is no peer")
	}
}

// A node that stops does not wait for one to which it has sent nothing, though that asked whether it is there.
func TestAStopWaitsForNobodyWhoAsks(t *testing.T) {
	r, _, none := farReplica(t)
	now := frameTime + 200*ms
	f := frame{kind: beacon, origin: none, sent: now, ages: &ages{}}
	if err := r.Receive(f.encode(nil, emptyBody), now); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		now += 100 * ms
		r.Tick(counters.Drained{}, now)
		r.counts.(*counters.Table).DrainDirty(now)
	}
	for _, p := range r.peers {
		if p.origin != none {
			p.lastSeen = 0
		}
	}
	if !r.FullyAcked(now) {
		t.Error("it waits")
	}
}

// What a dark region was asked for stays known when owners are linked there that have never been heard.
func TestNewLinksHideNoDemand(t *testing.T) {
	r, link, none := farReplica(t)
	now := frameTime + 200*ms
	f := frame{kind: beacon, origin: link, tick: 0, sent: now, ages: &ages{}}
	if err := r.Receive(f.encode(nil, emptyBody), now); err != nil {
		t.Fatal(err)
	}
	r.inbound[link].sums[ofRegion] = map[string]reported{"r": {rate: 7, sent: now}}
	now += int64(time.Minute)
	r.links = append(r.links, none)
	slices.Sort(r.links)
	r.inboundOf(none, now)
	r.addDemands(now)
	if d := r.demands["r"]; d == nil || d.rates[ofLost] != 7 {
		t.Errorf("the demand of a region that is out of reach: %+v, want 7", d)
	}
}

// The only other node of a region is reachable as soon as it is a member again, however long it was away.
func TestTheOnlyNeighbourComesBack(t *testing.T) {
	now := frameTime
	region := func(o counters.Origin) string { return fmt.Sprint("region-", (o-1)/2) }
	r := NewReplica(1, 100*time.Millisecond, counters.NewTable(counters.Config{Origin: 1, Memory: 4 << 20}))
	r.Describe(1, Node{Region: region(1), Name: "n1"})
	c := &Cluster{cfg: Config{Interval: 100 * time.Millisecond, Now: func() int64 { return now }},
		self: Member{Region: region(1)}, replica: r}
	c.routes = make(map[counters.Origin]*route)
	arrives := func(o counters.Origin, of string) {
		r.Join(o, now)
		r.Describe(o, Node{Region: of, Name: fmt.Sprint("node-", o)})
		c.routes[o] = &route{member: Member{Region: of, NodeID: fmt.Sprint("n", o)}, pool: &pool{name: lan}, since: now}
	}
	for o := counters.Origin(2); o <= 18; o++ {
		arrives(o, region(o))
	}
	run := func(d time.Duration) {
		for end := now + int64(d); now < end; {
			now += 100 * ms
			for o := range r.peers {
				f := frame{kind: beacon, origin: o, sent: now, ages: &ages{}}
				if err := r.Receive(f.encode(nil, emptyBody), now); err != nil {
					t.Fatal(err)
				}
			}
			r.Tick(counters.Drained{}, now)
		}
	}
	age := func(o counters.Origin) time.Duration {
		all, _ := c.peerStatuses()
		for _, p := range all {
			if p.Origin == o {
				return p.Age
			}
		}
		t.Fatalf("%d is not known", o)
		return 0
	}
	run(10 * time.Second)
	if !r.large {
		t.Fatal("it is a small cluster")
	}
	f := frame{kind: goodbye, origin: 2, sent: now + 1}
	if err := r.Receive(f.encode(nil, emptyBody), now+1); err != nil {
		t.Fatal(err)
	}
	r.Leave(2, true)
	delete(c.routes, 2)
	run(6 * time.Second)
	arrives(200, region(1)) // its next boot
	for range 3 {
		if now += 30 * ms; age(200) > time.Second {
			t.Errorf("nothing came from it for %v, and it joined %v ago", age(200),
				time.Duration(now-c.routes[200].since))
		}
	}
}
