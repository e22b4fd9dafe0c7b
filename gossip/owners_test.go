package gossip

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// largeReplica is a replica of a cluster in which owners add up, with so many peers of its region.
func largeReplica(t *testing.T, peers int) *Replica {
	t.Helper()
	r := NewReplica(1, 100*time.Millisecond, counters.NewTable(counters.Config{Origin: 1, Memory: 4 << 20}))
	r.Describe(1, Node{Region: "here", Name: "self"})
	for o := range counters.Origin(peers) {
		joinNear(r, o+10)
	}
	r.Tick(counters.Drained{}, frameTime)
	if !r.large {
		t.Fatalf("%d peers are a small cluster", peers)
	}
	return r
}

func joinNear(r *Replica, o counters.Origin) { join(r, o, "here") }

func join(r *Replica, o counters.Origin, region string) {
	r.Join(o, frameTime)
	r.Describe(o, Node{Region: region, Name: fmt.Sprint("node-", o)})
}

// Where owners add up, every peer is sent frames of its own, also one that joins later: the frames of one are not sent
// again to another.
func TestPeersThatJoinLaterHaveLogsOfTheirOwn(t *testing.T) {
	r := largeReplica(t, meshMost)
	joinNear(r, 100)
	joinNear(r, 101)
	r.Tick(counters.Drained{}, frameTime+100*ms)
	seen := make(map[*frameLog]counters.Origin)
	for o, p := range r.peers {
		if other, ok := seen[p.log]; ok {
			t.Errorf("peers %d and %d have one log", o, other)
		}
		seen[p.log] = o
	}
}

// A peer for whom something waits is noted once, however long it does not acknowledge anything.
func TestWhoIsWaitedForIsNotedOnce(t *testing.T) {
	r := largeReplica(t, meshMost)
	m := counters.NewMeter("r", counters.SlidingWindow, 10*time.Second)
	for i := range int64(50) {
		now := frameTime + (i+1)*100*ms
		slot := counters.Slot{Meter: &m, Key: 1, Index: m.Index(now), Origin: 1, Count: uint64(i) + 1, To: 10}
		r.Tick(counters.Drained{Slots: []counters.Slot{slot}}, now)
	}
	if !slices.Equal(r.busy, []counters.Origin{10}) {
		t.Errorf("something waits for %v, want 10 alone", r.busy)
	}
}

// The ticks of a peer that leaves and comes back go on: it takes those that it has for repeated.
func TestTicksGoOnWhenAPeerReturns(t *testing.T) {
	r := largeReplica(t, meshMost)
	m := counters.NewMeter("r", counters.SlidingWindow, 10*time.Second)
	now := frameTime
	for range 5 {
		now += 100 * ms
		slot := counters.Slot{Meter: &m, Key: 1, Index: m.Index(now), Origin: 1, Count: 1, To: 10}
		r.Tick(counters.Drained{Slots: []counters.Slot{slot}}, now)
	}
	last := r.peers[10].log.last()
	if last == 0 {
		t.Fatal("nothing went to peer 10")
	}
	r.Leave(10, false)
	r.Tick(counters.Drained{}, now+100*ms)
	joinNear(r, 10)
	if got := r.peers[10].log.last(); got < last {
		t.Errorf("the ticks begin again at %d, they were at %d", got, last)
	}
}

// No member owns many more partitions than others, in whatever order members are; where one is silent only its
// partitions move, and where one leaves few others do, at whatever size.
func TestOwnersHaveEvenShares(t *testing.T) {
	for n := 17; n < 140; n += 1 + n/12 {
		r := largeReplica(t, n-1)
		g := r.regions[0]
		r.findOwners(g)
		before := g.owners
		slices.Reverse(g.members)
		if r.findOwners(g); g.owners != before {
			t.Errorf("%d nodes: owners go by the order of members", n)
		}
		moved := 0
		for _, m := range slices.Clone(g.members) {
			share := 0
			for _, o := range before {
				if o == m.origin {
					share++
				}
			}
			if even := (counters.Partitions + n - 1) / n; share > even+2 {
				t.Errorf("%d nodes: one owns %d partitions, its even share is %d", n, share, even)
			}
			if m.origin == r.self {
				continue
			}
			r.suspects[m.origin] = 1
			r.findOwners(g)
			delete(r.suspects, m.origin)
			for p, o := range g.owners {
				if o == m.origin || o == 0 || o != before[p] && before[p] != m.origin {
					t.Errorf("%d nodes, one silent: partition %d moves from %d to %d", n, p, before[p], o)
				}
			}
			all := g.members
			g.members = slices.DeleteFunc(slices.Clone(all), func(other member) bool { return other == m })
			r.findOwners(g)
			g.members = all
			for p, o := range g.owners {
				if o != before[p] {
					moved++
				}
			}
		}
		if mean := float64(moved) / counters.Partitions; mean > 3 { // 1 is what the leaving own themselves
			t.Errorf("%d nodes: for each partition of a node that leaves, %.1f move", n, mean)
		}
	}
}

