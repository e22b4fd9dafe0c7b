package counters_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// Two nodes, what they tell each other, and what each of them and all of them together should count.

// slotID is a slot but for its count.
type slotID struct {
	key    counters.Key
	index  int64
	origin counters.Origin
	birth  uint32
}

func idOf(s counters.Slot) slotID { return slotID{s.Key, s.Index, s.Origin, s.Birth} }

// fuzzNode is a table, and a model of what it should believe.
type fuzzNode struct {
	table  *counters.Table
	skew   int64 // how far its clock is ahead
	belief *oracle.Cells
	risen  map[slotID]uint64 // own slots so far that rose since the last drain
	own    map[slotID]uint64
	inbox  [][]counters.Slot
}

// fuzzPair plays a script. The network may lose, repeat and reorder.
type fuzzPair struct {
	*testing.T
	limit *counters.Limit
	truth *oracle.Model
	nodes [2]fuzzNode
	now   int64
}

const fuzzKeys = 3

// fuzzLimit is the limit of a setting.
func fuzzLimit(t *testing.T, algorithm, setting byte) *counters.Limit {
	a := algorithms[int(algorithm)%len(algorithms)]
	subs := []time.Duration{1, 2, 10, 60}[setting&3]
	sub := []time.Duration{time.Millisecond, time.Second, 7 * time.Second, time.Hour}[setting>>2&3]
	largest := []uint64{1, 5, 20, counters.MaxLimit}[setting>>4&3]
	if a == counters.FixedWindow {
		subs = 1
	}
	m := counters.Meter{Rule: "edge/per_ip", Algorithm: a, Window: subs * sub, Sub: sub}
	switch {
	case a == counters.SlidingLog:
		return newLimit(t, m, min(largest, 100))
	case isBucket(a):
		return newBucket(t, m, min(largest, 500), 5) // a fifth of any of these windows is whole
	}
	return newLimit(t, m, largest)
}

func newFuzzPair(t *testing.T, algorithm, setting byte) *fuzzPair {
	l := fuzzLimit(t, algorithm, setting)
	p := &fuzzPair{T: t, limit: l, truth: oracle.NewModel(l), now: start}
	if setting>>6&1 == 1 {
		p.now = 0 // the window begins before the epoch
	}
	for i := range p.nodes {
		p.nodes[i] = fuzzNode{
			table: small(counters.Origin(i + 1)), belief: oracle.NewCells(l, counters.Origin(i+1)),
			risen: make(map[slotID]uint64), own: make(map[slotID]uint64),
		}
	}
	p.nodes[1].skew = int64(setting>>7) * int64(l.Meter().Sub) * 3 / 4
	return p
}

// play reads the script: two bytes a step.
func (p *fuzzPair) play(script []byte) {
	sub := int64(p.limit.Meter().Sub)
	for ; len(script) >= 2; script = script[2:] {
		op, arg := script[0], int64(script[1])
		n, other := &p.nodes[op&1], &p.nodes[1-op&1]
		switch op >> 1 % 9 {
		case 0:
			p.now += arg * sub / 64
		case 1:
			p.now += arg * sub / 2
		case 2, 3:
			p.take(n, counters.Key(arg%fuzzKeys), uint64(arg/fuzzKeys%8))
		case 4:
			other.inbox = append(other.inbox, p.drain(n))
		case 5:
			if len(n.inbox) > 0 {
				p.merge(n, n.inbox[arg%int64(len(n.inbox))])
			}
		case 6:
			p.merge(n, other.table.Snapshot(p.now+other.skew, int(arg)))
		case 7:
			p.mergeNonsense(n, arg)
		case 8:
			p.take2(n, uint64(arg%4), counters.Key(arg/4%fuzzKeys), counters.Key(arg/16%fuzzKeys))
		}
		p.check(n)
	}
	p.settle()
}

func (p *fuzzPair) take(n *fuzzNode, key counters.Key, cost uint64) {
	now := p.now + n.skew
	got, want := n.table.Take(p.limit, key, cost, now), n.belief.Take(key, cost, now)
	if got != want {
		p.Fatalf("Take(key %d, cost %d) = %+v, the model says %+v", key, cost, got, want)
	}
	if got.Allowed {
		p.admitted(n, key, cost)
	}
}

// take2 takes two layers, which may meet in one cell.
func (p *fuzzPair) take2(n *fuzzNode, cost uint64, a, b counters.Key) {
	now := p.now + n.skew
	ds := n.table.TakeAll([]counters.Charge{{Limit: p.limit, Key: a, Cost: cost}, {Limit: p.limit, Key: b, Cost: cost}},
		now, nil)
	var before uint64
	if a == b {
		before = cost
	}
	wantA, wantB := n.belief.Ask(a, cost, 0, now), n.belief.Ask(b, cost, before, now)
	if ds[0].Allowed != wantA.Allowed || ds[1].Allowed != wantB.Allowed || ds[0].RetryAfter != wantA.RetryAfter ||
		ds[1].RetryAfter != wantB.RetryAfter {
		p.Fatalf("layers %d and %d, cost %d:\n got %+v\nwant %+v and %+v", a, b, cost, ds, wantA, wantB)
	}
	if wantA.Allowed && wantB.Allowed {
		for _, key := range []counters.Key{a, b} {
			n.belief.Charge(key, cost, now)
			p.admitted(n, key, cost)
		}
	}
}

