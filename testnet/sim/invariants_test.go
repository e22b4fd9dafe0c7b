package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/counters/counterstest"
	"github.com/edgelimit/edgelimit/regions"
)

// What must hold in every run, whatever happens. The names are those of the project's list of invariants.

// judge looks on while a world runs.
type judge struct {
	w     *world
	rand  *rand.Rand
	truth *counterstest.Model // what was admitted, by the clocks of those who admitted it
	seen  map[*node]sighting
	sent  []delivered // a sample of what arrived
	came  int
	lost  float64          // what crashes took with them, as a part of the limit
	wrong map[string]error // the first violation of each invariant
}

// sighting is what a boot of a node held when it was looked at last.
type sighting struct {
	boot  int32
	slots map[slotID]uint64
}

type delivered struct {
	to   *node
	boot int32
	data []byte
}

// judged makes a world with a judge in it.
func judged(o Options, h hooks) (*judge, error) {
	j := &judge{rand: rand.New(rand.NewPCG(o.Seed, 0x6a75646765)), seen: make(map[*node]sighting), wrong: make(map[string]error)}
	h.ticked, h.received, h.undecoded, h.taken = j.ticked, j.received, j.undecoded, j.taken
	h.crashed, h.restarting, h.restarted = j.crashed, j.restarting, j.restarted
	var err error
	if j.w, err = newWorld(o, h); err != nil {
		return nil, err
	}
	j.truth = counterstest.NewModel(j.w.limit)
	return j, nil
}

func (j *judge) violate(invariant, format string, args ...any) {
	if j.wrong[invariant] == nil {
		at := time.Duration(j.w.now - j.w.start0)
		j.wrong[invariant] = fmt.Errorf("%s, at %v: "+format, append([]any{invariant, at}, args...)...)
	}
}

// failure is all that went wrong; nil if nothing did.
func (j *judge) failure() error {
	var errs []error
	for _, invariant := range slices.Sorted(maps.Keys(j.wrong)) {
		errs = append(errs, j.wrong[invariant])
	}
	return errors.Join(errs...)
}

func (j *judge) taken(n *node, client int, _ int64, allowed bool) {
	if allowed {
		j.truth.Charge(j.w.keys[client], 1, j.w.clock(n))
	}
}

func (j *judge) undecoded(n *node, err error) {
	j.violate("decoding", "node %d: %w", n.place, err)
}

const sampled = 300 // messages kept, to be replayed

func (j *judge) received(n *node, data []byte) {
	d := delivered{n, n.boot, data}
	if j.came++; len(j.sent) < sampled {
		j.sent = append(j.sent, d)
	} else if i := j.rand.IntN(j.came); i < sampled {
		j.sent[i] = d
	}
}

func (j *judge) ticked(n *node) {
	if j.rand.IntN(8) == 0 {
		j.checkViews(n)
	}
	if j.rand.IntN(32) == 0 {
		j.checkSlots(n)
	}
}

// bySubWindow reports whether the algorithm goes by sub-windows alone: all nodes that know the same count the same, also where their clocks
// differ within one. Others know the times of what they admitted themselves.
func (j *judge) bySubWindow() bool { return j.w.opt.Method <= counters.FixedWindow }

// checkViews (I3): no node counts more than was admitted.
func (j *judge) checkViews(n *node) {
	if !j.bySubWindow() && j.w.opt.Skew > 0 {
		return
	}
	now := j.w.clock(n)
	for client, key := range j.w.keys {
		if seen, most := n.table.View(j.w.limit, key, now), j.truth.View(key, now); seen > most {
			j.violate("I3 truth", "node %d counts %d of client %d, but %d were admitted", n.place, seen, client, most)
		}
	}
}