// A node that stops waits until it has handed over what it owns, even if nothing else was sent.
func TestAStopWaitsForTheHandOver(t *testing.T) {
	r := largeReplica(t, meshMost)
	now := frameTime + 100*ms
	r.Tick(r.counts.(*counters.Table).DrainDirty(now), now)
	if !r.FullyAcked(now) {
		t.Fatal("something is not acknowledged")
	}
	r.ResendEveryTick()
	for step, want := range []bool{false, true} {
		now += 100 * ms
		drained := r.counts.(*counters.Table).DrainDirty(now)
		r.Tick(drained, now)
		if got := r.FullyAcked(now); got != want {
			t.Errorf("interval %d: handed over: %t, want %t", step, got, want)
		}
	}
}

// A member of another region may be silent while others of its region are not, if somebody stands in for it or it had
// nothing to report; but not where so many are silent that the region counts as out of reach, nor one of the own
// region.
func TestWhoMayBeSilent(t *testing.T) {
	r := largeReplica(t, meshMost)
	for o := range counters.Origin(5) {
		r.Join(200+o, frameTime)
		r.Describe(200+o, Node{Region: "there", Name: fmt.Sprint("far-", o)})
		r.inboundOf(200+o, frameTime)
	}
	r.suspects[10], r.suspects[200], r.suspects[201], r.changed = 1, 1, 1, true
	r.Tick(counters.Drained{}, frameTime+100*ms)
	for _, o := range []counters.Origin{11, 203} {
		r.inboundOf(o, frameTime).idle = true
	}
	for o, want := range map[counters.Origin]bool{10: false, 11: false, 200: true, 202: false, 203: true} {
		if r.mayBeSilent(o) != want {
			t.Errorf("peer %d may be silent: %t, want %t", o, !want, want)
		}
	}
	if r.byName["there"].silent = true; r.mayBeSilent(200) || r.mayBeSilent(203) {
		t.Error("a member of a region that is out of reach may be silent")
	}
}

// A sum of a region that is not known yet is not taken for the counts of a node: the frame has to come again.
func TestSumsOfUnknownRegionsComeAgain(t *testing.T) {
	r := largeReplica(t, meshMost)
	r.Join(200, frameTime)
	r.Describe(200, Node{Region: "there", Name: "far"})
	m := counters.NewMeter("r", counters.SlidingWindow, 10*time.Second)
	unknown := newSum("sum", "nowhere").Of(1)
	g := group{origin: unknown, meter: &m, rise: ofSum,
		slots: []counters.Slot{{Meter: &m, Key: 1, Index: m.Index(frameTime), Origin: unknown, Count: 7}}}
	bodies := pack([]group{g}, 200, frameTime, maxBody)
	f := frame{kind: data, origin: 200, tick: 1, sent: frameTime, ages: &ages{}}
	receive := func() {
		if err := r.Receive(f.encode(nil, bodies[0]), frameTime); err != nil {
			t.Fatal(err)
		}
	}
	limit, err := counters.NewLimit(m, 100)
	if err != nil {
		t.Fatal(err)
	}
	view := func() uint64 { return r.counts.(*counters.Table).View(limit, 1, frameTime) }
	receive()
	if got := view(); got != 0 || r.inbound[200].cumulative != 0 {
		t.Errorf("it counts %d and has the frames to %d, want nothing", got, r.inbound[200].cumulative)
	}
	r.Join(201, frameTime)
	r.Describe(201, Node{Region: "nowhere", Name: "third"})
	receive()
	if got := view(); got != 7 || r.inbound[200].cumulative != 1 {
		t.Errorf("it counts %d and has the frames to %d, want 7 and 1", got, r.inbound[200].cumulative)
	}
	g.origin = newSum("sum", "gone").Of(1)
	f.tick, bodies = 2, pack([]group{g}, 200, frameTime, maxBody)
	for _, came := range []struct {
		after time.Duration // by this node's clock after the sender's
		to    uint64
	}{{-5 * time.Millisecond, 1}, {refusedFor - 5*time.Millisecond - 1, 1}, {refusedFor - 5*time.Millisecond, 2}} {
		if err := r.Receive(f.encode(nil, bodies[0]), frameTime+int64(came.after)); err != nil {
			t.Fatal(err)
		}
		if got := r.inbound[200].cumulative; got != came.to {
			t.Errorf("%v after a sum of a region that is gone it has the frames to %d, want %d", came.after, got,
				came.to)
		}
	}
	f.tick = 3
	if err := r.Receive(f.encode(nil, bodies[0]), frameTime+int64(refusedFor)); err != nil {
		t.Fatal(err)
	}
	if got := r.inbound[200].cumulative; got != 3 {
		t.Errorf("the second sum of a region that is gone has the frames wait at %d", got)
	}
}

