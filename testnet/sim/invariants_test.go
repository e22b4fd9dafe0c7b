package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// What must hold in every run, whatever happens. The names are those of the project's list of invariants.

// checker checks the invariants while a cluster runs.
type checker struct {
	cluster   *cluster
	rand      *rand.Rand
	limits    []*counters.Limit
	keys      []counters.Key
	truth     map[string]*oracle.Model // by rule: what was admitted, by the clocks of those who admitted it
	counts    map[*node]gossip.Counts
	observed  map[*node]observation
	thorough  bool        // look at a table after every event, not now and then
	delivered []delivered // a sample of the messages that arrived, and were taken in
	early     map[*node]uint64
	messages  int // that were sent
	arrived   int // messages
	crashes   int
	buffer    []byte           // in which messages arrive
	lost      float64          // what crashes took with them, as a fraction of the limit
	wrong     map[string]error // the first violation of each invariant
}

// observation is what a boot of a node held when the judge last looked.
type observation struct {
	boot  int32
	slots map[slotID]uint64
}

type delivered struct {
	to   *node
	boot int32
	data []byte
}

// judged makes a cluster with a judge in it.
func judged(o Options, h hooks) (*checker, error) {
	j := &checker{
		rand: rand.New(rand.NewPCG(o.Seed, 0x6a75646765)), truth: make(map[string]*oracle.Model),
		counts: make(map[*node]gossip.Counts), observed: make(map[*node]observation), wrong: make(map[string]error),
		early: make(map[*node]uint64),
	}
	counts := h.counts
	h.counts = func(n *node) gossip.Counts {
		j.counts[n] = counts(n)
		return j.counts[n]
	}
	sent := h.sent
	h.sent = func(n *node, m gossip.Message) { j.sent(n, m); sent(n, m) }
	h.packet, h.received, h.taken, h.ticked = j.packet, j.received, j.taken, j.ticked
	h.crashed, h.restarting, h.restarted = j.crashed, j.restarting, j.restarted
	var err error
	if j.cluster, err = newCluster(o, h); err != nil {
		return nil, err
	}
	j.limits, j.keys = append([]*counters.Limit{j.cluster.limit}, o.extraLimits...), j.cluster.keys
	for _, l := range j.limits {
		j.truth[l.Meter().Rule] = oracle.NewModel(l)
	}
	return j, nil
}

func (j *checker) violate(invariant, format string, args ...any) {
	if j.wrong[invariant] == nil {
		at := time.Duration(j.cluster.now - j.cluster.startAt)
		j.wrong[invariant] = fmt.Errorf("%s, at %v: "+format, append([]any{invariant, at}, args...)...)
	}
}

// failure is all that went wrong; nil if nothing did.
func (j *checker) failure() error {
	var errs []error
	for _, invariant := range slices.Sorted(maps.Keys(j.wrong)) {
		errs = append(errs, j.wrong[invariant])
	}
	return errors.Join(errs...)
}

func (j *checker) taken(n *node, client int, _ int64, d counters.Decision) {
	if d.Allowed {
		j.charge(n, j.cluster.limit, j.keys[client], 1)
	}
}

func (j *checker) charge(n *node, l *counters.Limit, key counters.Key, cost uint64) {
	j.truth[l.Meter().Rule].Charge(key, cost, j.cluster.clock(n))
}

// sent: a packet fits into one frame, and goes to members only.
func (j *checker) sent(n *node, m gossip.Message) {
	j.messages++
	if !m.Reliable && len(m.Data) > gossip.MaxFrame {
		j.violate("size", "a packet of %d bytes, at most %d are allowed", len(m.Data), gossip.MaxFrame)
	}
	if !n.members[m.To] {
		j.violate("membership", "node %d sends to %x, which is no member", n.place, uint64(m.To))
	}
}

// packet returns the message in a buffer that is used again, as a socket's is: a replica must not keep any of it.
func (j *checker) packet(b []byte) []byte {
	j.buffer = append(j.buffer[:0], b...)
	return j.buffer
}

const sampled = 300 // messages kept, to be replayed

