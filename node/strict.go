package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/regions/strict"
)

// A request may meet rules that stores decide on which nodes share, and rules that this node's table decides on. It is
// charged in all of its layers or in none:
//
//	table.Ask      its own layers, without a charge: what is denied or banned here never reaches a store
//	store.take     the layers of each home, the own region's first; a denial gives back what others have charged
//	table.TakeAll  charges the table's layers, and adopts the stores' decisions; a denial gives back their charges
//
// A store may take as long as its timeout: no lock is held meanwhile.

// sharedStore decides on strict rules. It is safe for concurrent use.
type sharedStore interface {
	// take is strict.Store.Take; refund gives back what was charged, and does not wait.
	take(ctx context.Context, asks []strict.Ask) (decisions []Decision, refund func(), err error)
	Report(ctx context.Context, asks []strict.Ask) error
	Stats() strict.Stats
	Close(ctx context.Context) error
}

// redisStore is the sharedStore in a Redis.
type redisStore struct{ *strict.Store }

func (s redisStore) take(ctx context.Context, asks []strict.Ask) ([]Decision, func(), error) {
	decisions, receipt, err := s.Take(ctx, asks, make([]Decision, 0, len(asks)))
	if err != nil {
		return nil, nil, err
	}
	return decisions, func() { s.Refund(receipt) }, nil
}

// home is the store of the strict rules of a home region.
type home struct {
	region string
	store  sharedStore // nil: the node does not know it

	away       atomic.Bool   // the last answer was a failure
	answeredAt atomic.Int64  // when the last call began that was answered, by the node's clock
	unreported atomic.Uint64 // charges of responses that were lost
	fallbacks  atomic.Uint64 // requests that on_failure decided on
	passed     atomic.Uint64 // of these, those that passed as a rule's own on_failure is open or local
	passedThen atomic.Uint64 // passed, when the store went away
}

// homes are the stores of strict rules, by their home regions. They are opened when rules need them.
type homes struct {
	known map[string]strict.Config // nil: the node has ended
	open  map[string]*home
}

// findHomes reads how the stores of strict rules are reached.
func (n *Node) findHomes() error {
	n.homes = homes{make(map[string]strict.Config), make(map[string]*home)}
	for _, region := range n.cfg.strictRegions() {
		r, setting, _ := n.cfg.strictRedis(region)
		client, err := r.Server(setting + ".")
		if err != nil {
			return err
		}
		n.homes.known[region] = strict.Config{Redis: client, MinTimeout: n.cfg.Strict.MinTimeout,
			MaxTimeout: n.cfg.Strict.MaxTimeout, OnCall: n.monitor.Latencies.StrictCall(region),
			Log: n.log.With("home_region", region)}
	}
	return nil
}

// openHomes opens the stores that rules need and that are not open yet, and returns all that are, and a home without a
// store for each region that the node does not know but rules need. limitsMu is held.
func (n *Node) openHomes(set *rules.Set) map[string]*home {
	if n.homes.known == nil {
		return nil
	}
	unknown := make(map[string]*home)
	for _, r := range set.Rules() {
		region := r.Home(n.cfg.Region)
		if !r.Strict || r.Limit == nil || n.homes.open[region] != nil {
			continue
		}
		cfg, known := n.homes.known[region]
		if !known {
			unknown[region] = &home{region: region}
			continue
		}
		store, err := strict.Open(cfg)
		if err != nil { // the configuration was valid
			n.log.Error("the store of strict rules cannot be opened", "home_region", region, "error", err)
			unknown[region] = &home{region: region}
			continue
		}
		n.homes.open[region] = &home{region: region, store: redisStore{store}}
	}
	all := maps.Clone(n.homes.open)
	maps.Copy(all, unknown)
	return all
}

// closeHomes gives back what the node has leased, and closes the stores.
func (n *Node) closeHomes() {
	n.limitsMu.Lock()
	defer n.limitsMu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for region, h := range n.homes.open {
		if err := h.store.Close(ctx); err != nil {
			n.log.Warn("what strict rules charged could not be given back", "home_region", region, "error", err)
		}
	}
	n.homes = homes{}
}

// decides reports whether the store does: the node knows it, and it answered when it was asked last.
func (h *home) decides() bool { return h.store != nil && !h.away.Load() }

// failed notes that the store did not answer a call that began at a time, and logs that it is away.
func (h *home) failed(n *Node, began int64, err error) {
	if began >= h.answeredAt.Load() && !h.away.Swap(true) {
		h.passedThen.Store(h.passed.Load())
		n.log.Warn("the store of strict rules does not answer: on_failure decides", "home_region", h.region,
			"error", err)
	}
}

// answered notes that the store answered.
func (h *home) answered(n *Node, began int64) {
	h.answeredAt.Store(began)
	if h.away.Load() && h.away.Swap(false) {
		n.log.Info("the store of strict rules answers again", "home_region", h.region, "passed_without_it",
			h.passed.Load()-h.passedThen.Load())
	}
}