func (j *judge) slots(n *node) map[slotID]uint64 {
	slots := make(map[slotID]uint64)
	for _, s := range n.table.Snapshot(j.w.clock(n), math.MaxInt) {
		id := slotID{s.Key, s.Index, s.Origin, s.Birth}
		if _, twice := slots[id]; twice {
			j.violate("I2", "node %d has two counts for %+v", n.place, id)
		}
		slots[id] = s.Count
	}
	return slots
}

// checkSlots (I2): no slot decreases within a boot, or is lost, while it counts.
func (j *judge) checkSlots(n *node) {
	meter := j.w.limit.Meter()
	slots, live := j.slots(n), meter.Index(j.w.clock(n))-int64(meter.SubWindows())
	if before := j.seen[n]; before.boot == n.boot {
		for id, count := range before.slots {
			if slots[id] < count && id.index >= live {
				j.violate("I2", "node %d: %+v fell from %d to %d", n.place, id, count, slots[id])
			}
		}
	}
	j.seen[n] = sighting{n.boot, slots}
}

// crashed notes what nobody else has heard of: what admissions may go over the limit by without anybody knowing.
func (j *judge) crashed(n *node) {
	w := j.w
	known := counterstest.NewModel(w.limit)
	union := make(map[slotID]uint64)
	for _, other := range w.nodes {
		if other != n && other.up {
			for id, count := range j.slots(other) {
				union[id] = max(union[id], count)
			}
		}
	}
	for id, count := range union {
		known.Add(id.key, id.index, count)
	}
	worst := uint64(0)
	for _, key := range w.keys {
		all := j.truth.View(key, w.now)
		worst = max(worst, all-min(all, known.View(key, w.now)))
	}
	j.lost += float64(worst) / float64(w.opt.Limit)
}

// restarting and restarted (I7): a restart decreases no other node's view.
func (j *judge) restarting(n *node) {
	for _, other := range j.w.nodes {
		if other != n && other.up {
			j.checkSlots(other)
		}
	}
}

func (j *judge) restarted(n *node) {
	for _, other := range j.w.nodes {
		if other == n || !other.up {
			continue
		}
		before := j.seen[other].slots
		j.checkSlots(other)
		if len(j.seen[other].slots) < len(before) {
			j.violate("I7", "node %d lost slots when node %d started again", other.place, n.place)
		}
	}
}

// agreesWithin is how long after the last request and fault all have to agree. A stream that broke just before is tried again after two
// seconds or two of the longest time-outs, and a node that started in a cut is found within rejoinEvery and spreadsWithin. It is less than
// any window here, or there would be nothing left to agree on.
const agreesWithin = 17 * time.Second

