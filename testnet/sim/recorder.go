package sim

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/plot"
)

// recorder is what is measured while a run is under way.
type recorder struct {
	*cluster
	tracker     *judge.Tracker
	total       judge.Requests // but for clients beside the load
	settled     judge.Requests // from two windows after the beginning on
	partitioned judge.Requests // during partitions
	lost        uint64         // requests that nobody answered
	needless    uint64
	seconds     []plot.Sample

	// By interval since the start: the most by which the truth was over the limit, the largest bound that a node
	// exported, and its largest estimate.
	excess, bound, estimate []float64

	messages, bytes uint64
	peerAge         []time.Duration
}

// packetOverhead is what a packet has beside the frame: IPv4 and UDP (28), memberlist's label of the cluster (23, as in
// a region of seven letters), encryption (29), checksum and type (6).
const packetOverhead = 86

func newRecorder(c *cluster) *recorder {
	b := &recorder{cluster: c, tracker: judge.NewTracker(c.limit, 0)}
	for at := time.Duration(0); at < c.opt.Duration; at += time.Second {
		b.seconds = append(b.seconds, plot.Sample{T: at + time.Second/2})
	}
	return b
}

// measured reports whether requests come at the time.
func (b *recorder) measured(now int64) bool { return now >= b.startAt && now < b.endAt }

// decision takes in a decision.
func (b *recorder) decision(client int, now int64, allowed bool) {
	v := b.tracker.Add(strconv.Itoa(client), 1, now, now, allowed)
	if !allowed && v.Fits {
		b.needless++
	}
	if client >= b.opt.Keys {
		return
	}
	b.total.Add(allowed, v.Oracle)
	if now >= b.startAt+2*int64(b.opt.Window) {
		b.settled.Add(allowed, v.Oracle)
	}
	if b.cluster.partitioned() {
		b.partitioned.Add(allowed, v.Oracle)
	}
	s := &b.seconds[(now-b.startAt)/int64(time.Second)]
	s.Offered++
	if allowed {
		s.Admitted++
		b.excess = raise(b.excess, b.interval(now), v.Excess)
	}
	if v.Oracle {
		s.Oracle++
	}
}

// interval is the number of the interval that holds the time.
func (b *recorder) interval(now int64) int { return int((now - b.startAt) / int64(b.opt.Interval)) }

// raise sets the value at a place to v if that is larger.
func raise(values []float64, at int, v float64) []float64 {
	for len(values) <= at {
		values = append(values, 0)
	}
	values[at] = max(values[at], v)
	return values
}

// exported takes in the bound that a node exports from now until its next interval.
func (b *recorder) exported(now int64, bound float64) {
	if now < b.startAt {
		return
	}
	b.bound = raise(b.bound, b.interval(now), bound)
	if s := (now - b.startAt) / int64(time.Second); s < int64(len(b.seconds)) {
		b.seconds[s].Bound = max(b.seconds[s].Bound, bound)
	}
}

// estimated takes in by how much a node's counts show that the limit is exceeded now.
func (b *recorder) estimated(now int64, over float64) {
	if b.measured(now) {
		b.estimate = raise(b.estimate, b.interval(now), over)
	}
}

// estimateWithin is the part of the windows in which the largest estimate and the truth differed by no more than this
// part of the limit. Counts take until BoundAfter to arrive.
func (b *recorder) estimateWithin(difference float64) float64 {
	within, windows := 0, 0
	length := int(b.opt.Window / b.opt.Interval)
	late := int(gossip.BoundAfter(b.opt.Interval) / b.opt.Interval)
	for from := 0; length > 0 && from+length+late <= len(b.estimate); from += length {
		truth := slices.Max(append(b.excess[min(from, len(b.excess)):min(from+length, len(b.excess))], 0))
		seen := slices.Max(b.estimate[from : from+length])
		windows++
		if math.Abs(truth-seen) <= difference {
			within++
		}
	}
	return float64(within) / float64(max(1, windows))
}

func (b *recorder) sent(now int64, m gossip.Message) {
	if b.measured(now) {
		b.messages++
		b.bytes += uint64(len(m.Data)) + packetOverhead
	}
}

// violations counts the intervals in which more was admitted over the limit than any node said in time that there could
// be, and than is excused.
func (b *recorder) violations(excused float64) (n int) {
	grace := int(gossip.BoundAfter(b.opt.Interval) / b.opt.Interval)
	for i, bound := range judge.Covering(b.bound, grace, len(b.excess)) {
		if b.excess[i] > bound+excused {
			n++
		}
	}
	return n
}

// samplePeerAge takes a sample of how old the nodes' knowledge of each other is. Where owners add up, most nodes know
// each other by them alone.
func (b *recorder) samplePeerAge() {
	if b.opt.hasOwners() {
		return
	}
	var worst time.Duration
	for _, n := range b.up() {
		if !n.paused(b.now) {
			for _, p := range n.replica.Peers(b.clock(n)) {
				worst = max(worst, p.Age)
			}
		}
	}
	b.peerAge = append(b.peerAge, worst)
}
