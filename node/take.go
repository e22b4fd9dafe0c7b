package node

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/status"
)

// Take decides on a request. It returns the decision of the layer that governs: of those that denied, the one with the
// longest wait, else the one with the smallest part of its limit left. A request that no limit matches is allowed, by
// no rule. An error means that the request itself is wrong: rules.ErrUnknownRule, rules.ErrInvalidRequest; or that ctx
// ended while the store of a strict rule was asked: then nothing is charged.
func (n *Node) Take(ctx context.Context, req Request) (Decision, error) {
	var room [4]Decision
	layers, err := n.Decide(ctx, &req, room[:0])
	if err != nil {
		return Decision{}, err
	}
	v := counters.VerdictOf(layers)
	if v.Governing.Rule == "" {
		return Decision{Allowed: true}, nil
	}
	d := v.Governing
	d.Delay, d.Degraded = v.Delay, v.Degraded
	return d, nil
}

// Decide appends to layers the decision of each layer of the request, in order, and of each parent of an elastic rule.
// The request is allowed if and only if all of them are: it is charged in all layers or in none, unless their rules say
// otherwise. Errors are those of Take.
func (n *Node) Decide(ctx context.Context, req *Request, layers []Decision) ([]Decision, error) {
	return n.library.Decide(ctx, req, layers)
}

// setDomain sets the domain of descriptors without one if the rules have only one.
func (n *Node) setDomain(req *Request) {
	if req.Domain == "" && len(req.Descriptors) > 0 {
		if domains := n.policy.Load().set.Domains(); len(domains) == 1 {
			req.Domain = domains[0]
		}
	}
}

// DecideMet is Decide that also writes the rules of the first len(met) layers to met, nil for a layer without one.
// Rules are shared and must not be written to.
func (n *Node) DecideMet(ctx context.Context, req *Request, layers []Decision, met []*rules.Rule) ([]Decision, error) {
	return n.library.DecideMet(ctx, req, layers, met)
}

// decideMet is DecideMet whose time nobody observes.
func (n *Node) decideMet(ctx context.Context, req *Request, layers []Decision, met []*rules.Rule) ([]Decision, error) {
	var room [rules.MaxDescriptors]rules.Match
	p, matches, err := n.match(req, room[:0])
	if d, ok := n.withoutRules(p, req, err); ok {
		return appendEach(layers, d, req), nil
	}
	if err != nil {
		return layers, err
	}
	for i := range min(len(met), len(matches)) {
		met[i] = matches[i].Rule
	}
	return n.decide(ctx, p, req, matches, layers)
}

// Report charges the cost of a request after it was served: req.Cost, 0 for 1, in all the layers that Decide would
// charge. As it can no longer be denied, it is charged beyond the limit, up to twice the limit, and the excess denies
// until it has left the window. It bans nobody, and metrics do not count it as a decision. With a req.Response what the
// response costs is charged, in the layers whose rules charge responses; these have no decision before. Report appends
// to layers the decisions of a peek right after. Errors are those of Take; nothing is charged then.
func (n *Node) Report(ctx context.Context, req *Request, layers []Decision) ([]Decision, error) {
	n.setDomain(req)
	var room [rules.MaxDescriptors]rules.Match
	p, matches, err := n.match(req, room[:0])
	if err != nil {
		return layers, err
	}
	n.report(ctx, p, req, matches)
	peek := *req
	peek.Peek, peek.Asks, peek.Response = true, slices.Clone(req.Asks), nil
	for i := range peek.Asks {
		peek.Asks[i].Cost = 0
	}
	if p.meetsStrict(matches) { // what is charged is answered
		ctx = context.WithoutCancel(ctx)
	}
	return n.decide(ctx, p, &peek, matches, layers)
}

// HasDomain reports whether the rules in force have a domain of that name.
func (n *Node) HasDomain(name string) bool { return n.policy.Load().set.HasDomain(name) }

// Compatible reports whether a domain is compatible with envoyproxy/ratelimit by the rules in force.
func (n *Node) Compatible(domain string) bool { return n.policy.Load().set.Compatible(domain) }

// match returns the policy in force, and appends to dst what a request matches in it, unless there is an error. It
// counts a request without any limit.
func (n *Node) match(req *Request, dst []rules.Match) (p *policy, matches []rules.Match, err error) {
	p = n.policy.Load()
	if matches, err = p.set.Match(req, n.secret, dst); err != nil {
		return p, nil, err
	}
	if !slices.ContainsFunc(matches, func(m rules.Match) bool { return m.Limited() }) {
		n.monitor.Unmatched.Count(p.set, req, n.clock.Coarse())
	}
	return p, matches, nil
}

