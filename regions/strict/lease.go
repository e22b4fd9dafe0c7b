package strict

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// A node takes a lease of several permits for a key that is busy, and decides locally until they are used or the lease
// ends. The limit is never exceeded, although permits are used later than they are charged:
//
//   - Window counters know no more of a charge than its sub-window: a lease ends with it.
//   - A log charges a lease at the time of its end.
//   - A bucket charges a lease of g permits that ends after d as debt = max(debt, r*d) + g, if that is at most the
//     capacity B. For times a < b, let L be what is leased in [a-d, a) and used in [a, b], and D what is charged in
//     [a, b]. The first of those leases leaves a debt of at least r*d + its permits, and a refund leaves r*d of what
//     was charged before it, so at the time a the debt is at least r*d + L - r*d = L. Then D <= B - L + r*(b-a): what
//     is used in [a, b] is L + D <= B + r*(b-a).
//
// The end is by the store's clock. The store charged the lease at its time T, after the node sent the call at s: at
// s + x of the node's monotonic clock the store's shows at most T + x, so the lease ends at s + (end - T).
//
// A request may use permits of a lease that ended while it waited for them: it came before the end.
//
// A lease lasts a hundredth of the window, a second at most, so that what a node does not use is soon back. Where an
// answer takes longer, the key has no leases for a while. A denial is answered locally until its end, for as long at
// most: others may give permits back.
const (
	maxLease      = time.Second
	minLease      = time.Millisecond
	leasePart     = 100                    // of a window
	busyWithin    = 100 * time.Millisecond // of the last request: a key is busy
	leaseShards   = 16
	maxKeys       = 4096 // of a shard; twice as many are kept
	sweepEvery    = 20 * time.Millisecond
	maxLeaseBatch = 10_000
	aloneFor      = time.Second // requests go alone after a lease that was over on arrival
)

// lasts is how long a lease of the limit lasts; 0: it has none.
func (y *shape) lasts() time.Duration {
	window := y.window
	if y.full > 0 {
		window = y.full
	}
	d := min(window/leasePart, maxLease)
	if d < minLease || y.algorithm == counters.LeakyQueue || y.denied {
		return 0
	}
	return d.Truncate(time.Microsecond)
}

// leasable reports whether a request of one layer may use a lease.
func leasable(a *Ask) bool {
	return a.Lease > 1 && a.Limit != nil && a.Mode == counters.Enforce && a.Pending == 0 && !a.Overdraw &&
		a.Cost > 0 && a.Cost <= min(a.Lease, a.Limit.Max())
}

// leases are the keys that have leases, or may get some. A key without permits may be forgotten at any time.
type leases struct {
	seed   maphash.Seed
	shards [leaseShards]leaseShard
}

type leaseShard struct {
	sync.Mutex
	keys, old map[leaseKey]*leasedKey // old are those from before the keys became too many
	active    map[leaseKey]*leasedKey // those with permits
}

type leaseKey struct {
	shape *shape
	key   counters.Key
}

// leasedKey is what a node knows of a key.
type leasedKey struct {
	seen   time.Time // when the last request came
	grants []*grant  // with permits
	fetch  *fetch    // the last call for permits that is under way; nil: none
	alone  time.Time // until when requests go alone

	remaining uint64    // when permits were fetched last
	resetAt   time.Time // when the limit is completely available

	denied   uint64 // the cost that was denied; 0: none
	deniedTo time.Time
	retryAt  time.Time
	left     uint64 // what remained
}

// grant are permits of one call.
type grant struct {
	key   leaseKey
	call  *call
	total uint64
	left  uint64
	sent  time.Time
	at    int64     // when it was charged, by the store's clock in microseconds
	until time.Time // requests that come later cannot use it
	back  time.Time // when what is left is given back: later than until, where requests wait for what comes late
	end   time.Time // when its charge has left the window
}

// leaseUse is what one request used of grants. The shard of the key guards it.
type leaseUse struct {
	parts []leasePartUse
}

type leasePartUse struct {
	grant *grant
	n     uint64
}

func (u *leaseUse) take(g *grant, n uint64) {
	g.left -= n
	u.parts = append(u.parts, leasePartUse{g, n})
}

var errClosed = errors.New("it is closed")

// fetch is a call for permits. It does not end with the request that wants them first: others wait for them too.
type fetch struct {
	done  chan struct{}
	until time.Time // who comes later does not wait for it: its lease may be over by then
	// The shard guards:
	room uint64 // permits that it may bring and nobody waits for
	gone bool   // the first request is
	cost uint64 // of the first request
	// Once done is closed:
	err      error
	decision counters.Decision // on the first request
	used     *leaseUse         // by it
}

