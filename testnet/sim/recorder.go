package sim

import (
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/testnet/judge"
)

// recorder is what is measured while a run is under way.
type recorder struct {
	cluster     *cluster
	tracker     *judge.Tracker
	names       []string       // of clients, as the ledger has them
	total       judge.Requests // but for clients beside the load
	settled     judge.Requests // from two windows after the beginning on
	partitioned judge.Requests // during partitions
	lost        uint64         // requests that nobody answered
	needless    uint64
	seconds     []Second

	// By interval since the start: the most by which the truth was over the limit, and the largest bound that a node
	// exported.
	excess, bound []float64

	messages, bytes uint64
	staleness       []time.Duration
}

// Second is what happened in one second of a run.
type Second struct {
	Offered, Admitted, Oracle uint64
	Bound                     float64 // the largest that a node exported, as a part of the limit
	// The fullest rolling window of any client that ended in it.
	WindowAdmitted, WindowOracle uint64
}

// packetOverhead is what a packet has beside the frame: IPv4 and UDP (28), memberlist's label of the cluster (23, as in
// a region of seven letters), encryption (29), checksum and type (6).
const packetOverhead = 86

func newRecorder(c *cluster) *recorder {
	b := &recorder{cluster: c, tracker: judge.NewTracker(c.limit, 0)}
	for i := range c.opt.clients() {
		b.names = append(b.names, strconv.Itoa(i))
	}
	b.seconds = make([]Second, (int64(c.opt.Duration)+int64(time.Second)-1)/int64(time.Second))
	return b
}

// measured reports whether requests come at the time.
func (b *recorder) measured(now int64) bool { return now >= b.cluster.startAt && now < b.cluster.endAt }

// decision takes in a decision.
func (b *recorder) decision(client int, now int64, allowed bool) {
	noted := b.tracker.Add(b.names[client], 1, now, allowed)
	if !allowed && noted.Fits {
		b.needless++
	}
	if client >= b.cluster.opt.Keys {
		return
	}
	b.total.Add(allowed, noted.Oracle)
	if now >= b.cluster.startAt+2*int64(b.cluster.opt.Window) {
		b.settled.Add(allowed, noted.Oracle)
	}
	if b.cluster.partitioned() {
		b.partitioned.Add(allowed, noted.Oracle)
	}
	s := &b.seconds[(now-b.cluster.startAt)/int64(time.Second)]
	s.Offered++
	if allowed {
		s.Admitted++
		b.excess = raise(b.excess, b.interval(now), noted.Excess)
	}
	if noted.Oracle {
		s.Oracle++
	}
}

// interval is the number of the interval that holds the time.
func (b *recorder) interval(now int64) int {
	return int((now - b.cluster.startAt) / int64(b.cluster.opt.Interval))
}

// raise sets the value at a place to v if that is larger.
func raise(values []float64, at int, v float64) []float64 {
	for len(values) <= at {
		values = append(values, 0)
	}
	values[at] = max(values[at], v)
	return values
}

func (b *recorder) failed(int64) { b.lost++ }

// exported takes in the bound that a node exports from now until its next interval.
func (b *recorder) exported(now int64, bound float64) {
	if now < b.cluster.startAt {
		return
	}
	b.bound = raise(b.bound, b.interval(now), bound)
	if s := (now - b.cluster.startAt) / int64(time.Second); s < int64(len(b.seconds)) {
		b.seconds[s].Bound = max(b.seconds[s].Bound, bound)
	}
}

func (b *recorder) sent(now int64, m gossip.Message) {
	if b.measured(now) {
		b.messages++
		b.bytes += uint64(len(m.Data)) + packetOverhead
	}
}

// violations are the intervals in which more was admitted over the limit than any node said in time that there could
// be, and than is excused.
func (b *recorder) violations(excused float64) (n int) {
	grace := int(gossip.BoundAfter(b.cluster.opt.Interval) / b.cluster.opt.Interval)
	for i, excess := range b.excess {
		exported := 0.0
		for _, v := range b.bound[min(i, len(b.bound)):min(i+grace+1, len(b.bound))] {
			exported = max(exported, v)
		}
		if excess > exported+excused {
			n++
		}
	}
	return n
}

// sampleStaleness takes a sample of how old the nodes' knowledge of each other is.
func (b *recorder) sampleStaleness() {
	var worst time.Duration
	for _, n := range b.cluster.nodes {
		if n.up && !n.paused(b.cluster.now) {
			for _, p := range n.replica.Peers(b.cluster.clock(n)) {
				worst = max(worst, p.Age)
			}
		}
	}
	b.staleness = append(b.staleness, worst)
}