func (j *checker) received(n *node, data []byte, err error) {
	if err != nil {
		j.violate("decoding", "node %d: %w", n.place, err)
	}
	for i := range j.buffer {
		j.buffer[i] = 0xc1
	}
	d := delivered{n, n.boot, data}
	if early := n.replica.Stats().Early; early != j.early[n] { // it is to come again, and may be news then
		j.early[n] = early
	} else if j.arrived++; len(j.delivered) < sampled {
		j.delivered = append(j.delivered, d)
	} else if i := j.rand.IntN(j.arrived); i < sampled {
		j.delivered[i] = d
	}
	if j.thorough {
		j.checkSlots(n)
	}
}

func (j *checker) ticked(n *node) {
	if j.thorough || j.rand.IntN(4) == 0 {
		j.checkViews(n)
	}
	if j.thorough || j.rand.IntN(16) == 0 {
		j.checkSlots(n)
	}
}

// bySubWindow reports whether the algorithm goes by sub-windows alone: all nodes that know the same count the same,
// also where their clocks differ within one. Others know the times of what they admitted themselves.
func (j *checker) bySubWindow() bool { return j.cluster.opt.Method <= counters.FixedWindow }

// checkViews (I3): no node counts more than was admitted.
func (j *checker) checkViews(n *node) {
	if !j.bySubWindow() && j.cluster.opt.Skew > 0 {
		return
	}
	now := j.cluster.clock(n)
	for _, l := range j.limits {
		for _, key := range j.keys {
			rule := l.Meter().Rule
			if seen, admitted := n.table.View(l, key, now), j.truth[rule].View(key, now); seen > admitted {
				j.violate("I3 truth", "node %d counts %d for key %d of %s, but %d were admitted",
					n.place, seen, key, rule, admitted)
			}
		}
	}
}

// slots returns what a node holds.
func (j *checker) slots(n *node, now int64) map[slotID]uint64 {
	slots := make(map[slotID]uint64)
	for _, s := range j.counts[n].Snapshot(now, math.MaxInt) {
		id := identify(&s)
		if _, twice := slots[id]; twice {
			j.violate("I2", "node %d has two counts for %+v", n.place, id)
		}
		if j.meter(id) != *s.Meter {
			j.violate("meter", "node %d holds the unknown meter %+v", n.place, *s.Meter)
		}
		slots[id] = s.Count
	}
	return slots
}

// meter returns that of a slot.
func (j *checker) meter(id slotID) counters.Meter {
	for _, l := range j.limits {
		if m := l.Meter(); m.Rule == id.rule {
			return m
		}
	}
	return counters.Meter{}
}

// live reports whether the slot still counts in the window that ends now.
func (j *checker) live(id slotID, now int64) bool {
	m := j.meter(id)
	return m.Sub > 0 && id.index >= m.Index(now)-int64(m.SubWindows())
}

// checkSlots (I2): no slot decreases within a boot, or is lost, while it counts.
func (j *checker) checkSlots(n *node) {
	now := j.cluster.clock(n)
	slots := j.slots(n, now)
	if before := j.observed[n]; before.boot == n.boot {
		for id, count := range before.slots {
			if slots[id] < count && j.live(id, now) {
				j.violate("I2", "node %d: %+v fell from %d to %d", n.place, id, count, slots[id])
			}
		}
	}
	j.observed[n] = observation{n.boot, slots}
}

// crashed notes what nobody else has heard of: what admissions may go over the limit by without anybody knowing.
func (j *checker) crashed(n *node) {
	j.crashes++
	c := j.cluster
	known := oracle.NewModel(c.limit)
	union := make(map[slotID]uint64)
	for _, other := range c.nodes {
		if other != n && other.up {
			for id, count := range j.slots(other, j.cluster.clock(other)) {
				union[id] = max(union[id], count)
			}
		}
	}
	for id, count := range union {
		if id.rule == c.limit.Meter().Rule {
			known.Add(id.key, id.index, count)
		}
	}
	worst := uint64(0)
	for _, key := range c.keys {
		all := j.truth[c.limit.Meter().Rule].View(key, c.now)
		seen := known.View(key, c.now)
		if c.opt.hasOwners() { // some know it in sums alone
			for _, other := range c.nodes {
				if other != n && other.up {
					seen = max(seen, other.table.View(c.limit, key, c.clock(other)))
				}
			}
		}
		worst = max(worst, all-min(all, seen))
	}
	j.lost += float64(worst) / float64(c.opt.Limit)
}

