package httpapi

import (
	"context"
	"hash/maphash"
	"net/http"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

const (
	// cachedFor is the lifetime of a request_id.
	cachedFor = time.Minute
	// maxCached caps the cache, in bytes: enough for some 2,500 checks of one layer a second. Above it the oldest are
	// evicted within their minute, which is counted (Options.Forgotten) and logged.
	maxCached = 32 << 20
	// cachedOverhead is about what an entry takes beside its layers: its place in the map and in the order, in bytes.
	cachedOverhead = 128
)

// idempotencyCache holds the decisions on checks and reports with a request_id, so that each is charged once. A retry
// of what was admitted gets the same decisions. What was denied is decided anew, as its wait may be over; layers that
// charged the denial are not charged again. The cache is safe for concurrent use.
type idempotencyCache struct {
	seed     maphash.Seed
	maxBytes int

	mu       sync.Mutex
	entries  map[uint64]cached        // by the hash of the request_id
	deciding map[uint64]chan struct{} // likewise: closed once the decision is made
	order    []added                  // the oldest first; of an entry that was added twice, the last counts
	bytes    int
}

// cached is the hash of a request, the decisions on it, and when it came first.
type cached struct {
	request uint64
	layers  []counters.Decision
	at      time.Time
}

// added is when an entry was added.
type added struct {
	id uint64
	at time.Time
}

func newIdempotencyCache() *idempotencyCache {
	return &idempotencyCache{seed: maphash.MakeSeed(), maxBytes: maxCached, entries: make(map[uint64]cached),
		deciding: make(map[uint64]chan struct{})}
}

func (e *cached) bytes() int {
	return cachedOverhead + len(e.layers)*int(unsafe.Sizeof(counters.Decision{}))
}

// evict drops entries that are over a minute old, then the oldest while the cache is above its cap. It drops all where
// the clock was set back by over a minute. It returns how many it dropped early. The lock is held.
func (c *idempotencyCache) evict(now time.Time) (early int) {
	if n := len(c.order); n > 0 && c.order[n-1].at.Sub(now) > cachedFor {
		clear(c.entries)
		c.order, c.bytes = nil, 0
	}
	for ; len(c.order) > 0; c.order = c.order[1:] {
		oldest := c.entries[c.order[0].id]
		if !oldest.at.Equal(c.order[0].at) {
			continue
		}
		if now.Sub(oldest.at) <= cachedFor {
			if c.bytes <= c.maxBytes {
				break
			}
			early++
		}
		c.bytes -= oldest.bytes()
		delete(c.entries, c.order[0].id)
	}
	return early
}

// add caches the decisions on a request_id, in place of those before. A denial that charges nothing more does not last
// longer than the one before. The lock is held.
func (c *idempotencyCache) add(id uint64, e cached) {
	before, again := c.entries[id]
	if again {
		c.bytes -= before.bytes()
		charges := counters.VerdictOf(e.layers).Allowed
		for i := range min(len(e.layers), len(before.layers)) {
			charges = charges || e.layers[i].Charged
			e.layers[i].Charged = e.layers[i].Charged || before.layers[i].Charged
		}
		if again = !charges; again {
			e.at = before.at
		}
	}
	if !again {
		c.order = append(c.order, added{id, e.at})
	}
	c.entries[id] = e
	c.bytes += e.bytes()
}

// hash returns the hash of a request. Each part has its length in it, which keeps it apart from the next.
func (c *idempotencyCache) hash(req *rules.Request, report bool) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	maphash.WriteComparable(&h, [...]string{req.Domain, req.Rule, req.Identity})
	maphash.WriteComparable(&h, req.Cost)
	maphash.WriteComparable(&h, [...]bool{req.Peek, report})
	if r := req.Response; r != nil {
		maphash.WriteComparable(&h, [...]uint64{uint64(r.Status), r.Bytes, uint64(r.Duration), r.Cost})
	}
	for _, entries := range req.Descriptors {
		maphash.WriteComparable(&h, len(entries))
		for _, e := range entries {
			maphash.WriteComparable(&h, e)
		}
	}
	return h.Sum64()
}

// askOnce is ask, unless the request_id was admitted before. Of requests that race, one is decided; the others wait for
// it. No lock is held meanwhile: a decision may take a round trip.
func (a *api) askOnce(r *http.Request, s *scratch) (v counters.Verdict, err error) {
	c := a.seen
	id, request := maphash.String(c.seed, s.requestID), c.hash(&s.req, s.report)
	if err := c.lockFor(r.Context(), id); err != nil {
		return v, err
	}
	defer c.mu.Unlock()
	now := a.opt.Now()
	if n := c.evict(now); n > 0 {
		a.reportEarly(n, now)
	}
	e, again := c.entries[id]
	if again {
		if e.request != request {
			return v, refusef(http.StatusConflict, "request_id %.40q was another check's, or another "+
				"report's, within the last minutes: give each its own", s.requestID)
		}
		if v = counters.VerdictOf(e.layers); v.Allowed {
			s.layers = append(s.layers[:0], e.layers...)
			return v, nil
		}
		s.chargeRest(e.layers)
	}
	decided, done := make(chan struct{}), false
	c.deciding[id] = decided
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.deciding, id)
		close(decided)
		if done && err == nil {
			c.add(id, cached{request, slices.Clone(s.layers), now})
		}
	}()
	v, err = a.ask(r, s, s.report && !again)
	done = true // it has not panicked
	return v, err
}

// chargeRest has the request charge only the layers that were not charged when it was denied. A report was charged.
func (s *scratch) chargeRest(before []counters.Decision) {
	r, cost := &s.req, s.req.EffectiveCost()
	if s.report {
		r.Peek, r.Response = true, nil
		return
	}
	for i := range min(len(before), max(len(r.Descriptors), 1)) {
		switch {
		case !before[i].Charged:
			continue
		case r.Rule != "":
			r.Peek = true
			return
		case r.Asks == nil:
			r.Asks = make([]rules.Ask, len(r.Descriptors))
			for j := range r.Asks {
				r.Asks[j].Cost = cost
			}
		}
		r.Asks[i].Cost = 0
	}
}

// lockFor locks the cache once nobody decides on the request_id any more. The error is ctx's, and nothing is locked.
func (c *idempotencyCache) lockFor(ctx context.Context, id uint64) error {
	for {
		c.mu.Lock()
		decided := c.deciding[id]
		if decided == nil {
			return nil
		}
		c.mu.Unlock()
		select {
		case <-decided:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reportEarly counts and logs entries that were evicted within their minute. The cache's lock is held.
func (a *api) reportEarly(n int, now time.Time) {
	if a.opt.Forgotten != nil {
		a.opt.Forgotten.Add(uint64(n))
	}
	if a.early.Due(now) {
		a.opt.Logger.Warn("more checks with a request_id come than the node remembers for a minute: it charges late "+
			"retries", "remembered", len(a.seen.entries), "bytes", a.seen.maxBytes)
	}
}
