package sim

import (
	"math/rand/v2"
	"time"
)

// network is what happens to messages on their way between regions.
type network struct {
	opt     *Options
	cuts    [][]int   // [from][to]: how many partitions are in force
	lost    [][]int64 // [from][to]: since when the two cannot reach each other by any way; 0: they can
	loss    *rand.Rand
	twice   *rand.Rand
	held    *rand.Rand
	delays  *rand.Rand
	streams *rand.Rand
}

const (
	heldBack    = time.Second            // the most that a packet that is overtaken is held back
	retransmits = 200 * time.Millisecond // what a lost packet costs a stream
)

func newNetwork(o *Options) *network {
	n := &network{
		opt: o, loss: o.stream(drawLoss), twice: o.stream(drawDuplicate), held: o.stream(drawReorder),
		delays: o.stream(drawDelay), streams: o.stream(drawStreams),
	}
	for range o.Regions {
		n.cuts, n.lost = append(n.cuts, make([]int, o.Regions)), append(n.lost, make([]int64, o.Regions))
	}
	return n
}

func (n *network) cut(from, to int) bool { return n.cuts[from][to] > 0 }

// both reports whether two regions hear each other.
func (n *network) both(a, b int) bool { return !n.cut(a, b) && !n.cut(b, a) }

// reach reports whether the members of two regions can tell that each other are alive: memberlist asks others to try as well.
func (n *network) reach(a, b int) bool {
	for c := range n.cuts {
		if n.both(a, c) && n.both(c, b) {
			return true
		}
	}
	return false
}

func (n *network) delay(from, to int, r *rand.Rand) int64 {
	d := n.opt.WANDelay
	if from == to {
		d = n.opt.LANDelay
	}
	return int64(float64(d) * (1 + n.opt.Jitter*(2*r.Float64()-1)))
}

// packet appends to ways how long each copy of a packet is under way.
func (n *network) packet(from, to int, ways []int64) []int64 {
	delay := n.delay(from, to, n.delays)
	if n.cut(from, to) || chance(n.loss, n.opt.Loss) {
		return ways
	}
	if chance(n.held, n.opt.Reorder) {
		delay += n.held.Int64N(int64(heldBack))
	}
	ways = append(ways, delay)
	if chance(n.twice, n.opt.Duplicate) {
		ways = append(ways, delay+n.twice.Int64N(int64(heldBack)))
	}
	return ways
}

// stream is how long a message takes over a stream that is opened for it, and whether it can be: a handshake, and what was lost again.
func (n *network) stream(from, to int) (time int64, ok bool) {
	for range 3 {
		time += n.delay(from, to, n.streams)
		for chance(n.streams, min(n.opt.Loss, 0.5)) {
			time += int64(retransmits)
		}
	}
	return time, n.both(from, to)
}

// set puts a partition into force, or ends it.
func (n *network) set(p Partition, change int) {
	for a := range n.cuts {
		for b := range n.cuts[a] {
			if p.cuts(a, b) {
				n.cuts[a][b] += change
			}
		}
	}
}
