package strict

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/oracle"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// use is a permit that was used, at a time of the store in microseconds.
type use struct {
	at   int64
	cost uint64
}

// leaseTrial has nodes take leases by the test's clock, use them at any time until they end, give the rest back, and
// take without leases in between.
type leaseTrial struct {
	*clocked
	r     *rand.Rand
	limit *counters.Limit
	shape *shape
	key   counters.Key
	uses  []use
	held  []heldLease
	wait  int64 // of the last denial, microseconds
}

type heldLease struct {
	*grant
	ends int64
}

// However leases are used, every window and every bucket holds at the times of use.
func TestLeasesNeverExceed(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	for seed, done := uint64(0), 0; done < testkit.Tenth(*ops); seed++ {
		for _, a := range algorithms[:5] {
			r := rand.New(rand.NewPCG(seed, uint64(a)))
			m := counters.NewMeter("r", a, pick(r, 500*time.Millisecond, time.Second, 10*time.Second, time.Hour))
			l, err := counters.NewLimit(m, pick[uint64](r, 2, 10, 50, 100, 1000))
			testkit.Must(t, err)
			y, err := shapeOf(l)
			testkit.Must(t, err)
			c.now = start + int64(seed)*1e10 + r.Int64N(1e9)
			p := &leaseTrial{clocked: c, r: r, limit: l, shape: y, key: counters.Key(seed)}
			p.play(100)
			p.check(seed)
			done += 100
		}
	}
}

func (p *leaseTrial) play(n int) {
	lasts := p.shape.lasts().Microseconds()
	for range n {
		switch p.r.IntN(7) {
		case 0:
			p.now += p.r.Int64N(2*lasts + 1)
		case 1:
			p.now += p.r.Int64N(p.limit.Meter().Window.Microseconds() / 5)
		case 2:
			p.now += p.r.Int64N(10)
		case 3, 4: // there is room again
			p.now += p.wait
			p.wait = 0
		}
		p.giveBack()
		p.setClock()
		cost := 1 + p.r.Uint64N(min(5, p.limit.Max()))
		asks := ask(p.limit, p.key, cost)
		if p.r.IntN(3) == 0 {
			d := mustTake(p.T, p.Store, asks)
			if p.wait = d.RetryAfter.Microseconds(); d.Allowed {
				p.uses = append(p.uses, use{p.now, cost})
			}
			continue
		}
		g, ans, err := p.lease(p.Context(), p.shape, &asks[0], cost+p.r.Uint64N(50))
		if err != nil {
			p.Fatalf("%s: %v", describe(p.limit), err)
		}
		if ans.flags&answerAllowed != 0 {
			p.use(g, ans.flags&answerLeased != 0)
		} else {
			p.wait = int64(ans.wait)
		}
	}
}

// use uses a part of a grant, each permit at any time until the grant ends, most of them at its end.
func (p *leaseTrial) use(g *grant, leased bool) {
	g.left = g.total
	// until is by this machine's clock: how long it lasts does not depend on it, but for the call's time.
	ends := g.at
	if leased {
		ends += p.shape.lasts().Microseconds()
		if p.shape.algorithm <= counters.FixedWindow {
			sub := int64(p.shape.a)
			ends = min(ends, g.at-g.at%sub+sub)
		}
		ends-- // until excludes its end
	} else if g.total != g.left {
		p.Fatalf("%d permits of a take", g.total)
	}
	used := g.total
	if leased && p.r.IntN(3) == 0 {
		used = p.r.Uint64N(g.total + 1)
	}
	for range used {
		at := pick(p.r, ends, ends, g.at+p.r.Int64N(ends-g.at+1))
		p.uses = append(p.uses, use{at, 1})
	}
	if g.left -= used; g.left > 0 {
		p.held = append(p.held, heldLease{g, ends + 1 + p.r.Int64N(1000)})
	}
}

// giveBack gives back what is left of leases that have ended, some of them much later.
func (p *leaseTrial) giveBack() {
	for i := len(p.held) - 1; i >= 0; i-- {
		if h := p.held[i]; h.ends <= p.now && p.r.IntN(3) > 0 {
			p.held = slices.Delete(p.held, i, i+1)
			p.setClock()
			u := h.undo()
			if _, _, err := p.run(p.Context(), callRefund, &u.call); err != nil {
				p.Fatal(err)
			}
		}
	}
}

// check plays the uses to the definition of the algorithm.
func (p *leaseTrial) check(seed uint64) {
	slices.SortStableFunc(p.uses, func(a, b use) int { return cmp.Compare(a.at, b.at) })
	m := oracle.NewModel(p.limit)
	for i, u := range p.uses {
		at := u.at * 1000
		m.Charge(p.key, u.cost, at)
		if i+1 < len(p.uses) && p.uses[i+1].at == u.at {
			continue
		}
		if used := m.View(p.key, at); used > p.limit.Max() {
			p.Fatalf("seed %d: %d used under %s, window %v, %v after the start", seed, used, describe(p.limit),
				p.limit.Meter().Window, time.Duration(u.at-start)*time.Microsecond)
		}
	}
}

