package sim

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// protocol exercises the replication protocol beyond what memberlist would do: each node is a region of its own,
// requests cost 1 to 3 under one of two limits or both, members flap on one side only, news of a restart come late,
// streams break, ticks are late, and nodes exchange snapshots in between.
type protocol struct {
	*checker
	r       *rand.Rand
	rate    float64 // requests per second and node
	failing float64 // fraction of the streams that break
	over    bool    // the faults are over
}

const (
	faultsFor = 12 * time.Second
	// agreeWithin is the time from the last fault until all agree on what those that run admitted. A snapshot that
	// broke just before is sent again after two of the longest retransmission timeouts, and takes up to two seconds.
	agreeWithin = 9 * time.Second
)

// sabotage is what the tests of the judge break on purpose; the zero value breaks nothing.
type sabotage struct {
	counts func(*node) gossip.Counts
	lose   func(to *node, data []byte) bool
	sent   func(from *node, m gossip.Message)
}

func newProtocol(seed uint64, s sabotage) (*protocol, error) {
	p := &protocol{r: rand.New(rand.NewPCG(seed, 0x676f73736970))}
	o := DefaultOptions()
	o.Seed, o.Regions, o.Nodes, o.Duration, o.Jitter = seed, 3+p.r.IntN(5), 1, faultsFor, 1
	o.Interval = []time.Duration{50, 100, 100, 100, 100, 200, 200, 1000}[p.r.IntN(8)] * time.Millisecond
	o.WANDelay = time.Duration(p.r.IntN(150)) * time.Millisecond // up to twice that
	o.Loss, o.Duplicate, o.Reorder = 0.3*p.r.Float64(), 0.2*p.r.Float64(), 0.2*p.r.Float64()
	o.Skew = time.Duration(p.r.IntN(2)) * 50 * time.Millisecond
	o.Limit, o.Keys = uint64(20+p.r.IntN(2000)), 2+p.r.IntN(3)
	minute, err := counters.NewLimit(
		counters.NewMeter("sim/per_minute", counters.SlidingWindow, time.Minute), uint64(20+p.r.IntN(2000)))
	if err != nil {
		return nil, err
	}
	o.extraLimits = []*counters.Limit{minute}
	p.rate, p.failing = 0.5+6*p.r.Float64(), 0.3*p.r.Float64()
	h := noHooks()
	h.late = func() time.Duration {
		if p.r.IntN(50) > 0 {
			return 0
		}
		return time.Duration(p.r.Int64N(int64(o.Interval)))
	}
	h.arrives = func(to *node, e event) bool {
		return !(e.kind == stream && p.r.Float64() < p.failing || s.lose != nil && s.lose(to, e.data))
	}
	if s.counts != nil {
		h.counts = s.counts
	}
	if s.sent != nil {
		h.sent = s.sent
	}
	if p.checker, err = judged(o, h); err != nil {
		return nil, err
	}
	p.thorough = seed%25 == 0
	for _, n := range p.cluster.nodes {
		p.requestLater(n)
	}
	p.faults(p.cluster.now + int64(faultsFor))
	return p, nil
}

// playProtocol plays a seed to its end.
func playProtocol(t *testing.T, seed uint64, s sabotage) *protocol {
	t.Helper()
	p, err := newProtocol(seed, s)
	testkit.Must(t, err)
	p.run(faultsFor)
	p.endFaults()
	p.run(agreeWithin)
	p.runToHalf()
	p.checkAgreement("I1", p.isUp)
	p.checkComplete()
	// What only some know of a node that is gone spreads with memberlist's exchanges of everything.
	for range 2 {
		for i, n := range p.up() {
			p.pushPull(n, p.up()[(i+1)%len(p.up())])
		}
	}
	anyOrigin := func(counters.Origin) bool { return true }
	p.checkAgreement("I1", anyOrigin)
	for _, n := range p.up() {
		p.checkSlots(n)
	}
	p.run(3 * time.Second)
	p.checkRest()
	p.misdirect()
	p.checkReplays()
	for _, n := range p.up() { // the protocol outlives the replays
		p.request(n)
	}
	p.run(5 * time.Second)
	p.runToHalf()
	p.checkAgreement("I1 after the replays", anyOrigin)
	return p
}

