package gossip

import (
	"fmt"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// largeReplica is a replica of a cluster in which owners add up, with so many peers of its region.
func largeReplica(t *testing.T, peers int) *Replica {
	t.Helper()
	r := NewReplica(1, 100*time.Millisecond, counters.NewTable(counters.Config{Origin: 1, Memory: 4 << 20}))
	r.Describe(1, Node{Region: "here", Name: "self", Version: largestVersion})
	for o := range counters.Origin(peers) {
		joinNear(r, o+10)
	}
	r.Tick(counters.Drained{}, frameTime)
	if !r.large {
		t.Fatalf("%d peers are a small cluster", peers)
	}
	return r
}

func joinNear(r *Replica, o counters.Origin) {
	r.Join(o, frameTime)
	r.Describe(o, Node{Region: "here", Name: fmt.Sprint("node-", o), Version: largestVersion})
}

// Where owners add up, every peer is sent frames of its own, also one that joins later: the frames of one are not sent
// again to another.
func TestPeersThatJoinLaterHaveLogsOfTheirOwn(t *testing.T) {
	r := largeReplica(t, meshMost)
	joinNear(r, 100)
	joinNear(r, 101)
	r.Tick(counters.Drained{}, frameTime+100*ms)
	seen := make(map[*frameLog]counters.Origin)
	for o, p := range r.peers {
		if other, ok := seen[p.log]; ok {
			t.Errorf("peers %d and %d have one log", o, other)
		}
		seen[p.log] = o
	}
}

// The ticks of a peer that leaves and comes back go on: it takes those that it has for repeated.
func TestTicksGoOnWhenAPeerReturns(t *testing.T) {
	r := largeReplica(t, meshMost)
	m := counters.NewMeter("r", counters.SlidingWindow, 10*time.Second)
	now := frameTime
	for range 5 {
		now += 100 * ms
		slot := counters.Slot{Meter: &m, Key: 1, Index: m.Index(now), Origin: 1, Count: 1, To: 10}
		r.Tick(counters.Drained{Slots: []counters.Slot{slot}}, now)
	}
	last := r.peers[10].log.last()
	if last == 0 {
		t.Fatal("nothing went to peer 10")
	}
	r.Leave(10, false)
	r.Tick(counters.Drained{}, now+100*ms)
	joinNear(r, 10)
	if got := r.peers[10].log.last(); got < last {
		t.Errorf("the ticks begin again at %d, they were at %d", got, last)
	}
}

// A sum of a region that is not known yet is not taken for the counts of a node: the frame has to come again.
func TestSumsOfUnknownRegionsComeAgain(t *testing.T) {
	r := largeReplica(t, meshMost)
	r.Join(200, frameTime)
	r.Describe(200, Node{Region: "there", Name: "far", Version: largestVersion})
	m := counters.NewMeter("r", counters.SlidingWindow, 10*time.Second)
	unknown := newSumName("sum", "nowhere").of(1)
	g := group{origin: unknown, meter: &m, rise: ofSum,
		slots: []counters.Slot{{Meter: &m, Key: 1, Index: m.Index(frameTime), Origin: unknown, Count: 7}}}
	bodies := pack([]group{g}, 200, frameTime, maxBody)
	f := frame{kind: data, origin: 200, tick: 1, sent: frameTime, ages: &ages{}}
	receive := func() {
		if err := r.Receive(f.encode(nil, bodies[0]), frameTime); err != nil {
			t.Fatal(err)
		}
	}
	limit, err := counters.NewLimit(m, 100)
	if err != nil {
		t.Fatal(err)
	}
	view := func() uint64 { return r.counts.(*counters.Table).View(limit, 1, frameTime) }
	receive()
	if got := view(); got != 0 || r.inbound[200].cumulative != 0 {
		t.Errorf("it counts %d and has the frames to %d, want nothing", got, r.inbound[200].cumulative)
	}
	r.Join(201, frameTime)
	r.Describe(201, Node{Region: "nowhere", Name: "third", Version: largestVersion})
	receive()
	if got := view(); got != 7 || r.inbound[200].cumulative != 1 {
		t.Errorf("it counts %d and has the frames to %d, want 7 and 1", got, r.inbound[200].cumulative)
	}
}