// A lease ends by the time of the store, counted from when the call was sent, and with its sub-window.
func TestLeaseEnds(t *testing.T) {
	sent := time.Now()
	for _, c := range []struct {
		algorithm counters.Algorithm
		window    time.Duration
		now       int64 // of the store, microseconds
		lasts     time.Duration
	}{
		{counters.FixedWindow, 10 * time.Second, 1_000_000, 100 * time.Millisecond},
		{counters.FixedWindow, 10 * time.Second, 9_999_000, time.Millisecond},
		{counters.FixedWindow, time.Hour, 0, time.Second},
		{counters.SlidingWindow, 100 * time.Second, 9_500_000, 500 * time.Millisecond},
		{counters.SlidingLog, 10 * time.Second, 9_999_000, 100 * time.Millisecond},
		{counters.TokenBucket, 10 * time.Second, 9_999_000, 100 * time.Millisecond},
		{counters.LeakyQueue, 10 * time.Second, 0, 0},
	} {
		y, err := shapeOf(newLimit(t, c.algorithm, 1000, c.window))
		testkit.Must(t, err)
		g := y.grantOf(&call{}, &Ask{}, &answer{flags: answerLeased, wait: 20}, c.now, sent)
		if got := g.until.Sub(sent); got != c.lasts || g.total != 20 {
			t.Errorf("%v per %v at %d: %d permits for %v, want %v", c.algorithm, c.window, c.now, g.total, got, c.lasts)
		}
	}
}

// A key that is asked for once in a while has no lease. A busy one has, and gives back what it does not use.
func TestLeaseLifecycle(t *testing.T) {
	t.Parallel()
	server := regionstest.StartRedis(t)
	s, other := open(t, single(server)), open(t, single(server))
	l := newLimit(t, counters.SlidingWindow, 1000, time.Hour)
	asks := ask(l, 1, 1)
	asks[0].Lease = 20
	peek := func() uint64 { return mustTake(t, other, ask(l, 1, 0)).Remaining }
	mustTake(t, s, asks)
	if left := peek(); left != 999 || s.Stats().Leased != 0 {
		t.Errorf("%d remain after the first request, %d keys leased", left, s.Stats().Leased)
	}
	var receipts []Receipt
	for range 10 {
		ds, receipt, err := s.Take(t.Context(), asks, nil)
		if err != nil || !ds[0].Allowed {
			t.Fatal(ds, err)
		}
		receipts = append(receipts, receipt)
	}
	if st := s.Stats(); peek() != 979 || st.Leased != 1 || st.Local != 9 {
		t.Errorf("%d remain after ten more, want 979; %+v", peek(), st)
	}
	for range 2 { // the second time does nothing
		for _, r := range receipts[:5] {
			s.Refund(r)
		}
	}
	settle(t, s)
	if left := peek(); left != 994 {
		t.Errorf("%d remain after the lease, want 994", left)
	}
	s.Refund(receipts[9]) // the lease is over
	settle(t, s)
	if left := peek(); left != 995 {
		t.Errorf("%d remain after a late refund, want 995", left)
	}
}

// Close gives back what is left.
func TestCloseReturnsLeases(t *testing.T) {
	t.Parallel()
	server := regionstest.StartRedis(t)
	s, other := open(t, single(server)), open(t, single(server))
	l := newLimit(t, counters.TokenBucket, 1000, 24*time.Hour)
	asks := ask(l, 1, 1)
	asks[0].Lease = 500
	for range 3 {
		mustTake(t, s, asks)
	}
	if left := mustTake(t, other, ask(l, 1, 0)).Remaining; left > 499 {
		t.Errorf("%d remain while 500 are leased", left)
	}
	testkit.Must(t, s.Close(t.Context()))
	// The lease was charged as of its end, a second later: that second's refill is lost, less than a token.
	if left := mustTake(t, other, ask(l, 1, 0)).Remaining; left < 996 {
		t.Errorf("%d remain, want 996", left)
	}
}

// A denial is answered locally for a while, for costs as large, with a wait that shrinks.
func TestLocalDenials(t *testing.T) {
	t.Parallel()
	server := regionstest.StartRedis(t)
	s := open(t, single(server))
	l := newLimit(t, counters.FixedWindow, 100, 24*time.Hour)
	asks := ask(l, 1, 97)
	asks[0].Lease = 100
	mustTake(t, s, asks)
	asks[0].Cost = 5
	last := mustTake(t, s, asks)
	calls := s.Stats().Calls
	for range 100 {
		d := mustTake(t, s, asks)
		if d.Allowed || d.RetryAfter > last.RetryAfter || d.RetryAfter <= 0 || d.Remaining != 3 {
			t.Fatalf("%+v after %+v", d, last)
		}
		last = d
	}
	if more := s.Stats().Calls - calls; more > 2 {
		t.Errorf("%d calls for 100 denials", more)
	}
	asks[0].Cost = 3
	if d := mustTake(t, s, asks); !d.Allowed {
		t.Errorf("a smaller cost: %+v", d)
	}
}

// A client that makes up identities does not take more memory for leases than there is.
func TestLeasesAreBounded(t *testing.T) {
	var l leases
	l.init()
	y := &shape{}
	for i := range 10 * leaseShards * maxKeys {
		k := leaseKey{y, counters.Key(i)}
		l.shard(k).key(k)
	}
	n := 0
	for i := range l.shards {
		n += len(l.shards[i].keys) + len(l.shards[i].old)
	}
	if n > 2*leaseShards*maxKeys {
		t.Errorf("%d keys are kept", n)
	}
}