func (p *protocol) run(d time.Duration) { p.cluster.runTo(p.cluster.now + int64(d)) }

func (p *protocol) after(atMost time.Duration, do func()) {
	p.cluster.after(time.Duration(p.r.Int64N(int64(atMost))), do)
}

// runToHalf runs to the middle of a second, where all clocks agree on the sub-window.
func (p *protocol) runToHalf() {
	const second = int64(time.Second)
	p.run(time.Duration(second - (p.cluster.now+second/2)%second))
}

func (p *protocol) up() []*node { return p.cluster.up() }

func (p *protocol) isUp(o counters.Origin) bool {
	n := p.cluster.home[o]
	return n.up && n.origin == o
}

func (p *protocol) anyNode() *node { return p.cluster.nodes[p.r.IntN(len(p.cluster.nodes))] }

func (p *protocol) requestLater(n *node) {
	boot := n.boot
	p.cluster.after(time.Duration(p.r.ExpFloat64()/p.rate*float64(time.Second)), func() {
		if n.boot == boot && n.up && !p.over {
			p.request(n)
			p.requestLater(n)
		}
	})
}

// request takes from one limit or from both at once.
func (p *protocol) request(n *node) {
	key, cost, limits := p.keys[p.r.IntN(len(p.keys))], uint64(1+p.r.IntN(3)), p.limits
	if p.r.IntN(3) > 0 {
		limits = limits[p.r.IntN(2):][:1]
	}
	p.take(n, key, cost, limits...)
}

func (p *protocol) take(n *node, key counters.Key, cost uint64, limits ...*counters.Limit) {
	var charges []counters.Charge
	for _, l := range limits {
		charges = append(charges, counters.Charge{Limit: l, Key: key, Cost: cost})
	}
	decisions := n.table.TakeAll(charges, p.cluster.clock(n), nil)
	if decisions[counters.Governing(decisions)].Allowed {
		for _, l := range limits {
			p.charge(n, l, key, cost)
		}
	}
	p.cluster.flushSoon(n)
}

// faults schedules one fault after the other.
func (p *protocol) faults(until int64) {
	pause := time.Duration(200+p.r.IntN(1500)) * time.Millisecond
	if p.cluster.now+int64(pause) >= until {
		return
	}
	p.cluster.after(pause, func() {
		switch n := p.anyNode(); p.r.IntN(7) {
		case 0, 1:
			p.partition()
		case 2:
			p.crash(n)
		case 3, 4:
			p.flap(n)
		case 5:
			p.pushPull(n, p.anyNode())
		case 6:
			if n.up && p.cluster.opt.Seed%4 == 0 { // more clients than one frame can name
				for range 200 {
					p.take(n, counters.Key(1000+p.r.IntN(1000)), 1, p.limits[0])
				}
			}
		}
		p.faults(until)
	})
}

// partition separates some nodes from the others for a while, in one direction or both. No membership changes.
func (p *protocol) partition() {
	blocked, side := p.cluster.net.blocked, make([]bool, len(p.cluster.nodes))
	for i := range side {
		side[i] = p.r.IntN(2) == 0
	}
	bothWays := p.r.IntN(2) == 0
	change := func(by int) {
		for a := range side {
			for b := range side {
				if side[a] != side[b] && (side[a] || bothWays) {
					blocked[a][b] = max(0, blocked[a][b]+by)
				}
			}
		}
	}
	change(1)
	p.after(6*time.Second, func() { change(-1) })
}