// Beside sums, or before the first of them, what a node that is no member counts could be part of any: its frames come
// again.
func TestSlotsOfStrangersComeAgainBesideSums(t *testing.T) {
	m := counters.NewMeter("r", counters.SlidingWindow, 10*time.Second)
	limit, err := counters.NewLimit(m, 100)
	testkit.Must(t, err)
	for name, stranger := range map[string]frame{
		"data":                 {kind: data},
		"a snapshot":           {kind: snapshot},
		"before the first sum": {kind: data, ages: &ages{}},
	} {
		t.Run(name, func(t *testing.T) {
			r := largeReplica(t, meshMost)
			join(r, 200, "there")
			receive := func(f frame, from, of counters.Origin, count, rise uint64) (view, has uint64) {
				t.Helper()
				g := group{origin: of, meter: &m, rise: rise,
					slots: []counters.Slot{{Meter: &m, Key: 1, Index: m.Index(frameTime), Origin: of, Count: count}}}
				f.origin, f.tick, f.sent = from, 1, frameTime
				body := pack([]group{g}, from, frameTime, maxBody)[0]
				testkit.Must(t, r.Receive(f.encode(nil, body), frameTime))
				if h := r.inbound[from]; h != nil {
					has = h.cumulative
				}
				return r.counts.(*counters.Table).View(limit, 1, frameTime), has
			}
			sum := func() { receive(frame{kind: data}, 200, newSum("sum", "there").Of(1), 10, ofSum) }
			if stranger.ages == nil {
				sum()
			}
			before := r.counts.(*counters.Table).View(limit, 1, frameTime)
			if view, has := receive(stranger, 201, 201, 7, 1); view != before || has != 0 {
				t.Errorf("of a stranger it counts %d and has the frames to %d", view-before, has)
			}
			sum()
			join(r, 201, "beyond")
			if view, has := receive(stranger, 201, 201, 7, 1); view != 17 || has != 1 {
				t.Errorf("with a member's frame it counts %d and has the frames to %d, want 17 and 1", view, has)
			}
		})
	}
}

// What others said of a node before it was a member counts where the node does from then on: not as a part of every sum
// that comes.
func TestSlotsGetTheirPlaceWithTheMember(t *testing.T) {
	r := largeReplica(t, meshMost)
	join(r, 200, "there")
	m := counters.NewMeter("r", counters.SlidingWindow, 10*time.Second)
	limit, err := counters.NewLimit(m, 100)
	testkit.Must(t, err)
	receive := func(k kind, of counters.Origin, count, rise uint64) {
		t.Helper()
		g := group{origin: of, meter: &m, rise: rise,
			slots: []counters.Slot{{Meter: &m, Key: 1, Index: m.Index(frameTime), Origin: of, Count: count}}}
		f := frame{kind: k, origin: 10, tick: 1, sent: frameTime}
		testkit.Must(t, r.Receive(f.encode(nil, pack([]group{g}, 10, frameTime, maxBody)[0]), frameTime))
	}
	receive(snapshot, 201, 7, 1)
	join(r, 201, "there")
	receive(data, newSum("sum", "here").Of(1), 40, ofSum)
	if got := r.counts.(*counters.Table).View(limit, 1, frameTime); got != 47 {
		t.Errorf("it counts %d, want 7 of a far node and 40 of others here", got)
	}
}

