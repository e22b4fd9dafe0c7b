package plan

import (
	"math"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/sim"
)

// model computes costs from a sample.
type model struct {
	*sim.Load
	sample *sim.Sample
}

// link is what goes between a node and one other, a second.
type link struct {
	out, in sim.Flow
	groups  float64 // that its counts may be of
	early   float64 // early flushes
	used    float64 // the part of such links that share a key: all counts go over those
}

// messages returns the messages and bytes that one end of the link sends in a second.
//
//	n = counts in an interval          P(any) = 1 - exp(-n)         busy = 1 - exp(-counts both ways in linkLasts)
//	messages = busy * (at least one an interval) + (1 - busy) * (one an idleBeacon) + early flushes + what is lost
func (m *model) messages(l link) (messages, bytes float64) {
	if l.used == 0 {
		return 1 / idleBeacon.Seconds(), (packetBytes + frameBytes) / idleBeacon.Seconds()
	}
	if l.used < 1 {
		used := l
		used.out, used.in, used.early, used.used = per(l.out, l.used), per(l.in, l.used), l.early/l.used, 1
		messages, bytes = m.messages(used)
		idle := (1 - l.used) / idleBeacon.Seconds()
		return messages*l.used + idle, bytes*l.used + idle*(packetBytes+frameBytes)
	}
	perSecond := 1 / m.Interval.Seconds()
	busy := 1 - math.Exp(-(l.out.Slots+l.in.Slots)*linkLasts.Seconds())
	n := l.out.Slots / perSecond
	size := 0.0
	if l.out.Slots > 0 {
		size = l.out.Bytes / l.out.Slots
	}
	groups := l.groups * (1 - math.Exp(-n/max(1, l.groups)))
	frames := expectedFrames(n*size+groups*groupBytes, size*math.Sqrt(n))
	full := busy*frames*perSecond + l.early
	data := ((1-math.Exp(-n))*frames*perSecond + l.early) * m.Loss / (1 - m.Loss) // sent again
	messages = full + (1-busy)/idleBeacon.Seconds() + data
	again := 1 / (1 - m.Loss)
	bytes = messages*(packetBytes+frameBytes) + again*(l.out.Bytes+(groups*perSecond+l.early)*groupBytes)
	return messages, bytes
}

// expectedFrames is how many frames it takes for so many bytes, of that standard deviation: at least one.
func expectedFrames(mean, deviation float64) float64 {
	deviation = max(1, deviation)
	certain := max(0, math.Floor((mean-6*deviation)/roomBytes)) // this many are full, all but certainly
	frames := 1 + certain
	for k := certain + 1; ; k++ {
		more := 0.5 * math.Erfc((k*roomBytes-mean)/deviation/math.Sqrt2) // P(bytes > k frames)
		if frames += more; more < 1e-6 {
			return frames
		}
	}
}

// scaled is what a node does at a multiple of the load.
func scaled(x *sim.NodeSample, f float64) sim.NodeSample {
	y := *x
	for _, v := range []*float64{&y.Decisions, &y.Changed, &y.Keys, &y.OwnSlots, &y.Bytes} {
		*v *= f
	}
	for _, v := range []*sim.Flow{&y.RegionOut, &y.RegionIn, &y.AcrossOut, &y.AcrossIn, &y.UpOut} {
		v.Slots, v.Bytes = v.Slots*f, v.Bytes*f
	}
	return y
}

// per is a flow spread over links, if there are any.
func per(f sim.Flow, links float64) sim.Flow {
	if links == 0 {
		return sim.Flow{}
	}
	return sim.Flow{Slots: f.Slots / links, Bytes: f.Bytes / links}
}

// node is what a node of a cluster with owners needs, at a multiple of the load.
func (m *model) node(sampled *sim.NodeSample, factor float64) (c Cost) {
	x := scaled(sampled, factor)
	owned, nodes, others := float64(x.Owned), float64(m.Nodes), float64(m.Regions-1)
	// In each other region, so many nodes own the partitions that this one owns here.
	owners := nodes * (1 - math.Pow(1-1/nodes, owned))
	near, far := nodes-1, owners*others

	// A node sends what it counted, and of each of its partitions what the region counts and what other regions do.
	down := (x.RegionOut.Slots - x.UpOut.Slots) * m.Interval.Seconds() / max(1, near)
	groups := 1 + 2*owned*(1-math.Exp(-down/max(1, 2*owned)))
	region := link{per(x.RegionOut, near), per(x.RegionIn, near), groups,
		m.flushes(&x, x.SimEarly[0], near, factor, ownersGap), m.used(2 * owned)}
	across := link{per(x.AcrossOut, far), per(x.AcrossIn, far), owned / max(1, owners),
		m.flushes(&x, x.SimEarly[1], far, factor, ownersGap), m.used(owned / max(1, owners))}
	m.add(&c, region, near)
	m.add(&c, across, far)

	c.Origins = nodes + others*(owned+1) + 3*counters.Partitions
	c.MiB = mebibytes(x.Bytes + factor*m.unsimulated(3))
	m.addCPU(&c, x.Decisions, x.RegionOut.Slots+x.AcrossOut.Slots, x.RegionIn.Slots+x.AcrossIn.Slots)
	return c
}

// used is the part of the links between owners of so many partitions and those who need them that share a key.
func (m *model) used(partitions float64) float64 {
	if m.KeysTotal > 0 || m.New > 0 {
		return 1
	}
	return 1 - math.Exp(-float64(m.Keys)*partitions/counters.Partitions)
}