// restarting and restarted (I7): a restart decreases no other node's view.
func (j *checker) restarting(n *node) {
	for _, other := range j.cluster.nodes {
		if other != n && other.up {
			j.checkSlots(other)
		}
	}
}

func (j *checker) restarted(n *node) {
	for _, other := range j.cluster.nodes {
		if other == n || !other.up {
			continue
		}
		before := j.observed[other].slots
		j.checkSlots(other)
		if len(j.observed[other].slots) < len(before) {
			j.violate("I7", "node %d lost slots when node %d started again", other.place, n.place)
		}
	}
}

// agreesWithin is how long after the last request and fault all have to agree. A stream that broke just before is tried
// again after two seconds or two of the longest time-outs, and a node that started in a cut is found within rejoinEvery
// and spreadsWithin. It is less than any window here, or there would be nothing left to agree on.
const agreesWithin = 17 * time.Second

// play runs the world to its end, and holds it against everything.
func (j *checker) play(ctx context.Context) (*Report, error) {
	c := j.cluster
	defer c.close()
	if err := c.offer(ctx, func(time.Duration) {}); err != nil {
		return nil, err
	}
	c.runTo(c.faultsEnd())
	c.net.opt.Loss = 0 // or what is repaired may be lost again and again; what was lost before is still to be repaired
	agreed := c.settle()
	took := time.Duration(c.now - c.faultsEnd())
	c.awaitRepairs()
	r := c.report(agreed)
	if took > agreesWithin {
		j.violate("I1", "the nodes did not agree within %v of the last request and fault, but %v", agreesWithin, took)
	}
	if r.Offered != r.Admitted+r.Denied {
		j.violate("conservation", "%d offered, %d admitted, %d denied", r.Offered, r.Admitted, r.Denied)
	}
	j.judgeReport(r)
	j.checkStores(r)
	j.checkComplete()
	j.checkReplays()
	j.checkOutlives()
	return r, nil
}

// judgeReport holds I4 and I5. Where clocks differ by more than a hundredth of the window, nodes and oracle mean
// different windows.
func (j *checker) judgeReport(r *Report) {
	o := &j.cluster.opt
	if sane := o.Skew <= o.Window/100; sane && r.FalseRejections > 0 {
		j.violate("I4", "%d requests of clients that keep to 95 %% of the limit were denied", r.FalseRejections)
	}
	// What begins inside a cut is beyond any bound but the ceiling, as is what a node knew alone and took with it.
	surprises := len(o.Partitions) > 0 && o.Pattern != Even && o.Pattern != Skew
	if n := j.cluster.recorder.violations(j.lost); o.Skew == 0 && !surprises && n > 0 {
		j.violate("I5",
			"in %d intervals more was admitted than the bound: %.2f %% observed, %.2f %% exported, %.2f %% lost", n,
			r.ObservedPct, r.BoundPct, 100*j.lost)
	}
	boots := float64(j.cluster.boots)
	if ceiling := 100 * (boots - 1); r.ObservedPct > ceiling && o.Skew == 0 {
		j.violate("I5 ceiling", "%.2f %% over the limit, %v boots can admit %.0f %%", r.ObservedPct, boots, ceiling)
	}
}

