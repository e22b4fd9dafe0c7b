package rowtable_test

import (
	"slices"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/counters/internal/rowtable"
)

// request is a request of several layers to both tables. decided are the decisions that were made elsewhere.
type request struct {
	old []counters.Charge
	new []rowtable.Charge
}

// takeAll asks both for a request of several layers. Some layers are decided elsewhere: then it asks first, and takes
// some steps later.
func (p *pair) takeAll() {
	if p.asked != nil && p.IntN(2) == 0 {
		r := p.asked
		p.asked = nil
		for i := range r.old {
			if r.old[i].Decided != nil {
				p.decide(r, i, p.IntN(4) > 0)
			}
		}
		p.compare(r, p.old.TakeAll(r.old, p.now, nil), p.new.TakeAll(r.new, p.now, nil))
		return
	}
	r := p.request()
	elsewhere := p.IntN(3) == 0
	for i := range r.old {
		if l := r.old[i].Limit; elsewhere && l != nil && !l.Tallies() && !r.lends(i) && p.IntN(2) == 0 {
			p.decide(r, i, true)
			r.old[i].Counts = p.IntN(2) == 0
			r.new[i].Counts = r.old[i].Counts
		}
	}
	if !elsewhere || slices.ContainsFunc(r.old, func(ch counters.Charge) bool {
		return ch.Limit != nil && ch.Limit.Tallies()
	}) {
		p.compare(r, p.old.TakeAll(r.old, p.now, nil), p.new.TakeAll(r.new, p.now, nil))
		return
	}
	want, got := p.old.Ask(r.old, p.now, nil), p.new.Ask(r.new, p.now, nil)
	p.compare(r, want, got)
	if !slices.ContainsFunc(want, func(d counters.Decision) bool { return !d.Allowed }) {
		p.asked = r
	}
}

// decide sets the decision that was made elsewhere on a layer.
func (p *pair) decide(r *request, i int, allowed bool) {
	d := counters.Decision{Allowed: allowed, Remaining: p.Uint64N(100)}
	if !allowed {
		d.RetryAfter = 1 + 1000
	}
	got := p.decision(d)
	r.old[i].Decided, r.new[i].Decided = &d, &got
}

// lends reports whether a layer is the lender of another one.
func (r *request) lends(i int) bool {
	return slices.ContainsFunc(r.old, func(ch counters.Charge) bool { return int(ch.Lender) == i+1 })
}

// has reports whether a layer counts a key of a meter. The new table records the demand of all layers of a request
// before it decides on one, so what it knows to be asked for then is more by those layers.
func (r *request) has(l limits, key uint64) bool {
	return slices.ContainsFunc(r.new, func(ch rowtable.Charge) bool {
		return ch.Limit != nil && ch.Limit.ID == l.new.ID && ch.Key == key
	})
}

// request returns layers of any modes, some of the same key.
func (p *pair) request() *request {
	r := new(request)
	calm := p.IntN(3) == 0 // all enforced
	key := p.key()
	for range 1 + p.IntN([]int{3, 3, 6}[p.IntN(3)]) {
		l := p.limit()
		if p.IntN(3) == 0 {
			key = p.key()
		}
		if p.shares && r.has(l, key) {
			continue
		}
		ch := counters.Charge{Limit: l.old, Key: counters.Key(key), Cost: p.cost(l)}
		now := rowtable.Charge{Limit: l.new, Key: key, Cost: ch.Cost, Ban: l.banOf(key)}
		if p.IntN(10) == 0 {
			ch.Limit, now.Limit = nil, nil
		}
		if !calm {
			ch.Mode = counters.Mode(p.IntN(6))
			ch.Each, ch.Overdraw = p.IntN(6) == 0, p.IntN(6) == 0
			if p.IntN(6) == 0 {
				ch.Pending = p.Uint64N(1 + l.old.Max()/2)
			}
			now.Mode, now.Each, now.Overdraw, now.Pending = rowtable.Mode(ch.Mode), ch.Each, ch.Overdraw, ch.Pending
		}
		r.old, r.new = append(r.old, ch), append(r.new, now)
	}
	for i := range r.old {
		if r.old[i].Mode != counters.Elastic || p.IntN(4) == 0 {
			continue
		}
		switch j := p.IntN(len(r.old)); {
		case p.IntN(5) == 0:
			r.old[i].Lender = counters.Idle
		case r.old[j].Mode != counters.Elastic:
			r.old[i].Lender = uint8(j + 1)
		}
		r.new[i].Lender = r.old[i].Lender
	}
	return r
}

func (p *pair) compare(r *request, want []counters.Decision, got []rowtable.Decision) {
	wanted, agreed := make([]rowtable.Decision, len(want)), true
	for i := range want {
		wanted[i] = p.decision(want[i])
		agreed = agreed && p.agree(r.new[i].Limit, got[i], wanted[i])
	}
	if !agreed {
		for i := range wanted {
			l := r.old[i].Limit
			var c counters.LimitConfig
			if l != nil {
				c = l.Config()
			}
			if got[i] == wanted[i] {
				continue
			}
			p.Logf("layer %d: %+v, its limit\n\t%+v:\n\t%+v, want\n\t%+v", i, r.new[i], c, got[i], wanted[i])
		}
		p.Fatalf("seed %d, step %d, at %d", p.seed, p.n, p.now)
	}
}

// report charges answered requests.
func (p *pair) report() {
	r := p.request()
	p.old.Report(r.old, p.now)
	p.new.Report(r.new, p.now)
}

// withdraw takes a request out of a queue.
func (p *pair) withdraw() {
	l, key := p.limit(), p.key()
	cost := p.cost(l)
	p.old.Withdraw(l.old, counters.Key(key), cost, p.now)
	p.new.Withdraw(l.new, key, cost, p.now)
}

func (p *pair) view() {
	l, key := p.limit(), p.key()
	want, got := p.old.View(l.old, counters.Key(key), p.now), p.new.View(l.new, key, p.now)
	if got != want {
		p.Fatalf("seed %d, step %d: view %d of %+v, want %d", p.seed, p.n, got, l.meter, want)
	}
}
