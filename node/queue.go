package node

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Queues bounds the requests that a node holds back until their turn (queue: true, mode: throttle): those to the
// reverse proxy, and of the Go middleware and interceptors. A request that has no place is denied at once, and not
// charged.
type Queues struct {
	// MaxRequests is how many requests wait at a time, 0 to 1,000,000. Of these and of MaxHeaderBytes a client has its
	// share.
	MaxRequests int `yaml:"max_requests"`
	// MaxHeaderBytes is how large the headers of waiting requests are together, 64 KiB to 64 GiB.
	MaxHeaderBytes Size `yaml:"max_header_bytes"`
}

func (c *Queues) validate(check func(ok bool, format string, args ...any)) {
	check(c.MaxRequests >= 0 && c.MaxRequests <= 1_000_000, "queues.max_requests: %d, want 0 to 1000000", c.MaxRequests)
	check(c.MaxHeaderBytes >= 64<<10 && c.MaxHeaderBytes <= 64<<30, "queues.max_header_bytes: %v, want 64KiB to 64GiB",
		c.MaxHeaderBytes)
}

// deniedAtOnce is what happens where a queue has no room.
const deniedAtOnce = "requests that would wait are denied at once"

// queues hold the requests that wait for their turns. A request waits in the queue of each counter that delays it, and
// goes once its turn has come in all of them.
type queues struct {
	// withdraw takes a request out of the table's queue, see counters.Table.Withdraw.
	withdraw func(*turn)

	// requests that wait, and the bytes of their headers, by source. They are taken and given with mu held.
	requests, headers *limits.Budget

	// mu is held while the table decides on a request that may wait, so that requests join in the order of their turns.
	// The table's locks are taken after it.
	mu    sync.Mutex
	byKey map[pendingKey]*queue
}

// queue is the requests that wait at one counter, in the order of their turns. When one leaves, those behind it move up
// by the time that it would have taken, as in the table. So each holds the time after the one in front, and no request
// that leaves changes more than its neighbours.
type queue struct {
	key         pendingKey
	first, last *turn
	next, end   time.Time // the turns of the first and of the last
	timer       *time.Timer
}

// turn is the place of a request in a queue.
type turn struct {
	request    *heldRequest
	in         *queue // nil: the turn has come, or the request has left
	prev, next *turn
	after      time.Duration // from the turn before it; 0 for the first
	span       time.Duration // what the request takes
	limit      *counters.Limit
	key        counters.Key
	cost       uint64
	shared     bool // a store gave it: turns of other nodes lie between, and others keep theirs when it leaves
}

// heldRequest is a request that waits.
type heldRequest struct {
	turns  []turn
	left   int // turns that have not come
	source netip.Addr
	bytes  int64
	ready  chan struct{} // closed when it may go

	refund func() // gives back what stores of strict rules charged; nil: nothing
}

// newHeld returns a request of a source that may have to wait.
func newHeld(req *Request, source netip.Addr) *heldRequest {
	return &heldRequest{source: source, bytes: int64(req.TargetBytes) + limits.HeaderBytes(req.Header)}
}

// decideHolding is decide for a request that is held back here if a queue delays it. held is nil if none does.
func (n *Node) decideHolding(
	ctx context.Context, p *policy, req *Request, matches []rules.Match, layers []Decision,
) (all []Decision, held *heldRequest, err error) {
	var room [rules.MaxDescriptors]counters.Charge
	q, first, charges := &n.queues, len(layers), room[:len(matches)]
	held = newHeld(req, n.budgets.Source(req.Client))
	q.mu.Lock()
	defer q.mu.Unlock()
	full, why := q.take(held)
	if full != nil {
		for i := range matches {
			matches[i].NoWait()
		}
	}
	n.prepare(req, matches)
	if p.meetsStrict(matches) { // not while others wait for the lock
		func() {
			q.mu.Unlock()
			defer q.mu.Lock()
			layers, held.refund, err = n.decideStrict(ctx, p, req, matches, charges, layers)
		}()
	} else {
		layers = n.decideCharging(p, req, matches, charges, true, layers)
	}
	now, decisions, noPlace := time.Now(), layers[first:], false
	for i := range decisions {
		noPlace = noPlace || matches[i].NoPlace(&charges[i], &decisions[i])
	}
	if noPlace {
		full.Refuse(held.source, why)
	}
	if v := counters.VerdictOf(decisions); err != nil || !v.Allowed || v.Delay == 0 {
		if full == nil {
			q.release(held)
		}
		return layers, nil, err
	}
	held.turns, held.ready = make([]turn, 0, 1), make(chan struct{})
	for i := range charges {
		if ch := &charges[i]; decisions[i].Delay > 0 {
			held.turns = append(held.turns, turn{request: held, limit: ch.Limit, key: ch.Key, cost: ch.Cost,
				span: ch.Limit.Refills(ch.Cost), after: decisions[i].Delay, shared: ch.Decided != nil})
		}
	}
	held.left = len(held.turns)
	for i := range held.turns {
		t := &held.turns[i]
		q.join(t, pendingKey{t.limit.Meter().Rule, t.key}, now.Add(t.after))
	}
	return layers, held, nil
}