// decide appends to layers the decisions on what a request matches, and counts them. The error is ctx's, of a request
// with strict layers.
func (n *Node) decide(
	ctx context.Context, p *policy, req *Request, matches []rules.Match, layers []Decision,
) (_ []Decision, err error) {
	var room [rules.MaxDescriptors]counters.Charge
	n.prepare(req, matches)
	if p.meetsStrict(matches) {
		layers, _, err = n.decideStrict(ctx, p, req, matches, room[:len(matches)], layers)
		return layers, err
	}
	return n.decideCharging(p, req, matches, room[:len(matches)], needsExactTime(req, matches), layers), nil
}

// prepare has the layers follow what goes over their limits: outages, debts, and bans by operators.
func (n *Node) prepare(req *Request, matches []rules.Match) {
	n.fail(req, matches)
	n.collect(matches)
	if manual := n.bans.Manual(); manual != nil {
		n.banManually(manual, req, matches)
	}
}

// decideCharging is decide of prepared layers that also sets what each is charged, at the coarse time unless exact is
// set.
func (n *Node) decideCharging(
	p *policy, req *Request, matches []rules.Match, charges []counters.Charge, exact bool, layers []Decision,
) []Decision {
	first := len(layers)
	layers = n.take(charges, exact,
		func(now int64) { n.charge(req, matches, now, charges) }, layers)
	n.count(p, req, matches, charges, layers[first:])
	return layers
}

// take has the table decide on the charges that fill sets for a time: the coarse time, unless exact is set. Where a
// denial has ended since the coarse time, it decides again at the exact time.
func (n *Node) take(charges []counters.Charge, exact bool, fill func(now int64), layers []Decision) []Decision {
	first, now := len(layers), n.clock.Coarse()
	if exact {
		now = n.clock.Now()
	}
	for {
		fill(now)
		layers = n.takeAll(charges, now, layers[:first])
		wait := denialEnds(layers[first:])
		if exact || wait == 0 {
			return layers
		}
		later := n.clock.Now()
		if later-now < int64(wait) {
			return layers
		}
		now, exact = later, true
	}
}

// takeAll uses the table's shorter way for a single charge where it can.
func (n *Node) takeAll(charges []counters.Charge, now int64, layers []Decision) []Decision {
	if len(charges) == 1 {
		c := &charges[0]
		if c.Limit != nil && c.Mode != counters.Shadow && c.Lender == 0 && !c.Overdraw && c.Pending == 0 &&
			c.Address == 0 {
			return append(layers, n.table.Take(c.Limit, c.Key, c.Cost, now))
		}
	}
	return n.table.TakeAll(charges, now, layers)
}

// charge sets what a request is charged at a time in what it matches.
func (n *Node) charge(req *Request, matches []rules.Match, now int64, charges []counters.Charge) {
	for i := range matches {
		n.chargeLayer(req, &matches[i], now, &charges[i])
	}
}

// chargeLayer sets what a request is charged in one layer.
func (n *Node) chargeLayer(req *Request, m *rules.Match, now int64, c *counters.Charge) {
	*c = m.Charge(req, now)
	if n.cfg.Ratelimit.StopIncrements && c.Limit != nil && c.Limit.Tallies() {
		c.Each = false
	}
	if n.shadow.Load() {
		c.Mode = counters.Shadow
	} else if c.Mode == counters.Elastic && m.IdleAt(n.Pressure()) {
		c.Lender = counters.Idle
	}
}

// needsExactTime reports whether a denial by one of the rules bans or counts, for which the coarse time, which may be
// behind, is not good enough.
func needsExactTime(req *Request, matches []rules.Match) bool {
	for i := range matches {
		m := &matches[i]
		if r := m.Rule; r != nil && (r.Ban > 0 || r.CountRejected) || m.Overdraws(req) || m.Tallies(req) {
			return true
		}
	}
	return false
}

// denialEnds returns how long after its decision a request is no longer denied; 0 if it was not, or that never ends.
func denialEnds(layers []Decision) (wait time.Duration) {
	for i := range layers {
		switch d := &layers[i]; {
		case d.Allowed:
		case d.RetryAfter == counters.Never:
			return 0
		default:
			wait = max(wait, d.RetryAfter)
		}
	}
	return wait
}

