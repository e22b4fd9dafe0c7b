package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/regions"
)

// world is a run under way.
type world struct {
	opt    Options
	limit  *counters.Limit
	limits map[string]*counters.Limit
	rule   string
	now    int64
	start0 int64 // when requests begin to come
	end    int64 // and when no more do
	looked int64 // when it was last looked round
	queue  queue

	nodes  []*node
	boots  int32
	home   map[counters.Origin]*node           // where an origin lives or lived
	tables map[counters.Origin]*counters.Table // of those who live or lived, where there are stores
	stores []*store                            // by region
	net    *network
	ways   []int64 // of a packet, used again and again

	phases, members, flushes *rand.Rand

	keys   []counters.Key // by client
	book   *book
	heals  []*healing
	digest digest
	hooks  hooks
}

// hooks are where tests look on, and break things. None of them is nil.
type hooks struct {
	counts                         func(*counters.Table) gossip.Counts // stands between each replica and its table
	store                          func(regions.Store) regions.Store   // stands between each reconciler and the store of its region
	arrives                        func(*node, []byte) bool            // false: the message vanishes
	drained                        func(*counters.Drained)             // what a node is about to tell
	ticked                         func(*node)
	received                       func(*node, []byte)
	undecoded                      func(*node, error)
	taken                          func(n *node, client int, at int64, allowed bool)
	crashed, restarting, restarted func(*node)
}

func noHooks() hooks {
	return hooks{
		counts: func(t *counters.Table) gossip.Counts { return t }, store: func(s regions.Store) regions.Store { return s },
		arrives: func(*node, []byte) bool { return true }, drained: func(*counters.Drained) {},
		ticked: func(*node) {}, received: func(*node, []byte) {}, undecoded: func(*node, error) {},
		taken: func(*node, int, int64, bool) {}, crashed: func(*node) {}, restarting: func(*node) {}, restarted: func(*node) {},
	}
}

// lead is how long the nodes run before the first request comes: they know each other by then.
const lead = 4 * time.Second

func newWorld(o Options, h hooks) (*world, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	limit, err := newLimit(&o)
	if err != nil {
		return nil, err
	}
	w := &world{
		opt: o, limit: limit, rule: limit.Meter().Rule, limits: map[string]*counters.Limit{limit.Meter().Rule: limit},
		home: make(map[counters.Origin]*node), tables: make(map[counters.Origin]*counters.Table), net: newNetwork(&o),
		phases: o.stream(drawPhases), members: o.stream(drawMembership), flushes: o.stream(drawFlush), hooks: h,
	}
	// Windows are aligned to the epoch; a run begins anywhere in one, unless it is told where.
	w.now = 1_800_000_000*int64(time.Second) + o.stream(drawStart).Int64N(int64(60*time.Second))
	w.start0 = w.now + int64(lead+2*o.WANDelay)
	if o.Start != 0 {
		w.now, w.start0 = o.Start-(w.start0-w.now), o.Start
	}
	w.end = w.start0 + int64(o.Duration)
	w.book = newBook(w)
	for i := range o.clients() {
		w.keys = append(w.keys, clientKey(i))
	}
	w.populate()
	w.schedule()
	w.watchHeals()
	return w, nil
}

// clientKey is the key of a client: hashed, as those of identities are.
func clientKey(client int) counters.Key {
	var d digest
	d.add(uint64(client) + 1)
	return counters.Key(d)
}

// populate starts all nodes; they know each other.
func (w *world) populate() {
	skews := w.opt.stream(drawSkew)
	for region := range w.opt.Regions {
		if w.opt.hasStores() {
			w.stores = append(w.stores, newStore(w, region))
		}
		for range w.opt.Nodes {
			n := &node{place: len(w.nodes), region: region}
			if s := int64(w.opt.Skew); s > 0 {
				n.skew = skews.Int64N(2*s+1) - s
			}
			w.nodes = append(w.nodes, n)
			w.start(n)
		}
	}
	for i, a := range w.nodes {
		for _, b := range w.nodes[:i] {
			w.meet(a, b)
		}
	}
}

// schedule enters the faults.
func (w *world) schedule() {
	at := func(after time.Duration, do func()) { w.after(time.Duration(w.start0-w.now)+after, do) }
	for _, p := range w.opt.Partitions {
		at(p.From, func() { w.partition(p, 1) })
		at(p.Until, func() { w.partition(p, -1) })
		w.heals = append(w.heals, &healing{at: w.start0 + int64(p.Until)})
	}
	for _, f := range w.opt.Pauses {
		at(f.From, func() { w.pause(w.nodes[f.Node], f.Until-f.From) })
	}
	for _, f := range w.opt.Crashes {
		at(f.From, func() { w.crash(w.nodes[f.Node]) })
		at(f.Until, func() { w.restart(w.nodes[f.Node]) })
	}
	for _, f := range w.opt.StoreFaults {
		for _, s := range w.stores {
			if f.Region == 0 || f.Region == s.region+1 {
				s.befall(f, at)
			}
		}
	}
	if len(w.opt.StoreFaults) > 0 {
		at(time.Duration(w.calm()-w.start0)+w.opt.Interval, w.calmStores)
	}
}