// A frame that is for an earlier boot at the same address changes nothing, whatever its kind.
func TestFramesForAnEarlierBoot(t *testing.T) {
	r := largeReplica(t, meshMost)
	r.suspects[10], r.peers[10].lastSeen = 1, 0
	f := frame{origin: 10, tick: 5, sent: frameTime, ages: &ages{}, to: toWhom(r.self) + 1}
	for f.kind = range kinds {
		testkit.Must(t, r.Receive(f.encode(nil, emptyBody), frameTime))
		if r.lastSeen(10) != 0 || !r.isSuspect(10) || r.peers[10].lastSeen != 0 || len(r.asking) != 0 {
			t.Errorf("kind %d: a frame for another boot changed something", f.kind)
		}
	}
	f.kind, f.to = data, toWhom(r.self)
	testkit.Must(t, r.Receive(f.encode(nil, emptyBody), frameTime))
	if r.lastSeen(10) == 0 || r.isSuspect(10) {
		t.Error("a frame for this boot changed nothing")
	}
}

// What a node that has just started says of others is not taken for a part of any sum: they are to send it themselves.
// What one says that has run for long is about nodes that are gone.
func TestSnapshotsOfNewcomers(t *testing.T) {
	m := counters.NewMeter("r", counters.SlidingWindow, time.Hour)
	limit, err := counters.NewLimit(m, 100)
	if err != nil {
		t.Fatal(err)
	}
	r := largeReplica(t, meshMost)
	now := frameTime + 2*int64(newcomer)
	r.Join(200, now)
	r.Describe(200, Node{Region: "there", Name: "far"})
	of := func(o counters.Origin, count uint64) group {
		return group{origin: o, meter: &m,
			slots: []counters.Slot{{Meter: &m, Key: 1, Index: m.Index(now), Origin: o, Count: count}}}
	}
	for i, want := range []uint64{3, 10} {
		tick, at := uint64(i+1), now+int64(i)*2*int64(newcomer)
		f := frame{kind: snapshot, origin: 200, tick: tick, sent: at}
		if err := r.Receive(f.encode(nil, pack([]group{of(200, 3), of(999, 7)}, 200, at, maxBody)[0]), at); err != nil {
			t.Fatal(err)
		}
		if got := r.counts.(*counters.Table).View(limit, 1, at); got != want {
			t.Errorf("snapshot %d: it counts %d, want %d", tick, got, want)
		}
	}
}

// Whoever sends a beacon is answered, also by a node that sends nothing to it: one that stood in for an owner during a
// partition would be waited for after it, and count as out of reach. The answer is none to answer.
func TestBeaconsOfNonLinksAreAnswered(t *testing.T) {
	r, _, from := farReplica(t)
	now := frameTime + 100*ms
	f := frame{kind: beacon, origin: from, tick: 5, sent: now, ages: &ages{}}
	if err := r.Receive(f.encode(nil, emptyBody), now); err != nil {
		t.Fatal(err)
	}
	out := r.Tick(counters.Drained{}, now+100*ms)
	i := slices.IndexFunc(out, func(m Message) bool { return m.To == from })
	if i < 0 {
		t.Fatal("a node whose frames are missing gets no answer")
	}
	if f, err := decodeFrame(out[i].Data); err != nil || f.kind != beacon || f.ages != nil {
		t.Errorf("the answer is %+v, %v", f, err)
	}
}

// What was added up before a cluster became a small one is sent to nobody: where all send to all, a sum would be one
// more node that counts the same.
func TestNoSumIsSentInASmallCluster(t *testing.T) {
	r := largeReplica(t, meshMost)
	m := counters.NewMeter("r", counters.SlidingWindow, 10*time.Second)
	now := frameTime + 100*ms
	own := counters.Slot{Meter: &m, Key: 1, Index: m.Index(now), Origin: 1, Count: 5}
	sum := own
	sum.Origin, sum.To = r.regions[0].sum.Of(1), 10
	r.Join(300, now) // nobody has described it
	out := r.Tick(counters.Drained{Slots: []counters.Slot{sum, own}}, now)
	origins := make(map[counters.Origin]int)
	for _, message := range out {
		f, err := decodeFrame(message.Data)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range f.groups {
			origins[g.origin]++
		}
	}
	if r.large || len(origins) != 1 || origins[1] != len(r.peers) {
		t.Errorf("groups by origin: %v, want those of 1 alone, in a small cluster (large: %t)", origins, r.large)
	}
}