// add adds a number of links of a kind.
func (m *model) add(c *Cost, l link, count float64) {
	messages, bytes := m.messages(l)
	c.MessagesOut += count * messages
	c.MbitOut += count * bytes * 8 / 1e6
	messages, bytes = m.messages(link{l.in, l.out, l.groups, l.early, l.used})
	c.MessagesIn += count * messages * (1 - m.Loss)
	c.MbitIn += count * bytes * 8 / 1e6 * (1 - m.Loss)
}

func (m *model) addCPU(c *Cost, decisions, out, in float64) {
	percent := func(cost time.Duration, perSecond float64) float64 { return 100 * cost.Seconds() * perSecond }
	c.CPU = CPU{
		Decisions: percent(takeCost, decisions), Sending: percent(sendCost, c.MessagesOut),
		Receiving: percent(receiveCost, c.MessagesIn), Merging: percent(slotOutCost, out) + percent(slotInCost, in),
	}
}

// flushes is how many messages of early flushes go over each of so many links of a node, a second, where the sample had
// so many over all. A flush is of keys near their limits; it goes as soon as a key asks for it, but not sooner than
// a gap after other messages, and about once an interval. So where many keys ask, more of them go at once:
//
//	asking = keys that ask, a second
//	flushes = (1 - exp(-asking * T)) / T        keys in each = 1 + asking * gap
func (m *model) flushes(x *sim.NodeSample, messages, links, factor float64, wait time.Duration) float64 {
	if x.SimFlushes == 0 || links == 0 {
		return 0
	}
	t, gap := m.Interval.Seconds(), wait.Seconds()
	asking := (x.SimFlushed/x.SimFlushes - 1) / gap
	if often := x.SimFlushes * t; often < 0.8 {
		asking = -math.Log(1-often) / t
	}
	scale := factor * float64(m.sample.OneIn)
	if m.Keys > 0 {
		scale = factor * float64(m.Keys) / float64(m.sample.HotKeys)
	}
	keys := (1 + asking*scale*gap) * messages / x.SimFlushed // in messages
	return (1 - math.Exp(-asking*scale*t)) / t * (1 - math.Exp(-keys/links))
}

// mean is what a node needs on average. Across regions nodes receive on average what they send, while the sampled
// region may be a home of more keys, or of fewer, than others.
func (m *model) mean(factor float64) (mean Cost) {
	nodes := m.sample.Region
	share := 1 / float64(len(nodes))
	for i := range nodes {
		x := nodes[i]
		x.AcrossIn = x.AcrossOut
		c := m.node(&x, factor)
		mean.MbitOut += c.MbitOut * share
		mean.MbitIn += c.MbitIn * share
		mean.MessagesOut += c.MessagesOut * share
		mean.MessagesIn += c.MessagesIn * share
		mean.CPU.Decisions += c.CPU.Decisions * share
		mean.CPU.Sending += c.CPU.Sending * share
		mean.CPU.Receiving += c.CPU.Receiving * share
		mean.CPU.Merging += c.CPU.Merging * share
		mean.MiB += c.MiB * share
		mean.Origins += c.Origins * share
	}
	return mean
}

// most is the most that any node needs, of each by itself.
func (m *model) most(factor float64) (most Cost) {
	for i := range m.sample.Region {
		c := m.node(&m.sample.Region[i], factor)
		for _, v := range []struct {
			most *float64
			of   float64
		}{
			{&most.MbitOut, c.MbitOut}, {&most.MbitIn, c.MbitIn}, {&most.MessagesOut, c.MessagesOut},
			{&most.MessagesIn, c.MessagesIn}, {&most.MiB, c.MiB}, {&most.Origins, c.Origins},
		} {
			*v.most = max(*v.most, v.of)
		}
		if c.CPU.Total() > most.CPU.Total() {
			most.CPU = c.CPU
		}
	}
	return most
}

// mesh is what a node needs where every node sends to every other one, at a multiple of the load.
func (m *model) mesh(factor float64) (c Cost) {
	var x sim.NodeSample
	for i := range m.sample.Region {
		share := 1 / float64(len(m.sample.Region))
		n := scaled(&m.sample.Region[i], factor*share)
		x.Decisions, x.Changed, x.OwnSlots = x.Decisions+n.Decisions, x.Changed+n.Changed, x.OwnSlots+n.OwnSlots
		x.SimFlushes, x.SimFlushed = x.SimFlushes+n.SimFlushes*share, x.SimFlushed+n.SimFlushed*share
	}
	others := float64(m.Total() - 1)
	flow := sim.Flow{Slots: x.Changed, Bytes: x.Changed * m.bytesOfChanged()}
	m.add(&c, link{flow, flow, 1, m.flushes(&x, others*x.SimFlushed, others, factor, flushGap), 1}, others)
	c.Origins = others + 1
	keys := factor * (float64(m.KeysTotal+m.Keys) + m.New*float64(m.Total())*(m.Window+m.Window/10+sweepTime).Seconds())
	c.MiB = mebibytes(keys*cellBytes + others*x.OwnSlots*slotBytes)
	m.addCPU(&c, x.Decisions, x.Changed, others*x.Changed)
	return c
}

// bytesOfChanged is the size of a count in a frame, on average.
func (m *model) bytesOfChanged() float64 {
	var up sim.Flow
	for i := range m.sample.Region {
		up.Slots += m.sample.Region[i].UpOut.Slots
		up.Bytes += m.sample.Region[i].UpOut.Bytes
	}
	if up.Slots == 0 {
		return 9
	}
	return up.Bytes / up.Slots
}

// unsimulated is the bytes of new keys that a node holds for longer than the simulation shows, in so many places each.
func (m *model) unsimulated(places float64) float64 {
	longer := max(0, m.Window-m.sample.Window)
	return m.New * (longer + longer/10 + sweepTime).Seconds() * cellBytes * places
}

func mebibytes(bytes float64) float64 { return (fixedBytes + bytes*memoryShare) / (1 << 20) }
