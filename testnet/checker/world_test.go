package checker

import (
	"bytes"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/record"
)

// A world is six nodes in three regions with real tables, which exchange what they admitted through a network that is simulated: frames
// are late, come twice, overtake each other, and wait at a cut. Time is virtual, and a seed decides everything.
const (
	worldLimit  = 300
	worldWindow = 5 * time.Second
	interval    = 100 * time.Millisecond
	trafficFor  = 11 * time.Second // at least: see flaw
	watched     = 4 * time.Second  // after the traffic
	cutFrom     = 4 * time.Second
	cutTo       = 8 * time.Second
	cutRegion   = "eu-west"
)

// flaw is how a limiter is broken; the zero value is one that is not.
type flaw struct {
	name string
	// frame returns what a node makes of a frame that came to it, and whether it notices it at all.
	frame func(w *world, to *simNode, f simFrame) (slots []counters.Slot, heard bool)
	// decide replaces a node's decision.
	decide func(n *simNode, l *counters.Limit, key counters.Key, now int64) counters.Decision
	// disturb is called every half second.
	disturb func(w *world)
	ahead   time.Duration // by how much the clock of the last node is ahead
	longer  time.Duration // by how much the traffic lasts longer, so that the flaw shows
}

type world struct {
	flaw    flaw
	limit   *counters.Limit
	rand    *rand.Rand
	start   int64
	now     int64
	nodes   []*simNode
	queue   agenda
	seq     int
	losses  int  // of all that a node counted
	cut     bool // whether there is one in the run
	traffic time.Duration
	entries []record.Entry
}

type simNode struct {
	id, region string
	number     int
	table      *counters.Table
	ahead      int64
	tick       int
	peers      map[int]*simPeer
	bounds     []boundAt
}

// simPeer is what a node knows of another.
type simPeer struct {
	have    map[int]int64 // times of frames that came, by tick
	whole   int           // every frame up to here has come
	asOf    int64
	rate    float64
	rateAt  int64
	unknown float64 // the most that was unseen since the last audit
}

type boundAt struct {
	at    int64
	bound float64
}

type simFrame struct {
	from  int
	tick  int
	sent  int64
	slots []counters.Slot
	rate  float64
}

type planned struct {
	at  int64
	seq int
	do  func()
}

type agenda []planned

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(planned)) }
func (a *agenda) Pop() any     { last := (*a)[len(*a)-1]; *a = (*a)[:len(*a)-1]; return last }

func (w *world) plan(at int64, do func()) {
	w.seq++
	heap.Push(&w.queue, planned{at, w.seq, do})
}

var identities = []string{"greedy", "steady", "bursty"}

// play runs a world, and returns its record.
func play(t testing.TB, f flaw, pattern string, cut bool, seed uint64) (record.Header, []record.Entry) {
	t.Helper()
	limit, err := counters.NewLimit(counters.NewMeter("testnet/per_client", counters.SlidingWindow, worldWindow), worldLimit)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{flaw: f, limit: limit, rand: rand.New(rand.NewPCG(seed, 1)), cut: cut, traffic: trafficFor + f.longer}
	w.start = time.Unix(1_000_000, 0).UnixNano() + w.rand.Int64N(int64(worldWindow))
	for i, n := range worldHeader(w.start).Nodes {
		node := &simNode{
			id: n.ID, region: n.Region, number: i, peers: make(map[int]*simPeer),
			table: counters.NewTable(counters.Config{Origin: counters.Origin(i + 1), Memory: counters.MinMemory}),
		}
		w.nodes = append(w.nodes, node)
	}
	w.nodes[len(w.nodes)-1].ahead = int64(f.ahead)
	w.planNodes()
	w.planTraffic(pattern)
	if cut {
		for at, began := range map[time.Duration]bool{cutFrom: true, cutTo: false} {
			w.entries = append(w.entries, record.Entry{Event: &record.Event{
				At: w.start + int64(at), Began: began, Name: record.Partition, Target: cutRegion}})
		}
	}
	for w.queue.Len() > 0 {
		next := heap.Pop(&w.queue).(planned)
		w.now = next.at
		next.do()
	}
	return worldHeader(w.start), w.entries
}

func worldHeader(start int64) record.Header {
	h := record.Header{Started: start, Rule: record.Rule{
		Name: "testnet/per_client", Limit: worldLimit, Window: worldWindow, Sub: worldWindow / 10, Algorithm: "sliding_window"}}
	for _, region := range []string{"us-east", cutRegion, "ap-south"} {
		for i := range 2 {
			h.Nodes = append(h.Nodes, record.Node{ID: fmt.Sprintf("%s-%d", region, i+1), Region: region})
		}
	}
	return h
}

// planNodes plans what nodes do by themselves: they speak every interval, and are observed every second.
func (w *world) planNodes() {
	for i, n := range w.nodes {
		shift := w.rand.Int64N(int64(interval))
		for at := shift; at < int64(w.traffic+watched); at += int64(interval) {
			w.plan(w.start+at, func() { w.speak(n) })
		}
		for at := int64(time.Second) * int64(i) / 6; at < int64(w.traffic+watched); at += int64(time.Second) {
			w.plan(w.start+at, func() { w.observe(n) })
		}
	}
	if w.flaw.disturb != nil {
		for at := time.Duration(0); at < w.traffic+watched; at += time.Second / 2 {
			w.plan(w.start+int64(at), func() { w.flaw.disturb(w) })
		}
	}
}