// A cluster of few nodes becomes a small one, though each hears from others that they are still of a large one: unless
// one of them knows many.
func TestFewNodesBecomeASmallCluster(t *testing.T) {
	for _, tt := range []struct {
		left        int // peers
		few, remain bool
	}{{meshAgain - 1, true, false}, {meshAgain - 1, false, true}, {meshAgain, true, true}} {
		r := largeReplica(t, meshMost)
		for o := range counters.Origin(meshMost - tt.left) {
			r.Leave(10+o, true)
		}
		now := frameTime
		for range 10 {
			now += int64(time.Second)
			f := frame{kind: beacon, origin: 10 + meshMost - 1, sent: now, ages: &ages{few: tt.few}}
			if err := r.Receive(f.encode(nil, emptyBody), now); err != nil {
				t.Fatal(err)
			}
			for _, m := range r.Tick(counters.Drained{}, now) {
				if f, err := decodeFrame(m.Data); err != nil || f.ages != nil && f.ages.few != (tt.left < meshAgain) {
					t.Fatalf("%+v: it sends %+v, %v", tt, f.ages, err)
				}
			}
		}
		if r.large != tt.remain {
			t.Errorf("%+v: it is of a large cluster: %t", tt, r.large)
		}
	}
}

// sumWatermarks is a table that notes which watermarks of sums it gets.
type sumWatermarks struct {
	*counters.Table
	of map[counters.Sum]int64
}

func (w *sumWatermarks) SetSumWatermarks(s counters.Sum, of counters.PartitionSet, watermark int64) {
	w.of[s] = watermark
	w.Table.SetSumWatermarks(s, of, watermark)
}

// What a region was asked for is forgotten with the last of its nodes: at once if they left, or else when nobody waits
// for them any more. Its clients are others' by then.
func TestDemandOfARegionThatIsGone(t *testing.T) {
	for _, left := range []bool{true, false} {
		r := largeReplica(t, meshMost)
		table := &sumWatermarks{r.counts.(*counters.Table), make(map[counters.Sum]int64)}
		r.counts = table
		now := frameTime
		tick := func(after time.Duration) {
			now += int64(after)
			r.Tick(counters.Drained{}, now)
		}
		join(r, 200, "there")
		join(r, 201, "there")
		there := r.byName["there"].sum
		for o := range counters.Origin(2) {
			f := frame{kind: beacon, origin: 200 + o, sent: now, ages: &ages{}}
			if err := r.Receive(f.encode(nil, emptyBody), now); err != nil {
				t.Fatal(err)
			}
		}
		r.Leave(200, left)
		tick(100 * time.Millisecond)
		if table.of[there] == counters.Gone {
			t.Errorf("left %t: it is forgotten with one of two nodes", left)
		}
		r.Leave(201, left)
		tick(100 * time.Millisecond)
		if gone := table.of[there] == counters.Gone; gone != left {
			t.Errorf("left %t: it is forgotten at once: %t", left, gone)
		}
		tick(forgetSilent)
		tick(100 * time.Millisecond)
		if table.of[there] != counters.Gone {
			t.Errorf("left %t: it is not forgotten after %v", left, forgetSilent)
		}
		r.Join(202, now)
		r.Describe(202, Node{Region: "there", Name: "node-202"})
		if tick(100 * time.Millisecond); table.of[there] != now {
			t.Errorf("left %t: a region that came back is complete through %d, want %d", left, table.of[there], now)
		}
	}
}

