package gossip

import (
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// An interval's packets are spread over it, and urgent ones do not wait behind them. What waits is bounded, the oldest
// is dropped and counted, and whoever sends never waits.
func TestSendingIsPaced(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.loss(0)
		n, peer := l.start("east/n1"), l.start("east/n2")
		l.within(wholeWithin, "the cluster", l.sees(l.all()...))
		to := peer.Self().Origin()
		messages := func(count int) func() []Message {
			return func() []Message {
				return slices.Repeat([]Message{{To: to, Data: []byte{0x90}}}, count) // nobody can read it
			}
		}
		came := func() uint64 { return peer.Stats().Malformed }
		begun := time.Now()
		n.send(messages(6*burst), false)
		n.send(messages(10), true)
		if took := time.Since(begun); took > 0 {
			t.Errorf("the sender waited for %v", took)
		}
		time.Sleep(5 * time.Millisecond)
		if got := came(); got != burst+10 {
			t.Errorf("at once come %d packets, want %d and the urgent 10", got, burst)
		}
		time.Sleep(DefaultInterval)
		if got := came(); got != 6*burst+10 {
			t.Errorf("within an interval come %d packets, want %d", got, 6*burst+10)
		}
		n.send(messages(burst+maxPaced+100), false)
		n.send(messages(50), false)
		if got := n.Stats().Unsent; got != 150 {
			t.Errorf("%d packets were dropped, want 150", got)
		}
		if waiting := len(n.outbox.paced); waiting != maxPaced {
			t.Errorf("%d packets wait, at most %d", waiting, maxPaced)
		}
	})
}

// Peers whose streams hang hold up nobody else's snapshot, and each has one under way at a time.
func TestSlowStreamsHoldUpNobody(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.loss(0)
		n, peer := l.start("east/n1"), l.start("east/n2")
		l.within(wholeWithin, "the cluster", l.sees(l.all()...))
		l.links.Register("10.9.9.9:7946", "void")
		l.links.Partition("void")
		far := peer.Self()
		slow := *n.route(far.Origin())
		slow.node.Addr = []byte{10, 9, 9, 9}
		for i := range 2 * maxStream {
			slow := slow
			slow.member.Incarnation = uint64(1000 + i/4)
			n.sendStream(&slow, []byte{0x90})
		}
		if under := n.outbox.streaming(); under != 2*maxStream/4 {
			t.Errorf("%d snapshots are on their way, one to each of %d", under, 2*maxStream/4)
		}
		n.sendStream(n.route(far.Origin()), []byte{0x90})
		time.Sleep(time.Second)
		if got := peer.Stats().Malformed; got != 1 {
			t.Errorf("%d snapshots arrived beside those that hang, want 1", got)
		}
		time.Sleep(2 * streamTimeout)
		if under := n.outbox.streaming(); under != 0 {
			t.Errorf("%d are on their way for ever", under)
		}
	})
}

// streaming is how many snapshots are on their way.
func (q *outbox) streaming() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.streams)
}

// route is how a member is reached now.
func (n *testNode) route(o counters.Origin) *route {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.routes[o]
}

// Large snapshots wait for each other: of many nodes that start together each gets one, the latest, and few are under
// way at a time.
func TestSnapshotsWaitForEachOther(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.loss(0)
		n, peer := l.start("east/n1"), l.start("east/n2")
		l.within(wholeWithin, "the cluster", l.sees(l.all()...))
		time.Sleep(snapshotRetry)              // their own snapshots have gone
		large := make([]byte, maxSnapshot*3/4) // no frame
		large[0] = 0x90
		for i := range uint64(64) {
			r := *n.route(peer.Self().Origin())
			r.member.Incarnation = 1000 + i
			n.sendStream(&r, append(large, byte(i)))
			n.sendStream(&r, append(large, byte(i))) // it waits already, or one is under way
		}
		s := n.outbox
		look := func() (underWay, wait int, latest byte) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.queue) > 0 {
				latest = s.latest[len(large)]
			}
			return len(s.streams), len(s.queue), latest
		}
		for {
			underWay, wait, latest := look()
			if underWay+wait == 0 {
				break
			}
			if underWay > 2 || wait > 0 && latest != 63 {
				t.Fatalf("%d are under way, and those that wait get number %d", underWay, latest)
			}
			time.Sleep(time.Millisecond)
		}
		if s.latest != nil {
			t.Error("a snapshot is kept that nobody waits for")
		}
		time.Sleep(time.Second)
		if got := peer.Stats().Malformed + peer.Stats().SnapshotsRefused; got != 64 {
			t.Errorf("%d arrived of 64", got)
		}
	})
}