func (p *fuzzPair) admitted(n *fuzzNode, key counters.Key, cost uint64) {
	if cost == 0 {
		return
	}
	id := slotID{key, p.limit.Meter().Index(p.now + n.skew), n.table.Origin(), 0}
	if p.bySubWindows() {
		p.truth.Add(key, id.index, cost)
	} else {
		p.truth.Charge(key, cost, p.now+n.skew)
	}
	n.own[id] += cost
	n.risen[id] = n.own[id]
}

// bySubWindows reports whether the algorithm counts by sub-windows alone, so that nodes that know the same agree, by
// whatever clocks.
func (p *fuzzPair) bySubWindows() bool {
	a := p.limit.Meter().Algorithm
	return a == counters.SlidingWindow || a == counters.FixedWindow
}

// drain checks that what is drained is what rose.
func (p *fuzzPair) drain(n *fuzzNode) []counters.Slot {
	now := p.now + n.skew
	slots := n.table.DrainDirty(now).Slots
	for _, s := range slots {
		if n.risen[idOf(s)] != s.Count {
			p.Fatalf("drained %+v, %d rose", s, n.risen[idOf(s)])
		}
		delete(n.risen, idOf(s))
	}
	for id, count := range n.risen {
		if p.counts(id.index, now) {
			p.Fatalf("%+v rose to %d and was not drained", id, count)
		}
	}
	clear(n.risen)
	return slots
}

// counts reports whether the sub-window is one that a table keeps.
func (p *fuzzPair) counts(index, now int64) bool {
	m := p.limit.Meter()
	return m.Index(now)-int64(m.SubWindows()) <= index && index <= m.Index(now)+1
}

func (p *fuzzPair) merge(n *fuzzNode, slots []counters.Slot) {
	now, want := p.now+n.skew, 0
	for _, s := range slots {
		if n.belief.Merge(s, now) {
			want++
		}
	}
	if novel := n.table.Merge(slots, now); novel != want {
		p.Fatalf("Merge of %+v: %d are novel, want %d", slots, novel, want)
	}
}

// mergeNonsense merges what must change nothing.
func (p *fuzzPair) mergeNonsense(n *fuzzNode, arg int64) {
	m, now := p.limit.Meter(), p.now+n.skew
	bad := m
	bad.Sub += time.Duration(arg) - 300
	bad.Window++
	slot := counters.Slot{
		Meter: &m, Key: counters.Key(arg % fuzzKeys), Index: m.Index(now), Origin: 3, Birth: uint32(arg),
		Count: 1 << 63,
	}
	future, past, invalid, own, empty := slot, slot, slot, slot, slot
	future.Index += 2 + arg
	past.Index -= int64(m.SubWindows()) + 1 + arg
	invalid.Meter = &bad
	own.Origin = n.table.Origin()
	empty.Count = 0
	before := n.table.Stats()
	if novel := n.table.Merge([]counters.Slot{future, past, invalid, own, empty}, now); novel != 0 {
		p.Fatalf("of slots that must change nothing %d are novel", novel)
	}
	if after := n.table.Stats(); after.Refused != before.Refused+2 || after.Keys != before.Keys {
		p.Fatalf("%+v, was %+v: want the one of the future and the invalid one refused", after, before)
	}
}

// check holds a node against its model, and against the truth.
func (p *fuzzPair) check(n *fuzzNode) {
	now := p.now + n.skew
	for key := range counters.Key(fuzzKeys) {
		view := n.table.View(p.limit, key, now)
		if want := n.belief.View(key, now); view != want {
			p.Fatalf("key %d: view %d, the model says %d", key, view, want)
		}
		if largest := p.truth.View(key, now); view > largest && (p.bySubWindows() || p.nodes[1].skew == 0) {
			p.Fatalf("key %d: view %d, of which there are %d", key, view, largest)
		}
	}
	if st := n.table.Stats(); st.Keys > fuzzKeys || st.Evicted != 0 {
		p.Fatalf("%+v, with %d keys", st, fuzzKeys)
	}
}

// settle lets the nodes tell each other all, by one clock: they agree with the truth.
func (p *fuzzPair) settle() {
	if !p.bySubWindows() {
		return
	}
	p.now += p.nodes[1].skew
	p.nodes[0].skew, p.nodes[1].skew = 0, 0
	for i := range p.nodes {
		p.drain(&p.nodes[i])
		p.merge(&p.nodes[i], p.nodes[1-i].table.Snapshot(p.now, 1e6))
		p.merge(&p.nodes[1-i], p.nodes[i].table.Snapshot(p.now, 1e6))
	}
	for i := range p.nodes {
		p.check(&p.nodes[i])
		for key := range counters.Key(fuzzKeys) {
			if got, want := p.nodes[i].table.View(p.limit, key, p.now), p.truth.View(key, p.now); got != want {
				p.Fatalf("in the end node %d has a view of %d of key %d, of which there are %d", i, got, key, want)
			}
		}
	}
}

// pseudoRandom is a script for a setting, so that plain tests run something of everything.
func pseudoRandom(setting, n int) []byte {
	script, x := make([]byte, n), uint32(setting)*2654435761+1
	for i := range script {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		script[i] = byte(x >> 11)
	}
	return script
}

func FuzzTable(f *testing.F) {
	f.Add(byte(0), byte(0), []byte{4, 9, 5, 12, 8, 0, 11, 0, 0, 40, 9, 0, 10, 0, 12, 200, 13, 200, 14, 7, 16, 6})
	for setting := range 256 {
		script := pseudoRandom(setting, 300)
		f.Add(byte(setting%len(algorithms)), byte(setting), script)
	}
	f.Fuzz(func(t *testing.T, algorithm, setting byte, script []byte) {
		newFuzzPair(t, algorithm, setting).play(script[:min(len(script), 2000)])
	})
}