// unknownHome stands for the stores that the node does not know.
var unknownHome = &home{}

// homeOf returns the store that decides on a rule of the policy.
func (n *Node) homeOf(p *policy, r *rules.Rule) *home {
	return cmp.Or(p.homes[r.Home(n.cfg.Region)], unknownHome)
}

// undecided stands for a decision that is still to be made.
var undecided = &Decision{Allowed: true}

// strictRequest is a request with strict layers while it is decided on.
type strictRequest struct {
	node    *Node
	policy  *policy
	req     *Request
	matches []rules.Match
	charges []counters.Charge
	now     int64
	homes   []*home // of the layers that a store is still to decide on; nil: the table decides, or all is decided
	charged []bool  // the layers that a store has admitted, together with its others
	without []*home // stores that did not answer, and have layers that are open or local
}

// meetsStrict reports whether a store decides on a layer of the request.
func (p *policy) meetsStrict(matches []rules.Match) bool {
	return p.strict != nil && slices.ContainsFunc(matches, func(m rules.Match) bool {
		return m.Rule != nil && m.Rule.Strict
	})
}

// decideStrict is decideCharging of a request with strict layers. refund, unless nil, gives back what stores charged.
// The error is ctx's, if that ended meanwhile: nothing is charged then.
func (n *Node) decideStrict(
	ctx context.Context, p *policy, req *Request, matches []rules.Match, charges []counters.Charge, layers []Decision,
) (all []Decision, refund func(), err error) {
	// Copies: what is here stays on the stack of those whose requests meet no strict rule.
	own := *req
	s := strictRequest{node: n, policy: p, req: &own, now: n.clock.Now(),
		matches: slices.Clone(matches), charges: make([]counters.Charge, len(matches)),
		homes: make([]*home, len(matches)), charged: make([]bool, len(matches))}
	first := len(layers)
	var refunds []func()
	n.charge(s.req, s.matches, s.now, s.charges)
	for i := range s.matches {
		if m := &s.matches[i]; m.Strict(&s.charges[i]) {
			s.homes[i], s.charges[i].Decided = n.homeOf(p, m.Rule), undecided
		}
	}
	layers = n.table.Ask(s.charges, s.now, layers)
	if counters.VerdictOf(layers[first:]).Allowed {
		if refunds, err = s.askHomes(ctx, layers[first:]); err != nil {
			callAll(refunds)
			return layers[:first], nil, err
		}
		layers = n.table.TakeAll(s.charges, n.clock.Now(), layers[:first]) // a store may have taken its time
	}
	if !counters.VerdictOf(layers[first:]).Allowed {
		callAll(refunds)
		refunds = nil
		s.undo(layers[first:])
		s.overdraw(ctx)
	}
	s.conclude(layers[first:])
	if counters.VerdictOf(layers[first:]).Allowed {
		for _, h := range s.without {
			h.passed.Add(1)
		}
	}
	n.count(p, s.req, s.matches, s.charges, layers[first:])
	copy(charges, s.charges)
	if len(refunds) == 0 {
		return layers, nil, nil
	}
	return layers, func() { callAll(refunds) }, nil
}

func callAll(funcs []func()) {
	for _, f := range funcs {
		f()
	}
}

// askHomes asks the stores, one after the other, until one denies the request. refunds give back what others charged.
func (s *strictRequest) askHomes(ctx context.Context, asked []Decision) (refunds []func(), err error) {
	for i := range asked {
		if asked[i].Banned { // whatever its mode makes of that
			s.homes[i] = nil
		}
	}
	for h := s.next(); h != nil; h = s.next() {
		refund, admits, err := s.ask(ctx, h)
		if refund != nil {
			refunds = append(refunds, refund)
		}
		if err != nil || !admits {
			return refunds, err
		}
	}
	return refunds, nil
}

// next returns the store to ask next, nil for none: that of the own region is the nearest.
func (s *strictRequest) next() (next *home) {
	for _, h := range s.homes {
		if h != nil && h.region == s.node.cfg.Region {
			return h
		}
		next = cmp.Or(next, h)
	}
	return next
}

// ask asks one store for all of its layers. refund, unless nil, gives back what it charged. admits is false if a layer
// denies the request.
func (s *strictRequest) ask(ctx context.Context, h *home) (refund func(), admits bool, err error) {
	decisions, refund, err := h.take(ctx, s.node, s.asksOf(h))
	if ctx.Err() != nil { // who asked has gone
		return refund, false, ctx.Err()
	}
	if err != nil {
		return nil, s.fail(h), nil
	}
	admits = counters.VerdictOf(decisions).Allowed
	for i := range s.homes {
		if s.homes[i] == h {
			s.homes[i], s.charges[i].Decided, s.charges[i].Counts = nil, &decisions[0],
				s.matches[i].Rule.WithoutStore(s.req.OnFailure) == rules.FailLocal
			s.charged[i] = admits
			decisions = decisions[1:]
		}
	}
	if !admits { // nothing is charged but what counts all the same
		return nil, false, nil
	}
	return refund, true, nil
}