// after has something happen after a while.
func (w *world) after(d time.Duration, do func()) { w.later(d, event{do: do}) }

func (w *world) later(d time.Duration, e event) { w.queue.push(w.now+int64(d), e) }

// send lets a message go its way.
func (w *world) send(n *node, m gossip.Message) {
	to := w.home[m.To]
	w.book.sent(w.now, m)
	w.digest.add(uint64(w.now), uint64(n.place)<<32|uint64(to.place))
	w.digest.addBytes(m.Data)
	e := event{kind: packet, node: int32(to.place), from: int32(n.place), data: m.Data}
	if m.Reliable {
		if d, ok := w.net.stream(n.region, to.region); ok {
			e.kind, e.boot = stream, to.boot
			w.later(time.Duration(d), e)
		}
		return
	}
	w.ways = w.net.packet(n.region, to.region, w.ways[:0])
	for _, d := range w.ways {
		w.later(time.Duration(d), e)
	}
}

// request is one of a client's.
func (w *world) request(a arrival) {
	n := w.nodes[a.node]
	if !n.up || !n.ready || n.paused(w.now) {
		w.book.failed(w.now)
		return
	}
	d := w.take(n, a.client)
	w.book.note(a.client, w.now, d.Allowed)
	w.digest.add(uint64(w.now), uint64(a.node)<<1|uint64(a.client)<<32, d.Remaining)
	w.hooks.taken(n, a.client, w.now, d.Allowed)
}

func (w *world) take(n *node, client int) counters.Decision {
	d := n.table.Take(w.limit, w.keys[client], 1, w.clock(n))
	select {
	case <-n.table.Urgent():
		if w.opt.Strategy != Late {
			w.later(time.Duration(max(0, n.replica.FlushAt()-w.clock(n))), event{kind: hasten, node: int32(n.place), boot: n.boot})
		}
	default:
	}
	return d
}

// happen makes the next event happen.
func (w *world) happen() {
	at, _ := w.queue.next()
	e := w.queue.pop()
	w.now = at
	if e.kind == call {
		e.do()
		return
	}
	n := w.nodes[e.node]
	if e.boot != 0 && e.boot != n.boot || !n.up {
		return
	}
	switch e.kind {
	case packet:
		if !w.net.cut(w.nodes[e.from].region, n.region) {
			w.receive(n, e)
		}
		return
	case stream:
		if w.net.both(w.nodes[e.from].region, n.region) {
			w.receive(n, e)
		}
		return
	}
	if n.paused(w.now) {
		w.queue.push(n.pausedUntil, e)
		return
	}
	switch e.kind {
	case tick:
		w.tick(n)
	case audit:
		w.audit(n)
	case flush:
		w.flush(n)
	case hasten:
		w.tellEarly(n)
	case wake:
		w.proceed(n)
	}
}

// runTo lets the world go on until a time.
func (w *world) runTo(end int64) {
	for {
		at, ok := w.queue.next()
		if !ok || at > end {
			break
		}
		w.happen()
	}
	w.now = max(w.now, end)
}

// offer lets the requests come, until none are left.
func (w *world) offer(ctx context.Context, progress func(time.Duration)) error {
	from := newSource(&w.opt)
	for a, ok := from.next(); ok; a, ok = from.next() {
		if err := w.advance(ctx, w.start0+a.after, progress); err != nil {
			return err
		}
		w.request(a)
	}
	return w.advance(ctx, w.end, progress)
}

// advance lets the world go on until a time, and looks round now and then.
func (w *world) advance(ctx context.Context, until int64, progress func(time.Duration)) error {
	for w.looked = max(w.looked, w.start0); until-w.looked >= int64(progressEvery); w.looked += int64(progressEvery) {
		w.runTo(w.looked)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.book.look()
		progress(time.Duration(w.looked - w.start0))
	}
	w.runTo(until)
	return nil
}

// progressEvery is how much simulated time passes between two words of progress.
const progressEvery = 100 * time.Millisecond

// Run simulates. It calls progress, which may be nil, now and then with how much of the duration has passed, and ends with the context's
// error when that ends. A report whose OK is false is no error.
func Run(ctx context.Context, o Options, progress func(time.Duration)) (*Report, error) {
	w, err := newWorld(o, noHooks())
	if err != nil {
		return nil, err
	}
	defer w.close()
	if progress == nil {
		progress = func(time.Duration) {}
	}
	if err := w.offer(ctx, progress); err != nil {
		return nil, err
	}
	agreed := w.settle()
	w.settleStores()
	return w.report(agreed), nil
}