// planTraffic plans the requests of three clients: one that asks for more than its limit, as the pattern says, one that uses 92 % of
// its limit evenly, and one that uses 90 % of it within two seconds, as often as the algorithm lets it.
func (w *world) planTraffic(pattern string) {
	per := float64(worldLimit) / worldWindow.Seconds()
	for at := 0.0; at < w.traffic.Seconds(); {
		load := 2.0
		if pattern == "burst" {
			load = 0.5
			if int(at)%5 == 2 {
				load = 8
			}
		}
		at += w.rand.ExpFloat64() / (load * per)
		n := w.rand.IntN(6)
		if pattern == "skew" && w.rand.Float64() < 0.7 {
			n = 3
		}
		w.planRequest(0, n, at)
	}
	for i := range int(0.92 * per * w.traffic.Seconds()) {
		w.planRequest(1, w.rand.IntN(6), float64(i)/(0.92*per))
	}
	for at := 1.0; at < w.traffic.Seconds()-1; at += worldWindow.Seconds() * 1.12 {
		for range int(0.9 * worldLimit) {
			w.planRequest(2, w.rand.IntN(6), at+2*w.rand.Float64())
		}
	}
}

func (w *world) planRequest(identity, node int, at float64) {
	if at >= w.traffic.Seconds() {
		return
	}
	sent := w.start + int64(at*1e9)
	decided := sent + w.rand.Int64N(int64(2*time.Millisecond))
	done := decided + w.rand.Int64N(int64(2*time.Millisecond))
	w.plan(decided, func() {
		n, key := w.nodes[node], counters.Key(identity)
		var d counters.Decision
		if w.flaw.decide != nil {
			d = w.flaw.decide(n, w.limit, key, w.now+n.ahead)
		} else {
			d = n.table.Take(w.limit, key, 1, w.now+n.ahead)
		}
		w.entries = append(w.entries, record.Entry{Decision: &record.Decision{
			Sent: sent, Done: done, Node: n.id, Region: n.region, Identity: identities[identity], Cost: 1,
			Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining,
		}})
	})
}

// speak sends what changed at a node to all others.
func (w *world) speak(n *simNode) {
	n.audit(w.now)
	n.tick++
	drained := n.table.DrainDirty(w.now + n.ahead)
	f := simFrame{from: n.number, tick: n.tick, sent: w.now, slots: drained.Slots}
	for _, d := range drained.Demand {
		f.rate += d.Rate
	}
	for _, to := range w.nodes {
		if to == n {
			continue
		}
		for range 1 + w.rand.IntN(20)/19 { // one in twenty comes twice
			at := w.arrival(n, to)
			w.plan(at, func() { w.hear(to, f) })
		}
	}
}

// arrival is when a frame that is sent now arrives. One in twenty is lost and sent again.
func (w *world) arrival(from, to *simNode) int64 {
	delay := w.rand.Int64N(int64(2 * time.Millisecond))
	if from.region != to.region {
		delay += int64(30*time.Millisecond) + w.rand.Int64N(int64(20*time.Millisecond))
	}
	if w.rand.IntN(20) == 0 {
		delay += 2 * int64(interval)
	}
	at := w.now
	healed := w.start + int64(cutTo)
	crosses := (from.region == cutRegion) != (to.region == cutRegion)
	if w.cut && crosses && at+delay >= w.start+int64(cutFrom) && at < healed {
		at = healed
	}
	return at + delay
}

func (w *world) hear(n *simNode, f simFrame) {
	slots, heard := f.slots, true
	if w.flaw.frame != nil {
		slots, heard = w.flaw.frame(w, n, f)
	}
	if !heard {
		return
	}
	p := n.peers[f.from]
	if p == nil {
		p = &simPeer{have: make(map[int]int64), asOf: w.start}
		n.peers[f.from] = p
	}
	if f.sent >= p.rateAt {
		p.rate, p.rateAt = f.rate, f.sent
	}
	p.unknown = max(p.unknown, p.rate*seconds(w.now-p.asOf))
	n.table.Merge(slots, w.now+n.ahead)
	for p.have[f.tick] = f.sent; p.have[p.whole+1] != 0; p.whole++ {
		p.asOf = max(p.asOf, p.have[p.whole+1])
	}
}

// audit notes the most that was unseen since the last audit.
func (n *simNode) audit(now int64) {
	sum := 0.0
	for _, p := range n.peers {
		sum += min(worldLimit, max(p.unknown, p.rate*seconds(now-p.asOf)))
		p.unknown = 0
	}
	n.bounds = append(n.bounds, boundAt{now, sum / worldLimit})
}

// bound is the largest of the last window.
func (n *simNode) bound(now int64) float64 {
	n.audit(now)
	worst := 0.0
	for _, b := range n.bounds {
		if now-b.at <= int64(worldWindow)*11/10 {
			worst = max(worst, b.bound)
		}
	}
	return worst
}

func (w *world) observe(n *simNode) {
	o := &record.Observation{
		Sent: w.now - int64(time.Millisecond)/2, Done: w.now + int64(time.Millisecond)/2, Node: n.id, Boot: "1",
		Bound: n.bound(w.now), Members: len(n.peers), Counts: make(map[string]uint64),
	}
	o.Sent = max(o.Sent, w.start)
	for i, name := range identities {
		d := n.table.Take(w.limit, counters.Key(i), 0, w.now+n.ahead)
		o.Counts[name] = d.Limit - d.Remaining
	}
	w.entries = append(w.entries, record.Entry{Observation: o})
}

// judged checks the entries, without the detour through a record.
func judged(t testing.TB, h record.Header, entries []record.Entry) *Report {
	t.Helper()
	tr, err := newTrace(h)
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		tr.add(&entries[i])
	}
	r, err := judge(tr)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// recorded checks the entries as Check does.
func recorded(t testing.TB, h record.Header, entries []record.Entry) (*Report, error) {
	t.Helper()
	var out bytes.Buffer
	w, err := record.NewWriter(&out, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := w.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := record.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	return Check(r)
}
