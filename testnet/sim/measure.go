package sim

import (
	"math/bits"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
)

// drained takes in what a node is about to send.
func (s *sampler) drained(n *node, d *counters.Drained) {
	if !s.measures() {
		return
	}
	from, owners := &s.nodes[n.place], s.owners[n.place]
	s.early(n)
	var last counters.Key
	for i := range d.Slots {
		slot := &d.Slots[i]
		if slot.Key != last || i == 0 {
			last = slot.Key
			s.pending[n.place].keys++
		}
		weight, size := s.weight(slot.Key), slotBytes(slot, s.c.clock(n))
		if slot.Origin == n.origin {
			from.Changed += weight
		}
		if owners == nil {
			continue
		}
		partition := slot.Key.Partition()
		to := s.ownerOf[n.region][partition]
		if region, ok := s.regions[slot.To]; ok {
			to = s.ownerOf[region][partition]
		} else if home := s.c.home[slot.To]; home != nil {
			to = home.place
		}
		if to == n.place {
			continue
		}
		across := s.c.nodes[to].region != n.region
		spread := s.p.oneHot > 1 && s.p.class[slot.Key]&hotKey != 0
		up := slot.To == 0
		switch out, in := s.side(n.place, spread, !up), s.side(to, spread, up || across); {
		case across:
			out.AcrossOut.add(size, weight)
			in.AcrossIn.add(size, weight)
		default:
			out.RegionOut.add(size, weight)
			in.RegionIn.add(size, weight)
			if up {
				out.UpOut.add(size, weight)
			}
		}
	}
}

// side is where a count is recorded that a node sends or receives, as an owner or a member.
func (s *sampler) side(place int, spread, owner bool) *NodeSample {
	switch {
	case !spread:
		return &s.nodes[place]
	case place >= s.measured():
		return &s.elsewhere
	case owner:
		return &s.owner
	}
	return &s.member
}

// measured is how many nodes are: all, or those of the first region.
func (s *sampler) measured() int {
	if s.p.standIns {
		return s.p.Nodes
	}
	return len(s.nodes)
}

// spread gives each node its part of what all send and receive of hot keys.
func (s *sampler) spread() {
	nodes := s.nodes[:s.measured()]
	var owned, early [2]float64
	for i := range nodes {
		for j := range owned {
			owned[j] += float64(nodes[i].Owned)
			early[j] += nodes[i].SimEarly[j]
		}
	}
	for i := range nodes {
		x, part := &nodes[i], float64(nodes[i].Owned)/max(1, owned[0])
		x.take(&s.owner, part)
		x.take(&s.member, 1/float64(len(nodes)))
		for j := range early {
			x.SimEarly[j] = early[j] * part
		}
	}
}

// take adds a part of what another one sends and receives.
func (x *NodeSample) take(other *NodeSample, part float64) {
	from := other.flows()
	for i, f := range x.flows() {
		f.Slots += from[i].Slots * part
		f.Bytes += from[i].Bytes * part
	}
}

func (x *NodeSample) flows() [5]*Flow {
	return [...]*Flow{&x.RegionOut, &x.RegionIn, &x.AcrossOut, &x.AcrossIn, &x.UpOut}
}

// slotBytes is what a frame has of a slot; see gossip/entry.go.
func slotBytes(slot *counters.Slot, now int64) float64 {
	size := 8
	if slot.Birth != 0 {
		size += varint(uint64(slot.Birth))
	}
	if slot.Demand > 0 {
		size++
	}
	if slot.Count != 1 {
		size += varint(slot.Count)
	}
	if age := slot.Meter.Index(now) - slot.Index; age >= 3 {
		size += varint(uint64(2 * age))
	}
	return float64(size)
}

func varint(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// sent takes in a message.
func (s *sampler) sent(n *node, m gossip.Message) {
	if !s.measures() {
		return
	}
	across := 0
	if s.c.home[m.To].region != n.region {
		across = 1
	}
	s.pending[n.place].messages[across]++
	s.nodes[n.place].SimFrames[across]++
	s.nodes[n.place].SimBytes[across] += float64(len(m.Data))
}

// ticked ends a tick: its messages are no early flush.
func (s *sampler) ticked(n *node) { s.pending[n.place] = pending{} }

// early counts the messages of an early flush, if there was one.
func (s *sampler) early(n *node) {
	x, p := &s.nodes[n.place], &s.pending[n.place]
	for i, count := range p.messages {
		x.SimEarly[i] += count
	}
	if p.messages[0]+p.messages[1] > 0 {
		x.SimFlushes++
		x.SimFlushed += p.keys
	}
	*p = pending{}
}

// sample is what the run showed.
func (s *sampler) sample() *Sample {
	p := s.p
	out := &Sample{
		Nodes: len(s.nodes), OneIn: p.one, Keys: len(p.class) - p.hotKeys(), HotKeys: p.hotKeys(),
		Requests: s.drawn, Window: p.Window, Measured: measuring,
		HasOwners: s.owners[0] != nil, Region: s.nodes,
	}
	if p.oneHot > 1 && out.HasOwners {
		s.spread()
	}
	if p.standIns {
		out.Region, out.StandIns = s.nodes[:p.Nodes], p.Regions-1
	}
	for i := range out.Region {
		s.finish(&out.Region[i], s.c.nodes[i])
	}
	return out
}

// finish makes totals to figures a second, and looks at what the node holds.
func (s *sampler) finish(x *NodeSample, n *node) {
	now, seconds := s.c.clock(n), measuring.Seconds()
	for _, v := range []*float64{
		&x.Changed, &x.SimEarly[0], &x.SimEarly[1], &x.SimFrames[0], &x.SimFrames[1], &x.SimBytes[0],
		&x.SimBytes[1], &x.SimFlushes, &x.SimFlushed,
	} {
		*v /= seconds
	}
	for _, f := range x.flows() {
		f.Slots, f.Bytes = f.Slots/seconds, f.Bytes/seconds
	}
	x.Decisions = s.p.Rate() + s.p.New + s.p.hotRate()
	st, own := n.table.Stats(), n.table.Own(now)
	for i := range own {
		x.OwnSlots += s.weight(own[i].Key)
	}
	hotBytes, hot := 0, 0
	for _, key := range s.p.hot {
		if slots := len(n.table.Slots(s.c.limit, key, now)); slots > 0 {
			hot++
			hotBytes += cellBytes + hotKeyBytes + slotSize*slots
		}
	}
	bytes := st.Bytes - s.empty - hotBytes
	x.Keys = float64(st.Keys-hot) * float64(s.p.one)
	x.Bytes = float64(bytes) * float64(s.p.one)
	if hot > 0 {
		scale := float64(s.p.Keys) / float64(s.p.hotKeys())
		x.Keys += float64(hot) * scale
		x.Bytes += float64(hotBytes) * scale
	}
}

// What a table takes (counters/DESIGN.md), of ten sub-windows: a cell, what it keeps of a hot key, and a count of
// others.
const cellBytes, hotKeyBytes, slotSize = 144, 88, 16
