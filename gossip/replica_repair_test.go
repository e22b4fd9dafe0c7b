package gossip

import (
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// A key that goes quiet right after its last frame was lost still arrives, at most a second after the first packet gets
// through again: that is a beacon, of which idle nodes send one a second.
func TestLastFrameLost(t *testing.T) {
	for _, test := range []struct {
		name     string
		lost     time.Duration // for how long everything is lost
		interval time.Duration
		oneWay   bool
	}{
		{"for one interval", 150 * time.Millisecond, 100 * time.Millisecond, false},
		{"for a second", time.Second, 100 * time.Millisecond, false},
		{"until the peers are silent", 5 * time.Second, 100 * time.Millisecond, false},
		{"for most of the window", 40 * time.Second, 100 * time.Millisecond, false},
		{"one way only", 5 * time.Second, 100 * time.Millisecond, true},
		{"at a quick pace", 5 * time.Second, 10 * time.Millisecond, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newFakeNet(t, 3, test.interval)
			for range 10 { // so that the last frame is one of many
				w.take(w.nodes[0], 1, 1, w.limits[1])
				w.run(test.interval)
			}
			w.agreed(t, time.Second)
			w.take(w.nodes[0], 1, 1, w.limits[1])
			if test.oneWay {
				w.cutAll(1)
			} else {
				w.cutAll()
			}
			w.run(test.lost)
			if w.agree() {
				t.Fatal("the frame was not lost")
			}
			w.heal()
			t.Log("agreed after", w.agreed(t, idleBeacon+time.Second))
			w.wantViews(t, 11)
			w.run(5 * time.Second)
			w.checkRest()
		})
	}
}

// Another key of the same node goes on while the last frame about the first one is lost.
func TestLastFrameLostAmongOthers(t *testing.T) {
	w := newFakeNet(t, 3, 100*time.Millisecond)
	w.take(w.nodes[0], 1, 1, w.limits[1])
	w.cutAll(2)
	w.run(200 * time.Millisecond)
	w.heal()
	for range 30 {
		w.take(w.nodes[0], 2, 1, w.limits[1])
		w.run(100 * time.Millisecond)
	}
	w.wantViews(t, 1)
}

// Nodes that tick more slowly than silence is long repair what was lost, too.
func TestLongIntervals(t *testing.T) {
	for _, interval := range []time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second} {
		t.Run(interval.String(), func(t *testing.T) {
			w := newFakeNet(t, 3, interval)
			w.run(2 * interval)
			w.take(w.nodes[0], 1, 1, w.limits[1])
			w.cutAll()
			w.run(2 * interval)
			w.heal()
			w.agreed(t, 3*interval)
			w.wantViews(t, 1)
		})
	}
}

// A peer that missed more frames than are kept gets a snapshot.
func TestTooFarBehind(t *testing.T) {
	w := newFakeNet(t, 3, 10*time.Millisecond)
	w.cutAll(1)
	for range ackWindow + 200 {
		w.take(w.nodes[0], counters.Key(1+w.rand.IntN(3)), 1, w.limits[1])
		w.run(w.interval)
	}
	before := w.nodes[0].replica.Stats().Snapshots
	if p := w.nodes[0].replica.peers[w.nodes[1].origin]; len(p.resent) > ackWindow+maxResend {
		t.Errorf("%d ticks are remembered as sent again, only %d are kept", len(p.resent), ackWindow)
	}
	w.heal()
	w.agreed(t, 4*time.Second)
	w.run(4 * time.Second) // a snapshot that the cut swallowed is not repeated sooner
	if after := w.nodes[0].replica.Stats().Snapshots; after == before {
		t.Error("no snapshot was sent")
	}
	w.checkRest()
}

// A peer that comes back and lacks many frames gets one snapshot for them, and knows all as soon as a frame of it
// arrives.
func TestPartitionHealsBySnapshot(t *testing.T) {
	w := newFakeNet(t, 3, 100*time.Millisecond)
	w.cutAll()
	for range 3 * maxResend {
		w.take(w.nodes[0], counters.Key(1+w.rand.IntN(3)), 1, w.limits[1])
		w.run(w.interval)
	}
	before := w.nodes[0].replica.Stats()
	w.heal()
	w.agreed(t, 2*time.Second) // idle peers send once a second
	after := w.nodes[0].replica.Stats()
	if sent := after.Snapshots - before.Snapshots; sent != 2 || after.Resent-before.Resent > maxResend {
		t.Errorf("%d snapshots for two peers, and %d frames were sent again", sent, after.Resent-before.Resent)
	}
	w.run(4 * time.Second)
	w.checkRest()
}