// play runs the world to its end, and holds it against everything.
func (j *judge) play(ctx context.Context) (*Report, error) {
	w := j.w
	defer w.close()
	if err := w.offer(ctx, func(time.Duration) {}); err != nil {
		return nil, err
	}
	w.runTo(w.calm())
	w.net.opt.Loss = 0 // or what is repaired may be lost again and again; what was lost before is still to be repaired
	agreed := w.settle()
	took := time.Duration(w.now - w.calm())
	w.settleStores()
	r := w.report(agreed)
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

// judgeReport holds I4 and I5. Where clocks differ by more than a hundredth of the window, nodes and oracle mean different windows.
func (j *judge) judgeReport(r *Report) {
	o := &j.w.opt
	if sane := o.Skew <= o.Window/100; sane && r.FalseRejections > 0 {
		j.violate("I4", "%d requests of clients that keep to 95 %% of the limit were denied", r.FalseRejections)
	}
	// What begins inside a cut is beyond any bound but the ceiling, as is what a node knew alone and took with it.
	surprises := len(o.Partitions) > 0 && o.Pattern != Even && o.Pattern != Skew
	if n := j.w.book.violations(j.lost); o.Skew == 0 && !surprises && n > 0 {
		j.violate("I5", "in %d intervals more was admitted than the bound allowed; %.2f %% observed, %.2f %% exported at most, %.2f %% lost",
			n, r.ObservedPct, r.BoundPct, 100*j.lost)
	}
	boots := float64(j.w.boots)
	if ceiling := 100 * (boots - 1); r.ObservedPct > ceiling && o.Skew == 0 {
		j.violate("I5 ceiling", "%.2f %% over the limit, %v boots can admit %.0f %%", r.ObservedPct, boots, ceiling)
	}
}

// checkStores: what stores lost in their faults is made good within two flushes, nothing is counted twice, and a node that starts again
// reads it all.
func (j *judge) checkStores(r *Report) {
	if s := r.Redis; s != nil && s.WholeFlushes < 0 {
		j.violate("whole", "stores lacked %d slots after two flushes of every node", s.SlotsMissing)
	} else if s != nil && s.SlotsTwice > 0 {
		j.violate("twice", "stores held too much of %d slots", s.SlotsTwice)
	}
	for _, s := range j.w.stores {
		cold := newTable(&j.w.opt, 1)
		cfg := regions.DefaultConfig()
		cfg.Now = func() time.Time { return time.Unix(0, j.w.now) }
		reader, err := regions.NewReconciler(cfg, s.data, cold)
		if err == nil {
			err = reader.Warm(context.Background())
		}
		read := make(holding)
		read.add(cold.Snapshot(j.w.now, math.MaxInt))
		if n := read.lacks(s.lasting(s.held())); err != nil || n > 0 {
			j.violate("read back", "a node that starts lacks %d slots that the store of region %d holds, %v", n, s.region+1, err)
		}
	}
}

// checkComplete (I1): where nobody crashed nothing is lost, so that all count exactly what was admitted.
func (j *judge) checkComplete() {
	w := j.w
	if w.boots > int32(len(w.nodes)) || j.wrong["I1"] != nil || !j.bySubWindow() {
		return
	}
	sub := int64(w.limit.Meter().Sub)
	w.runTo((w.now/sub+1)*sub + sub/2) // where clocks differ, they agree on the sub-window here
	for _, n := range w.nodes {
		now := w.clock(n)
		for client, key := range w.keys {
			if seen, want := n.table.View(w.limit, key, now), j.truth.View(key, now); seen != want {
				j.violate("I1 complete", "node %d counts %d of client %d, admitted were %d", n.place, seen, client, want)
			}
		}
	}
}

// checkReplays (I3): messages that come again, in any order, change nothing.
func (j *judge) checkReplays() {
	before := make(map[*node][]byte)
	for _, n := range j.w.nodes {
		if n.up {
			before[n] = n.replica.Snapshot(j.w.clock(n))
		}
	}
	for _, i := range j.rand.Perm(len(j.sent)) {
		if d := j.sent[i]; d.to.up && d.to.boot == d.boot { // what only the dead knew may be news
			if err := d.to.replica.Receive(d.data, j.w.clock(d.to)); err != nil {
				j.undecoded(d.to, err)
			}
		}
	}
	for n, snapshot := range before {
		if !bytes.Equal(snapshot, n.replica.Snapshot(j.w.clock(n))) {
			j.violate("I3", "node %d: replays changed what it knows", n.place)
		}
	}
}

// counted is what a node holds of a key, whatever of it has come back since.
func (j *judge) counted(n *node, key counters.Key) (sum uint64) {
	for id, count := range j.slots(n) {
		if id.key == key {
			sum += count
		}
	}
	return sum
}

// checkOutlives (I1): after all that, new counts still arrive everywhere.
func (j *judge) checkOutlives() {
	w, key := j.w, counters.Key(1)
	for _, n := range w.nodes {
		if n.up {
			n.table.Take(w.limit, key, 1, w.clock(n))
		}
	}
	for range agreesWithin / lookEvery {
		w.runTo(w.now + int64(lookEvery))
		if w.agree() && j.counted(w.nodes[0], key) == uint64(w.running()) {
			return
		}
	}
	j.violate("I1", "one more request at each of %d nodes: they do not agree after %v", w.running(), agreesWithin)
}