// asksOf returns the layers that a store decides on.
func (s *strictRequest) asksOf(h *home) []strict.Ask {
	asks := make([]strict.Ask, 0, len(s.homes))
	for i := range s.homes {
		if s.homes[i] == h {
			c := s.charges[i]
			c.Decided = nil
			asks = append(asks, strict.Ask{Charge: c, Lease: s.matches[i].Rule.Lease})
		}
	}
	return asks
}

// take asks the store, and notes whether it answers.
func (h *home) take(ctx context.Context, n *Node, asks []strict.Ask) (ds []Decision, refund func(), err error) {
	if h.store == nil {
		return nil, nil, strict.ErrUnavailable
	}
	began := n.clock.Now()
	ds, refund, err = h.store.take(ctx, asks)
	switch {
	case err == nil:
		h.answered(n, began)
	case ctx.Err() == nil:
		h.failed(n, began, err)
	}
	return ds, refund, err
}

// fail has the layers of a store that cannot decide follow their on_failure. admits is false if one denies for that.
func (s *strictRequest) fail(h *home) (admits bool) {
	n := s.node
	h.fallbacks.Add(1)
	admits, opens := true, false
	for i := range s.homes {
		if s.homes[i] != h {
			continue
		}
		m := &s.matches[i]
		m.Fail(rules.CutOff, s.req.OnFailure, n.cfg.OnFailure)
		opens = opens || m.Rule.WithoutStore(s.req.OnFailure) != rules.FailClosed
		s.homes[i] = nil
		n.chargeLayer(s.req, m, s.now, &s.charges[i])
		c := &s.charges[i]
		admits = admits && (c.Mode == counters.Shadow || c.Limit == nil || c.Limit.Max() > 0)
	}
	if opens {
		s.without = append(s.without, h)
	}
	return admits
}

// undo has the decisions of stores say that what they charged for a denied request was given back.
func (s *strictRequest) undo(layers []Decision) {
	for i := range layers {
		if d := &layers[i]; s.charged[i] && !d.Waived {
			d.Remaining = min(d.Remaining+s.charges[i].Cost, d.Limit)
		}
	}
}

// overdraw charges the strict layers of a denied request that counts all the same, unless their stores have.
func (s *strictRequest) overdraw(ctx context.Context) {
	charges := slices.Clone(s.charges)
	overdrawn := false
	for i := range charges {
		if c := &charges[i]; c.Limit != nil && c.Overdraw && (s.homes[i] != nil || s.charged[i]) {
			overdrawn = true
		} else {
			c.Limit = nil
		}
	}
	if overdrawn {
		s.node.reportStrict(ctx, s.policy, s.matches, charges)
	}
}

// conclude has layers that no store was asked for, as others denied the request, report nothing; and those that were
// let pass unasked, that their store has failed.
func (s *strictRequest) conclude(layers []Decision) {
	for i := range layers {
		switch c, d := &s.charges[i], &layers[i]; {
		case s.homes[i] != nil && !d.Banned:
			*d, c.Limit = Decision{Allowed: true}, nil
		case s.matches[i].FailsOpen() && d.Allowed:
			d.Waived = true
		}
	}
}

// reportStrict charges the strict layers among the charges after the fact.
func (n *Node) reportStrict(ctx context.Context, p *policy, matches []rules.Match, charges []counters.Charge) {
	asks := make(map[*home][]strict.Ask)
	for i := range charges {
		if c := &charges[i]; matches[i].Strict(c) && c.Cost > 0 {
			h := n.homeOf(p, matches[i].Rule)
			c := *c
			c.Decided = nil
			asks[h] = append(asks[h], strict.Ask{Charge: c})
		}
	}
	for h, asks := range asks {
		err := error(strict.ErrUnavailable)
		if h.store != nil {
			err = h.store.Report(context.WithoutCancel(ctx), asks) // who has gone is charged all the same
		}
		if err != nil {
			h.unreported.Add(uint64(len(asks)))
		}
	}
}

// awayHomes says which stores of strict rules are away, or not known.
func (n *Node) awayHomes() (reasons []string) {
	all := n.policy.Load().homes
	for _, region := range slices.Sorted(maps.Keys(all)) {
		if h := all[region]; !h.decides() {
			what := "away"
			if h.store == nil {
				what = "not known"
			}
			reasons = append(reasons, fmt.Sprintf("the store of strict rules of region %s is %s: on_failure decides",
				region, what))
		}
	}
	return reasons
}