func (l *leases) init() {
	l.seed = maphash.MakeSeed()
	for i := range l.shards {
		l.shards[i].keys = make(map[leaseKey]*leasedKey)
		l.shards[i].active = make(map[leaseKey]*leasedKey)
	}
}

func (l *leases) shard(k leaseKey) *leaseShard {
	return &l.shards[maphash.Comparable(l.seed, k.key)%leaseShards]
}

// count returns the number of keys with permits.
func (l *leases) count() (n int) {
	for i := range l.shards {
		s := &l.shards[i]
		s.Lock()
		n += len(s.active)
		s.Unlock()
	}
	return n
}

// key returns a key, a new one if it is not known. When there are too many, the older half is forgotten, but for those
// with permits or a call under way.
func (s *leaseShard) key(k leaseKey) *leasedKey {
	if e := s.keys[k]; e != nil {
		return e
	}
	e := s.old[k]
	if e == nil {
		e = s.active[k]
	}
	if e == nil {
		e = &leasedKey{}
	}
	if len(s.keys) >= maxKeys {
		s.old, s.keys = s.keys, make(map[leaseKey]*leasedKey)
	}
	s.keys[k] = e
	return e
}

// takeLeased is Take of a single layer that may use a lease.
func (s *Store) takeLeased(ctx context.Context, a *Ask, dst []counters.Decision) ([]counters.Decision, Receipt, error) {
	y, err := s.shapes.of(a.Limit)
	if err != nil {
		return dst, Receipt{}, err
	}
	if y.lasts() == 0 {
		return s.take(ctx, []Ask{*a}, dst)
	}
	k := leaseKey{y, a.Key}
	shard := s.leases.shard(k)
	now := time.Now()
	shard.Lock()
	e := shard.key(k)
	busy := e.fetch != nil || now.Sub(e.seen) < busyWithin
	e.seen = now
	if d, used, ok := e.local(a, now, now); ok {
		shard.Unlock()
		s.stats.local.Add(1)
		return append(dst, d), Receipt{lease: used}, nil
	}
	if !busy || now.Before(e.alone) {
		shard.Unlock()
		return s.takeAlone(ctx, shard, k, a, dst)
	}
	if s.closed.Load() {
		shard.Unlock()
		return dst, Receipt{}, fmt.Errorf("%w: %w", ErrUnavailable, errClosed)
	}
	f, first := e.fetch, false
	if f == nil || f.room < a.Cost || !now.Before(f.until) {
		f, first = s.begin(shard, k, a, now), true
	} else {
		f.room -= a.Cost
	}
	shard.Unlock()
	waiting, stop := s.patiently(ctx)
	defer stop()
	if err := f.await(waiting); err != nil {
		s.leave(shard, f, a, first)
		return dst, Receipt{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if first {
		return append(dst, f.decision), Receipt{lease: f.used}, nil
	}
	shard.Lock()
	d, used, ok := shard.key(k).local(a, now, time.Now())
	shard.Unlock()
	switch {
	case ok:
		s.stats.local.Add(1)
		return append(dst, d), Receipt{lease: used}, nil
	case !f.decision.Allowed && a.Cost >= f.cost:
		return append(dst, f.decision), Receipt{}, nil
	}
	return s.takeAlone(waiting, shard, k, a, dst) // less was granted
}

// begin calls for permits in the background: as many as a lease has, as most requests cost the same. The caller holds
// the shard.
func (s *Store) begin(shard *leaseShard, k leaseKey, a *Ask, now time.Time) *fetch {
	wanted := max(a.Cost, min(a.Lease, maxLeaseBatch))
	wanted -= wanted % a.Cost
	f := &fetch{done: make(chan struct{}), until: now.Add(k.shape.lasts()), cost: a.Cost, room: wanted - a.Cost}
	shard.key(k).fetch = f
	asked := *a
	s.pending.Add(1)
	s.work.Go(func() {
		s.fetch(shard, k, f, &asked, wanted)
		s.pending.Add(-1)
	})
	return f
}

// leave has a call go on without a request.
func (s *Store) leave(shard *leaseShard, f *fetch, a *Ask, first bool) {
	shard.Lock()
	var used *leaseUse
	if f.room += a.Cost; first {
		f.gone, used = true, f.used
	}
	shard.Unlock()
	s.giveBack(used)
}

// await waits for a call for permits.
func (f *fetch) await(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// giveBack returns what a request used: to its grant while that lasts, else to the store. It does nothing when called
// again.
func (s *Store) giveBack(u *leaseUse) {
	if u == nil || len(u.parts) == 0 {
		return
	}
	k := u.parts[0].grant.key
	shard := s.leases.shard(k)
	shard.Lock()
	defer shard.Unlock()
	now := time.Now()
	for _, p := range u.parts {
		g := p.grant
		if !now.Before(g.back) || s.closed.Load() { // no sweep may come
			s.enqueue(g.undoLate(s.newToken(), p.n))
			continue
		}
		if g.left == 0 {
			e := shard.key(k)
			e.grants = append(e.grants, g)
			shard.active[k] = e
		}
		g.left += p.n
	}
	u.parts = nil
}

// undoLate returns what gives back a part of a grant whose token may be used up: as of the time of its charge. A log
// keeps it: it knows charges by their tokens.
func (g *grant) undoLate(token [8]byte, n uint64) *undo {
	y := g.key.shape
	if y.algorithm == counters.SlidingLog {
		return nil
	}
	late := &grant{key: g.key, call: &call{token: token, keys: g.call.keys}, total: n, left: n, at: g.at, end: g.end}
	return late.undo()
}

// takeAlone takes without a lease, and remembers a denial.
func (s *Store) takeAlone(
	ctx context.Context, shard *leaseShard, k leaseKey, a *Ask, dst []counters.Decision,
) ([]counters.Decision, Receipt, error) {
	dst, receipt, err := s.take(ctx, []Ask{*a}, dst)
	if err == nil && !dst[len(dst)-1].Allowed {
		shard.Lock()
		shard.key(k).deny(k.shape, a.Cost, &dst[len(dst)-1], time.Now())
		shard.Unlock()
	}
	return dst, receipt, err
}

// local decides on a request that came at a time, by permits, or by a denial whose end is known.
func (e *leasedKey) local(a *Ask, came, now time.Time) (d counters.Decision, used *leaseUse, ok bool) {
	var usable uint64
	for _, g := range e.grants {
		if came.Before(g.until) {
			usable += g.left
		}
	}
	if usable < a.Cost { // permits that came back count more than a denial before
		if ok = e.denied > 0 && a.Cost >= e.denied && now.Before(e.deniedTo); ok {
			d = e.decision(a, now)
			d.Remaining, d.RetryAfter = e.left, max(e.retryAt.Sub(now), time.Microsecond)
		}
		return d, nil, ok
	}
	used = &leaseUse{}
	cost := a.Cost
	for _, g := range e.grants {
		if n := min(cost, g.left); n > 0 && came.Before(g.until) {
			cost -= n
			used.take(g, n)
		}
	}
	e.drop()
	d = e.decision(a, now)
	d.Allowed, d.Remaining = true, min(e.remaining+usable-a.Cost, d.Limit)
	return d, used, true
}

func (e *leasedKey) decision(a *Ask, now time.Time) counters.Decision {
	m := a.Limit.Meter()
	return counters.Decision{Rule: m.Rule, Window: m.Window, Limit: a.Limit.Max(),
		ResetAfter: max(e.resetAt.Sub(now), 0)}
}

// deny remembers a denial.
func (e *leasedKey) deny(y *shape, cost uint64, d *counters.Decision, now time.Time) {
	e.denied, e.left, e.retryAt, e.resetAt = cost, d.Remaining, now.Add(d.RetryAfter), now.Add(d.ResetAfter)
	e.deniedTo = now.Add(min(d.RetryAfter, y.lasts()))
}

// fetch calls for permits, and decides on the request that wants them first, unless it has gone.
func (s *Store) fetch(shard *leaseShard, k leaseKey, f *fetch, a *Ask, wanted uint64) {
	g, ans, err := s.lease(s.ctx, k.shape, a, wanted)
	now := time.Now()
	shard.Lock()
	defer shard.Unlock()
	defer close(f.done)
	e := shard.key(k)
	if e.fetch == f {
		e.fetch = nil
	}
	if f.err = err; err != nil {
		return
	}
	d := &f.decision
	ans.decision(a.Limit, a.Mode, d)
	d.Delay = 0
	e.resetAt = now.Add(d.ResetAfter)
	if !d.Allowed {
		e.deny(k.shape, a.Cost, d, now)
		return
	}
	e.denied = 0
	e.remaining = d.Remaining
	if now.Sub(g.sent) >= k.shape.lasts() {
		e.alone = now.Add(aloneFor)
	}
	g.back = g.until
	if late := now.Add(sweepEvery); late.After(g.back) {
		g.back = late
	}
	g.left = min(g.total, wanted) // whatever a hostile server grants
	if !f.gone {
		f.used = &leaseUse{}
		f.used.take(g, a.Cost)
	}
	d.Remaining = min(d.Remaining+g.left, d.Limit)
	switch {
	case g.left == 0:
	case s.closed.Load():
		s.enqueue(g.undo())
	default:
		e.grants = append(e.grants, g)
		shard.active[k] = e
	}
}

// drop forgets grants that are used up. Those that ended with permits left are given back by the sweep.
func (e *leasedKey) drop() {
	kept := e.grants[:0]
	for _, g := range e.grants {
		if g.left > 0 {
			kept = append(kept, g)
		}
	}
	clear(e.grants[len(kept):])
	e.grants = kept
}

// lease calls the script for permits, and again with another token if the answer was lost, while the patience lasts.
func (s *Store) lease(ctx context.Context, y *shape, a *Ask, wanted uint64) (*grant, answer, error) {
	ctx, stop := s.patiently(ctx)
	defer stop()
	for {
		c := &call{token: s.newToken(), shapes: []*shape{y}, at: []int{0}, nth: []byte{0}}
		state, tokens := y.names(a.Key)
		c.keys = []string{state, tokens}
		asked := Ask{Charge: counters.Charge{Limit: a.Limit, Key: a.Key, Cost: a.Cost, Pending: wanted},
			Lease: a.Lease}
		c.layers = [][]byte{appendLasts(y.appendLayer(nil, &asked, counters.Enforce, 0, 0), y.lasts())}
		started := time.Now()
		now, answers, err := s.run(ctx, callLease, c)
		if err == nil {
			return y.grantOf(c, a, &answers[0], now, started), answers[0], nil
		}
		if errors.Is(err, errSent) {
			asked.Cost = wanted
			s.enqueue(s.undoAll([]Ask{asked}, c, started))
		}
		if ctx.Err() != nil || !errors.Is(err, errSent) {
			return nil, answer{}, err
		}
		s.stats.retried.Add(1)
	}
}

// grantOf returns what the script granted.
func (y *shape) grantOf(c *call, a *Ask, ans *answer, now int64, started time.Time) *grant {
	lasts := y.lasts()
	if y.algorithm <= counters.FixedWindow {
		sub := int64(y.a)
		lasts = min(lasts, time.Duration(sub-now%sub)*time.Microsecond)
	}
	total := max(a.Cost, min(uint64(max(ans.wait, 0)), maxLeaseBatch))
	g := &grant{key: leaseKey{y, a.Key}, call: c, total: total, sent: started, at: now,
		until: started.Add(lasts), end: started.Add(max(y.window, y.full))}
	if ans.flags&answerLeased == 0 {
		g.until = started
	}
	return g
}

// undo returns what gives the permits back that are left.
func (g *grant) undo() *undo {
	y := g.key.shape
	at := g.at
	if y.algorithm == counters.SlidingLog {
		at = 0 // the log knows
	}
	back := *y
	back.max = g.left
	layer := back.appendLayer(nil, &Ask{Charge: counters.Charge{Cost: g.total}}, counters.Enforce, 0, at)
	layer = appendLasts(layer, y.lasts())
	return &undo{call: call{token: g.call.token, keys: g.call.keys, layers: [][]byte{layer}, at: []int{0},
		shapes: []*shape{y}, nth: []byte{0}}, until: g.end}
}

// runLeases gives back what is left of leases that have ended.
func (s *Store) runLeases() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.sweepLeases(time.Now())
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *Store) returnAll() { s.sweepLeases(time.Now().Add(2 * maxLease)) }

func (s *Store) sweepLeases(now time.Time) {
	for i := range s.leases.shards {
		shard := &s.leases.shards[i]
		shard.Lock()
		for k, e := range shard.active {
			kept := e.grants[:0]
			for _, g := range e.grants {
				switch {
				case now.Before(g.back):
					kept = append(kept, g)
				case g.left > 0:
					s.enqueue(g.undo())
				}
			}
			clear(e.grants[len(kept):])
			if e.grants = kept; len(kept) == 0 {
				delete(shard.active, k)
			}
		}
		shard.Unlock()
	}
}