// flap makes a node take a member for failed, and find it again.
func (p *protocol) flap(n *node) {
	other := p.anyNode()
	o, boot := other.origin, n.boot
	if !n.up || !n.members[o] {
		return
	}
	p.cluster.leave(n, o, false)
	p.after(4*time.Second, func() {
		if n.boot == boot && other.origin == o {
			p.join(n, o)
		}
	})
}

// join adds a member: one that is down only while faults last.
func (p *protocol) join(n *node, o counters.Origin) {
	if n.up && o != n.origin && (!p.over || p.isUp(o)) {
		p.cluster.addMember(n, o)
	}
}

// crash ends a node without a word. After a while it starts again as another origin.
func (p *protocol) crash(n *node) {
	if !n.up || len(p.up()) <= 2 {
		return
	}
	n.up = false
	p.crashes++
	old := n.origin
	for _, other := range p.cluster.nodes {
		// Some notice the crash, some only the restart.
		if boot := other.boot; p.r.IntN(2) == 0 {
			p.after(5*time.Second, func() {
				if other.up && other.boot == boot {
					p.cluster.leave(other, old, false)
				}
			})
		}
	}
	p.after(4*time.Second, func() {
		if !p.over {
			p.restart(n)
		}
	})
}

func (p *protocol) restart(n *node) {
	old := n.origin
	p.restarting(n)
	p.cluster.start(n)
	p.requestLater(n)
	for _, other := range p.cluster.nodes {
		if other == n {
			continue
		}
		p.join(n, other.origin) // of a boot that is over, if the other one is down
		boot, o := other.boot, n.origin
		news := func() {
			if other.up && other.boot == boot && n.origin == o {
				p.cluster.leave(other, old, true)
				p.join(other, o)
			}
		}
		if p.r.IntN(3) > 0 {
			news()
		} else {
			p.after(5*time.Second, news)
		}
	}
	if p.r.IntN(2) == 0 {
		p.pushPull(n, p.anyNode())
	}
	p.restarted(n)
}

// pushPull is what memberlist does now and then between two of its members: each sends the other all it knows.
func (p *protocol) pushPull(a, b *node) {
	if a == b || !a.up || !b.up || !p.cluster.net.both(a.region, b.region) {
		return
	}
	fromA, fromB := a.replica.Snapshot(p.cluster.clock(a)), b.replica.Snapshot(p.cluster.clock(b))
	p.cluster.receive(b, event{data: fromA})
	p.cluster.receive(a, event{data: fromB})
}

// endFaults ends the traffic and all faults but delay, duplication and reordering. Every node that runs gets the
// membership right.
func (p *protocol) endFaults() {
	c := p.cluster
	p.over, p.failing, c.net.opt.Loss = true, 0, 0
	for _, row := range c.net.blocked {
		clear(row)
	}
	for _, n := range p.up() {
		for _, other := range c.nodes {
			if other.up {
				p.join(n, other.origin)
			}
		}
		for _, o := range slices.Sorted(maps.Keys(n.members)) {
			if !p.isUp(o) {
				c.leave(n, o, c.home[o].origin != o)
			}
		}
	}
}

// checkAgreement (I1): every node has every slot that any of them has, of the origins given.
func (p *protocol) checkAgreement(invariant string, of func(counters.Origin) bool) {
	all, held := make(map[slotID]uint64), make(map[*node]map[slotID]uint64)
	for _, n := range p.up() {
		held[n] = p.slots(n, p.cluster.now)
		for id, count := range held[n] {
			all[id] = max(all[id], count)
		}
	}
	for _, n := range p.up() {
		for id, count := range all {
			if of(id.origin) && held[n][id] != count {
				p.violate(invariant, "node %d: %+v is %d, elsewhere %d", n.place, id, held[n][id], count)
			}
		}
	}
}