// count annotates the decisions as the rules want, and counts them by rule and outcome.
func (n *Node) count(p *policy, req *Request, matches []rules.Match, charges []counters.Charge, layers []Decision) {
	allowed := true
	for i := range layers {
		d := &layers[i]
		matches[i].Annotate(req, &charges[i], d)
		scope, shared := counters.Global, false
		if r := matches[i].Rule; r != nil {
			scope, shared = r.Scope, r.Strict
		}
		d.Degraded = d.Rule != "" && (matches[i].StoreFailed() || !shared && n.monitor.DegradedIn(scope))
		allowed = allowed && d.Allowed
	}
	for i := range layers {
		layers[i].Charged = !allowed && chargedAnyway(&charges[i], &layers[i])
		m := &matches[i]
		if !m.Limited() || m.Asked(req) == 0 && (req.Peek || layers[i].Allowed || !m.Rule.ChargesLater()) {
			continue
		}
		t, rule := &n.adHocDecisions, adHocRule
		if m.Rule != nil {
			t, rule = p.tallies[m.Rule], m.Rule.Name
		}
		outcome := t.count(&layers[i], allowed || charges[i].Each)
		n.logDecision(rule, m.Key, charges[i].Cost, &layers[i], outcome)
		if d := &layers[i]; (!d.Allowed || d.Waived) && m.Rule != nil && t != p.other {
			who := ""
			if n.exposes(m.Rule) {
				who = m.Identity(req, i)
			}
			t.top.Count(uint64(m.Key), who, n.clock.Coarse())
		}
	}
}

// chargedAnyway reports whether a layer of a denied request was charged all the same.
func chargedAnyway(c *counters.Charge, d *Decision) bool {
	switch {
	case c.Limit == nil || c.Cost == 0 || d.Banned:
		return false
	case c.Limit.Tallies() || c.Overdraw:
		return true
	case !d.Allowed:
		return c.Limit.CountsRejected()
	}
	return c.Each && d.Mode != counters.Shadow
}

// decisionCounts counts decisions by outcome.
type decisionCounts struct {
	allowed, denied, waived atomic.Uint64
	banned                  atomic.Uint64 // denied by a ban that an earlier denial began
	near                    atomic.Uint64 // allowed, with less than 1/nearShare of the limit left

	failedOpen, failedClosed atomic.Uint64 // waived and denied in an outage

	top status.Top // whom a rule denies
}

const nearShare = 5

// count counts a decision, and returns its outcome; none if nothing is counted. It was charged if the whole request was
// admitted, or the rule charges each layer for itself.
func (t *decisionCounts) count(d *Decision, charged bool) (outcome string) {
	switch {
	case d.Failed && d.Allowed:
		t.failedOpen.Add(1)
		return "failed_open"
	case d.Failed:
		t.failedClosed.Add(1)
		return "failed_closed"
	case !d.Allowed && d.Banned:
		t.banned.Add(1)
		return "banned"
	case !d.Allowed:
		t.denied.Add(1)
		return "denied"
	case d.Waived:
		t.waived.Add(1)
		return "waived"
	case charged:
		t.allowed.Add(1)
		if d.Remaining*nearShare < d.Limit {
			t.near.Add(1)
		}
		return "allowed"
	}
	return ""
}

// pressureTTL is how long a reported pressure counts. It should be reported every second or so.
const pressureTTL = 5 * time.Second

// pressure is a reported pressure and its time.
type pressure struct {
	value float64
	at    int64
}

// SetPressure reports how loaded the system behind the node is, from 0, idle, to 1: elastic rules without a parent let
// more pass while it is low. A report counts for five seconds. What is no number from 0 to 1 counts as 1.
func (n *Node) SetPressure(p float64) {
	if !(p >= 0 && p <= 1) {
		p = 1
	}
	n.pressure.Store(&pressure{p, n.clock.Now()})
}

// Pressure returns what was last reported, or 1 if nothing was within the last five seconds.
func (n *Node) Pressure() float64 {
	p := n.pressure.Load()
	if p == nil {
		return 1
	}
	if age := time.Duration(n.clock.Coarse() - p.at); age.Abs() > pressureTTL { // the clock may have been set back
		return 1
	}
	return p.value
}