// checkStores: what stores lost in their faults is made good within two flushes, nothing is counted twice, and a node
// that starts again reads it all.
func (j *checker) checkStores(r *Report) {
	if s := r.Redis; s != nil && s.RepairFlushes < 0 {
		j.violate("whole", "stores lacked %d slots after two flushes of every node", s.SlotsMissing)
	} else if s != nil && s.SlotsTwice > 0 {
		j.violate("twice", "stores held too much of %d slots", s.SlotsTwice)
	}
	for _, s := range j.cluster.stores {
		cold := newTable(&j.cluster.opt, 1, j.cluster.opt.Total())
		cfg := regions.DefaultConfig()
		cfg.Now = func() time.Time { return time.Unix(0, j.cluster.now) }
		reader, err := regions.NewReconciler(cfg, s.data, cold)
		if err == nil {
			err = reader.Warm(context.Background())
		}
		read := make(holding)
		read.add(cold.Snapshot(j.cluster.now, math.MaxInt))
		if n := read.lacks(s.unexpired(s.held())); err != nil || n > 0 {
			j.violate("read back", "a node that starts lacks %d slots that the store of region %d holds, %v", n,
				s.region+1, err)
		}
	}
}

// checkComplete (I1): where nobody crashed nothing is lost, so that all count exactly what was admitted.
func (j *checker) checkComplete() {
	c := j.cluster
	if j.crashes > 0 || !j.bySubWindow() {
		return
	}
	sub := int64(c.limit.Meter().Sub)
	c.runTo((c.now/sub+1)*sub + sub/2) // where clocks differ, they agree on the sub-window here
	for _, n := range c.nodes {
		now := c.clock(n)
		for _, l := range j.limits {
			for _, key := range j.keys {
				rule := l.Meter().Rule
				if c.opt.hasOwners() && !c.hasCounted(n, key) {
					continue
				}
				if seen, want := n.table.View(l, key, now), j.truth[rule].View(key, now); seen != want {
					j.violate("I1 complete", "node %d counts %d for key %d of %s, admitted were %d",
						n.place, seen, key, rule, want)
				}
			}
		}
	}
}

// checkReplays (I3): messages that come again, in any order, change nothing.
func (j *checker) checkReplays() {
	before := make(map[*node][]byte)
	for _, n := range j.cluster.nodes {
		if n.up {
			before[n] = j.held(n)
		}
	}
	for _, i := range j.rand.Perm(len(j.delivered)) {
		if d := j.delivered[i]; d.to.up && d.to.boot == d.boot { // what only the dead knew may be news
			if err := d.to.replica.Receive(d.data, j.cluster.clock(d.to)); err != nil {
				j.violate("decoding", "node %d: %w", d.to.place, err)
			}
		}
	}
	for n, snapshot := range before {
		if !bytes.Equal(snapshot, j.held(n)) {
			j.violate("I3", "node %d: replays changed what it knows", n.place)
		}
	}
}

// held is all that a node knows, with what others added up.
func (j *checker) held(n *node) []byte {
	held := n.replica.Snapshot(j.cluster.clock(n))
	for _, l := range j.limits {
		for _, key := range j.keys {
			held = binary.LittleEndian.AppendUint64(held, n.table.View(l, key, j.cluster.clock(n)))
		}
	}
	return held
}

// counted is what a node holds of a key, whatever of it has come back since.
func (j *checker) counted(n *node, key counters.Key) (sum uint64) {
	if c := j.cluster; c.opt.hasOwners() {
		return n.table.View(c.limit, key, c.clock(n))
	}
	for id, count := range j.slots(n, j.cluster.clock(n)) {
		if id.key == key {
			sum += count
		}
	}
	return sum
}

// checkOutlives (I1): after all that, new counts still arrive everywhere.
func (j *checker) checkOutlives() {
	c, key := j.cluster, counters.Key(1)
	for _, n := range c.nodes {
		if n.up {
			n.table.Take(c.limit, key, 1, c.clock(n))
		}
	}
	agree := c.agreement()
	for range agreesWithin / lookEvery {
		c.runTo(c.now + int64(lookEvery))
		all := uint64(len(c.up()))
		if agree() && !slices.ContainsFunc(c.up(), func(n *node) bool { return j.counted(n, key) != all }) {
			return
		}
	}
	j.violate("I1", "one more request at each of %d nodes: they do not agree after %v", len(c.up()), agreesWithin)
}