// checkRest: once everything has arrived, nobody sends anything again, and all know each other's latest counts.
func (p *protocol) checkRest() {
	before := make(map[*node]gossip.Stats)
	for _, n := range p.up() {
		before[n] = n.replica.Stats()
	}
	p.run(3 * time.Second)
	for _, n := range p.up() {
		now, s := p.cluster.clock(n), n.replica.Stats()
		if s.Resent != before[n].Resent || s.Snapshots != before[n].Snapshots {
			p.violate("rest", "node %d sends %d frames and %d snapshots again", n.place,
				s.Resent-before[n].Resent, s.Snapshots-before[n].Snapshots)
		}
		if !n.replica.FullyAcked(now) {
			p.violate("rest", "not everybody has acknowledged what node %d sent", n.place)
		}
		for _, peer := range n.replica.Peers(now) {
			if maxAge := 3*time.Second + 2*p.cluster.opt.Interval; p.isUp(peer.Origin) && peer.Age > maxAge {
				p.violate("rest", "node %d last heard all of %x %v ago, which is more than %v",
					n.place, uint64(peer.Origin), peer.Age, maxAge)
			}
		}
	}
}

// misdirect has a quarter of the replays go to another node than before: not of what only the dead knew.
func (p *protocol) misdirect() {
	for i := range p.delivered {
		n, d := p.up()[p.r.IntN(len(p.up()))], &p.delivered[i]
		if p.r.IntN(4) == 0 && d.to.up && d.to.boot == d.boot {
			d.to, d.boot = n, n.boot
		}
	}
}

// TestProtocolSeeds plays the protocol under random faults, seed by seed.
func TestProtocolSeeds(t *testing.T) {
	first, last := uint64(1), uint64(200)
	if *simSeed != 0 {
		first, last = *simSeed, *simSeed
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			if p := playProtocol(t, seed, sabotage{}); p.failure() != nil {
				t.Errorf("%d nodes, T = %v, %d crashes; play it again with\n"+
					"\tgo test ./testnet/sim -run TestProtocolSeeds -sim.seed=%d\n%v",
					len(p.cluster.nodes), p.cluster.opt.Interval, p.crashes, seed, p.failure())
			}
		})
	}
}

func TestProtocolRunsRepeat(t *testing.T) {
	for seed := uint64(1); seed <= 6; seed++ {
		a, b := playProtocol(t, seed, sabotage{}), playProtocol(t, seed, sabotage{})
		if a.cluster.digest != b.cluster.digest {
			t.Errorf("seed %d: two runs sent different messages (%d and %d)", seed, a.messages, b.messages)
		}
		if a.messages < 100 || a.arrived < 100 {
			t.Errorf("seed %d: only %d messages sent, %d delivered", seed, a.messages, a.arrived)
		}
		if other := playProtocol(t, seed+100, sabotage{}); other.cluster.digest == a.cluster.digest {
			t.Errorf("seeds %d and %d sent the same messages", seed, seed+100)
		}
	}
}

// The invariants of the protocol can fail.
func TestProtocolCatches(t *testing.T) {
	for _, test := range []struct {
		name     string
		sabotage func() sabotage
		want     []string // each is violated under some seed
	}{
		{"counts that add up", func() sabotage {
			return sabotage{counts: func(n *node) gossip.Counts { return &adding{n.table, make(map[slotID]uint64)} }}
		}, []string{"I3 truth", "I1", "I3"}},
		{"counts of which the last one wins", func() sabotage {
			return sabotage{counts: func(n *node) gossip.Counts {
				return &lastWins{n.table,
					make(map[slotID]counters.Slot)}
			}}
		}, []string{"I2", "I3"}},
		{"counts that drop every tenth", func() sabotage {
			return sabotage{counts: func(n *node) gossip.Counts { return &dropping{Table: n.table, every: 10} }}
		}, []string{"I1", "I1 complete"}},
		{"a key that never arrives at one node", func() sabotage {
			return sabotage{lose: func(to *node, data []byte) bool {
				return to.place == 1 && slices.ContainsFunc(slotsIn(data),
					func(s counters.Slot) bool { return s.Key == clientKey(0) })
			}}
		}, []string{"I1", "rest"}},
		{"nothing arrives that is sent again", loseResent, []string{"I1", "rest"}},
		{"a table that starts anew when a member leaves", func() sabotage {
			return sabotage{counts: func(n *node) gossip.Counts { return &forgetful{n.table, n} }}
		}, []string{"I2", "I7"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			wrong := make(map[string]error)
			missing := test.want
			for seed := uint64(1); seed <= 20 && len(missing) > 0; seed++ {
				maps.Copy(wrong, playProtocol(t, seed, test.sabotage()).wrong)
				missing = slices.DeleteFunc(slices.Clone(missing), func(i string) bool { return wrong[i] != nil })
			}
			if len(missing) > 0 {
				t.Errorf("no seed violates %v, only %v", missing, slices.Sorted(maps.Keys(wrong)))
			}
		})
	}
}