// A stream that breaks is no loss: the snapshot is sent again, and what is kept of the frames before.
func TestSnapshotLost(t *testing.T) {
	w := newFakeNet(t, 2, 100*time.Millisecond)
	w.take(w.nodes[0], 1, 3, w.limits[1])
	w.run(time.Second)
	w.broken = true
	w.nodes[1].up = false
	w.restart(w.nodes[1])
	w.run(time.Second)
	w.broken = false
	w.agreed(t, 2*snapshotRetry)
	w.wantViews(t, 3)
}

// A node that restarts takes nothing with it: the others still count what it admitted before, and tell it.
func TestRestartKeepsCounts(t *testing.T) {
	w := newFakeNet(t, 3, 100*time.Millisecond)
	w.take(w.nodes[0], 1, 5, w.limits[1])
	w.run(time.Second)
	w.nodes[0].up = false
	w.run(time.Second)
	w.restart(w.nodes[0])
	w.take(w.nodes[0], 1, 2, w.limits[1])
	w.agreed(t, 5*time.Second)
	w.wantViews(t, 7)
}

// Packets of a node that has left may come after the news that it left. They still count, but the node does not come
// back into the bound.
func TestLatePacketsOfMembersThatLeft(t *testing.T) {
	w := newFakeNet(t, 3, 100*time.Millisecond)
	a, b := w.nodes[0], w.nodes[1]
	w.take(a, 1, 5, w.limits[1])
	late := a.replica.Tick(a.table.DrainDirty(w.now), w.now)
	w.run(300 * time.Millisecond)
	w.leave(b, a.origin, true)
	w.run(300 * time.Millisecond)
	for _, m := range late {
		if m.To == b.origin {
			w.deliver(b, m.Data)
		}
	}
	if got := b.table.View(w.limits[1], 1, w.now); got != 5 {
		t.Errorf("the late packet's count is %d, want 5", got)
	}
	for _, p := range b.replica.Peers(w.now) {
		if p.Origin == a.origin {
			t.Errorf("the node that left is known as %+v", p)
		}
	}
	a.up = false
	w.run(forgetSilent + 2*time.Second)
	if h := b.replica.inbound[a.origin]; h != nil {
		t.Error("the node that left is remembered for ever")
	}
}

// Whoever sent a goodbye is gone for good, in whatever order its frames come, and gets nothing any more once it has
// left.
func TestGoodbye(t *testing.T) {
	w := newFakeNet(t, 3, 100*time.Millisecond)
	a, b, c := w.nodes[0], w.nodes[1], w.nodes[2]
	w.take(a, 1, 5, w.limits[1])
	last := a.replica.Tick(a.table.DrainDirty(w.now), w.now)
	bye := a.replica.Goodbye(w.now)
	a.up = false
	if len(bye) != 2 {
		t.Fatalf("%d messages to say goodbye to two", len(bye))
	}
	for _, m := range slices.Concat(last, bye) {
		w.deliver(w.home[m.To], m.Data)
		if m.To == b.origin { // the membership tells it first, and all comes twice
			w.leave(b, a.origin, false)
			w.deliver(b, m.Data)
		}
	}
	w.leave(c, a.origin, false)
	for _, n := range []*fakeNode{b, c} {
		if !n.replica.Left(a.origin) || len(n.replica.Peers(w.now)) != 1 {
			t.Errorf("node %d: it sent a goodbye, and is known as %+v", n.place, n.replica.Peers(w.now))
		}
		if got := n.table.View(w.limits[1], 1, w.now); got != 5 {
			t.Errorf("node %d counts %d, want 5", n.place, got)
		}
	}
	w.run(time.Minute)
}

// A node that failed may still count beyond a partition. It stays among the peers until it has been silent for long.
func TestFailedStaysInTheBound(t *testing.T) {
	w := newFakeNet(t, 2, 100*time.Millisecond)
	a, b := w.nodes[0], w.nodes[1]
	a.up = false
	w.leave(b, a.origin, false)
	known := func() bool {
		ps := b.replica.Peers(w.now)
		return len(ps) == 1 && ps[0].Origin == a.origin && !ps[0].Member
	}
	w.run(forgetSilent - time.Minute)
	if !known() {
		t.Error("forgotten too soon")
	}
	w.run(2 * time.Minute)
	if known() {
		t.Error("never forgotten")
	}
}

// A membership that flaps on one side only costs no count and comes to rest.
func TestMemberFlapsOnOneSide(t *testing.T) {
	w := newFakeNet(t, 2, 100*time.Millisecond)
	a, b := w.nodes[0], w.nodes[1]
	for i := range 20 {
		w.take(a, 1, 1, w.limits[1])
		w.take(b, 1, 1, w.limits[1])
		w.run(130 * time.Millisecond)
		if i%2 == 0 {
			w.leave(b, a.origin, false)
		} else {
			w.join(b, a.origin)
		}
	}
	w.agreed(t, 3*time.Second)
	w.wantViews(t, 40)
	w.run(5 * time.Second)
	w.checkRest()
}