// join puts a turn into a queue, behind all earlier ones. Only those that stores gave out may come in another order.
// The lock is held.
func (q *queues) join(t *turn, key pendingKey, at time.Time) {
	in := q.byKey[key]
	if in == nil {
		in = &queue{key: key}
		if q.byKey == nil {
			q.byKey = make(map[pendingKey]*queue)
		}
		q.byKey[key] = in
	}
	before, turns := in.last, in.end // the turn in front, and its time
	for before != nil && turns.After(at) {
		turns = turns.Add(-before.after)
		before = before.prev
	}
	t.in, t.prev, t.after = in, before, 0
	if before == nil {
		in.becomesFirst(t, at, func() { q.advance(in) })
		return
	}
	t.after, t.next, before.next = at.Sub(turns), before.next, t
	if t.next == nil {
		in.last, in.end = t, at
	} else {
		t.next.prev = t
		t.next.after -= t.after
	}
}

// becomesFirst puts a turn in front of all others.
func (in *queue) becomesFirst(t *turn, at time.Time, advance func()) {
	if t.next = in.first; t.next == nil {
		in.last, in.end = t, at
		in.timer = time.AfterFunc(time.Until(at), advance)
	} else {
		t.next.prev, t.next.after = t, in.next.Sub(at)
		in.timer.Reset(time.Until(at))
	}
	in.first, in.next = t, at
}

// advance lets those go whose turn has come.
func (q *queues) advance(in *queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for now := time.Now(); in.first != nil && !in.next.After(now); {
		r := in.first.request
		in.remove(in.first)
		if r.left--; r.left == 0 {
			q.release(r)
			close(r.ready)
		}
	}
	q.settle(in)
}

// leave takes a request out of its queues, unless its turns have come.
func (q *queues) leave(r *heldRequest) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.left == 0 {
		return
	}
	for i := range r.turns {
		t := &r.turns[i]
		in := t.in
		if in == nil {
			continue
		}
		if t.next != nil && !t.shared {
			moves := min(t.span, t.after+t.next.after)
			t.next.after -= moves
			in.end = in.end.Add(-moves)
		}
		in.remove(t)
		q.settle(in)
		q.withdraw(t)
	}
	if r.refund != nil {
		r.refund()
	}
	q.release(r)
}

// take takes a place for a request, or returns the budget that has none, and why. The lock is held.
func (q *queues) take(r *heldRequest) (full *limits.Budget, why limits.Refusal) {
	if why = q.requests.Room(r.source, 1); why != "" {
		return q.requests, why
	}
	if why = q.headers.Room(r.source, r.bytes); why != "" {
		return q.headers, why
	}
	q.requests.Overdraw(r.source, 1)
	q.headers.Overdraw(r.source, r.bytes)
	return nil, ""
}

// release frees the place of a request.
func (q *queues) release(r *heldRequest) {
	q.requests.Give(r.source, 1)
	q.headers.Give(r.source, r.bytes)
}

// settle has the queue wait for its first turn, or drops it if it is empty.
func (q *queues) settle(in *queue) {
	if in.first != nil {
		in.timer.Reset(time.Until(in.next))
	} else if q.byKey[in.key] == in {
		in.timer.Stop()
		delete(q.byKey, in.key)
	}
}

// remove unlinks a turn. The others stay where they are.
func (in *queue) remove(t *turn) {
	switch {
	case t.next == nil:
		in.end = in.end.Add(-t.after)
		in.last = t.prev
	case t.prev == nil:
		in.next = in.next.Add(t.next.after)
		t.next.after, t.next.prev = 0, nil
	default:
		t.next.after += t.after
		t.next.prev = t.prev
	}
	if t.prev == nil {
		in.first = t.next
	} else {
		t.prev.next = t.next
	}
	t.in, t.prev, t.next = nil, nil, nil
}

// mayHold reports whether a request that meets the rules may be delayed.
func mayHold(matches []rules.Match) bool {
	for i := range matches {
		if matches[i].Rule.Queues() {
			return true
		}
	}
	return false
}