// slotsIn returns the slots in a message: what a replica that knows nothing merges of it.
func slotsIn(data []byte) []counters.Slot {
	var c collecting
	_ = gossip.NewReplica(1, time.Second, &c).Receive(bytes.Clone(data), 1)
	return c.slots
}

type collecting struct {
	mergeNothing
	slots []counters.Slot
}

func (c *collecting) MergeRises(slots []counters.Slot, _ int64, _ *counters.Rises) int {
	c.slots = append(c.slots, slots...)
	return 0
}

func (*collecting) SetWatermark(counters.Origin, int64)      {}
func (*collecting) SetMember(counters.Origin, bool)          {}
func (*collecting) SetPlace(counters.Origin, counters.Place) {}

// loseResent loses every packet whose slots were all sent before, to the same node, and every stream but the first.
func loseResent() sabotage {
	type way struct{ from, to counters.Origin }
	sent, streams, resent := make(map[way]map[slotID]uint64), make(map[way]bool), make(map[*byte]bool)
	return sabotage{
		sent: func(from *node, m gossip.Message) {
			w := way{from.origin, m.To}
			if m.Reliable {
				resent[&m.Data[0]] = streams[w]
				streams[w] = true
				return
			}
			if sent[w] == nil {
				sent[w] = make(map[slotID]uint64)
			}
			slots := slotsIn(m.Data)
			again := len(slots) > 0
			for _, s := range slots {
				again = again && sent[w][identify(&s)] >= s.Count
				sent[w][identify(&s)] = max(sent[w][identify(&s)], s.Count)
			}
			resent[&m.Data[0]] = again
		},
		lose: func(_ *node, data []byte) bool { return resent[&data[0]] },
	}
}

// lastWins keeps the count that came last.
type lastWins struct {
	*counters.Table
	last map[slotID]counters.Slot
}

func (l *lastWins) MergeRises(slots []counters.Slot, _ int64, _ *counters.Rises) int {
	for _, s := range slots {
		if s.Origin != l.Origin() {
			m := *s.Meter
			s.Meter = &m
			l.last[identify(&s)] = s
		}
	}
	return 0
}

func (l *lastWins) Snapshot(now int64, limit int) []counters.Slot {
	slots := l.Table.Snapshot(now, limit)
	for _, s := range l.last {
		if s.Index >= s.Meter.Index(now)-int64(s.Meter.SubWindows()) {
			slots = append(slots, s)
		}
	}
	return slots
}

func (l *lastWins) SetWatermark(counters.Origin, int64) {}
func (l *lastWins) SetCluster(int, time.Duration)       {}
func (l *lastWins) SetRegion(int, time.Duration)        {}

// forgetful replaces the node's table when a member leaves.
type forgetful struct {
	*counters.Table
	node *node
}

func (f *forgetful) SetMember(o counters.Origin, member bool) {
	if f.Table.SetMember(o, member); !member {
		f.Table = counters.NewTable(counters.Config{Origin: f.node.origin, Memory: counters.MinMemory})
		f.node.table = f.Table
	}
}