// A bridge says which frames will not come, and nothing of what they held: a node that starts waits for that.
func TestABridgeInformsNobody(t *testing.T) {
	r := NewReplica(1, 100*time.Millisecond, counters.NewTable(counters.Config{Origin: 1, Memory: 4 << 20}))
	r.Describe(1, Node{Region: "here", Name: "self"})
	joinNear(r, 10)
	now := frameTime
	receive := func(f frame) {
		now += ms
		if err := r.Receive(f.encode(nil, emptyBody), now); err != nil {
			t.Fatal(err)
		}
	}
	receive(frame{kind: snapshot, origin: 10, tick: 6, sent: beforeAll})
	if r.hasBegun() {
		t.Error("it has begun after a bridge alone")
	}
	first := now
	receive(frame{kind: beacon, origin: 10, tick: 8, sent: now, ages: &ages{}})
	receive(frame{kind: snapshot, origin: 10, tick: 7, sent: beforeAll})
	if h := r.inbound[10]; r.hasBegun() || h.watermark != 0 || h.cumulative != 7 || h.latestSent != first {
		t.Errorf("after a bridge to frame %d it has begun: %t, complete through %d, the newest frame is of %d",
			h.cumulative, r.hasBegun(), h.watermark, h.latestSent)
	}
	for o := range counters.Origin(meshMost) {
		joinNear(r, 11+o)
	}
	r.Tick(counters.Drained{}, now)
	receive(frame{kind: snapshot, origin: 11, tick: 7, sent: beforeAll})
	if h := r.inbound[11]; r.hasBegun() || h.watermark != 0 || h.cumulative != 7 {
		t.Errorf("after a bridge to frame %d it has begun: %t, complete through %d", h.cumulative, r.hasBegun(),
			h.watermark)
	}
}

// What owners add up of a rule is forgotten when they report it no more, but not while they are silent. It goes by
// their clock as it is after it was set back. Rules in force have room among those that somebody makes up.
func TestWhatOwnersReportEnds(t *testing.T) {
	r := largeReplica(t, meshMost)
	limit, err := counters.NewLimit(counters.NewMeter("in force", counters.SlidingWindow, 10*time.Second), 100)
	if err != nil {
		t.Fatal(err)
	}
	r.Audit(map[string]*counters.Limit{"in force": limit}, frameTime)
	join(r, 200, "there")
	there, tick := r.byName["there"].sum, uint64(0)
	receive := func(sent, now int64, rules ...string) {
		tick++
		f := frame{kind: data, origin: 200, tick: tick, sent: sent, ages: &ages{}}
		for _, rule := range rules {
			m := counters.NewMeter(rule, counters.SlidingWindow, 10*time.Second)
			f.groups = append(f.groups, group{origin: there.Of(1), meter: &m, rise: ofSum, demand: 7,
				slots: []counters.Slot{{Meter: &m, Key: 1, Index: m.Index(sent), Origin: there.Of(1), Count: tick}}})
		}
		body := emptyBody
		if len(rules) > 0 {
			body = pack(f.groups, 200, sent, maxBody)[0]
		}
		if err := r.Receive(f.encode(nil, body), now); err != nil {
			t.Fatal(err)
		}
		r.Tick(counters.Drained{}, now)
	}
	rate := func(rule string) float64 { return r.inbound[200].sums[ofRegion][rule].rate }
	now := frameTime
	receive(now, now, "in force", "other")
	receive(now+int64(namedWithin), now+int64(namedWithin), "other")
	if rate("in force") != 7 || rate("other") != 7 {
		t.Errorf("%v after a report it is %v", namedWithin, r.inbound[200].sums)
	}
	now += int64(namedWithin) + 100*ms
	r.Tick(counters.Drained{}, now+int64(time.Minute))
	if rate("in force") != 7 {
		t.Error("it is forgotten while its owner is silent")
	}
	receive(now, now, "other")
	if rate("in force") != 0 || rate("other") != 7 {
		t.Errorf("%v after a report it is %v", namedWithin+100*time.Millisecond, r.inbound[200].sums)
	}
	back := now - int64(time.Hour)
	receive(back+100*ms, now+100*ms, "in force")
	if at := r.inbound[200].sums[ofRegion]["in force"].sent; at != back+100*ms {
		t.Errorf("after the clock was set back, it was reported %v ago", time.Duration(back-at))
	}
	receive(back+int64(namedWithin)+200*ms, now+int64(namedWithin)+200*ms)
	if rate("other") != 0 {
		t.Error("what was reported before the clock was set back does not end")
	}
	sums := r.inbound[200].sums[ofRegion]
	for i := range maxUnknownDemands {
		sums[fmt.Sprint("made up ", i)] = reported{sent: back + int64(namedWithin)}
	}
	delete(sums, "in force")
	receive(back+int64(namedWithin)+300*ms, now+int64(namedWithin)+300*ms, "in force", "another")
	if rate("in force") != 7 || rate("another") != 0 {
		t.Error("a rule in force finds no room among those that nobody has, or another one does")
	}
}
