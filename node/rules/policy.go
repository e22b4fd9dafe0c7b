package rules

import (
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Policy is how a rule is enforced.
type Policy struct {
	// Mode is how the rule denies: Enforce by default. Shadow goes over all others.
	Mode counters.Mode
	// Parent is the full name of the rule that an elastic one borrows from; empty: it admits more while the reported
	// pressure is at most MaxPressure.
	Parent      string
	MaxPressure float64
	// Margin is the part of Limit beyond the rule's own number: a request that needs it passes, marked as over the
	// limit. 0 unless the mode is soft.
	Margin uint64
	// Cost is charged for each unit of a request's cost, at least 1.
	Cost uint64
	// Each charges every request that the rule admits, also those that another layer denies.
	Each bool
	// Overdraw is what a charge does that exceeds what is left.
	Overdraw Overdraw
	// Scope is which nodes share the limit.
	Scope counters.Scope
	// OnPartition is what happens to the limit while part of the cluster is unreachable.
	OnPartition counters.Partition
	// PartitionDenies denies meanwhile, whatever OnPartition says.
	PartitionDenies bool
	// OnFailure is what happens to requests while the node cannot reach most of the nodes that share the limit, unless
	// they have a word of their own. Of a strict rule, what happens while its store does not answer: see WithoutStore.
	OnFailure Failure
	// Ban is how long the rule denies everything after a denial; 0: no ban.
	Ban time.Duration
	// ExportAddress keeps in its bans the address of whom they ban, see [Rule.AddressOf].
	ExportAddress bool
	// ExposeIdentity shows operators in clear whom the rule denies most.
	ExposeIdentity bool
	// CountRejected counts requests that the rule denied.
	CountRejected bool
	// MaxUnsent is the admitted cost after which a node flushes early to its peers; 0: none.
	MaxUnsent uint64
	// Strict has a store that nodes share decide on each request: that of HomeRegion, or with the scope Region that of
	// the node's region.
	Strict     bool
	HomeRegion string
	// Lease is how many permits a node takes from that store at a time; 0 or 1: one request's.
	Lease uint64
}

// MaxLease is the largest Policy.Lease.
const MaxLease = 10_000

// Home returns the region whose store decides on a strict rule, for nodes of a region.
func (p *Policy) Home(region string) string {
	if p.Scope == counters.Region {
		return region
	}
	return p.HomeRegion
}

// Strict reports whether a store that nodes share decides on the layer, which is charged so. It has no say on a client
// in an address list, nor on a limit of 0.
func (m *Match) Strict(ch *counters.Charge) bool {
	return m.Rule != nil && m.Rule.Policy.Strict && m.Listed == Unlisted && m.own == nil && ch.Limit != nil &&
		ch.Limit.Max() > 0
}

// Overdraw is what a charge does that exceeds what is left. It is denied in any case.
type Overdraw uint8

const (
	OverdrawByAPI  Overdraw = iota // as [Request.Overdraw]
	OverdrawDeny                   // it does not count
	OverdrawCharge                 // it counts, up to twice the limit
)

// Overdraws reports whether the request may overdraw the layer. A cost of 1 never does: nothing has happened yet that
// must be counted, and counting it would keep the client denied.
func (m *Match) Overdraws(req *Request) bool {
	overdraw := OverdrawByAPI
	if m.Rule != nil {
		overdraw = m.Rule.Overdraw
	}
	return m.Asked(req) > 1 && (overdraw == OverdrawCharge || overdraw == OverdrawByAPI && req.Overdraw)
}

// Charge returns the layer's charge at a time, in nanoseconds since the Unix epoch. It has no limit where nothing
// limits the layer: no rule, an unlimited rule, or a client on the allow list.
func (m *Match) Charge(req *Request, now int64) counters.Charge {
	r, asked := m.Rule, m.Asked(req)
	if r == nil && m.asked != 0 {
		l := req.Asks[m.asked-1].Limit
		return counters.Charge{Limit: l, Key: m.Key, Cost: asked, Overdraw: m.Overdraws(req), Each: l.Tallies()}
	}
	if r == nil {
		return counters.Charge{}
	}
	if m.own != nil {
		return m.failed(counters.Charge{Limit: m.own, Key: m.Key, Cost: min(asked, counters.MaxTally), Each: true})
	}
	var l *counters.Limit
	switch m.Listed {
	case Unlisted:
		l = r.LimitOf(m.Key, now)
	case DenyListed:
		l = r.blocked
	}
	// A cost above any limit is denied, however high.
	cost := min(times(asked, r.Cost), counters.MaxLimit+1)
	if l != nil && l.Tallies() {
		cost = times(asked, r.Cost)
	}
	// A queue does not delay a denied request, and cannot be overdrawn.
	overdraw := m.Overdraws(req) && l != nil && l.Meter().Algorithm != counters.LeakyQueue
	pending := times(m.pending, r.Cost)
	if m.noWait && l != nil {
		pending = r.waits(l) - min(cost, r.waits(l))
	}
	return m.failed(counters.Charge{Limit: l, Key: m.Key, Address: m.address, Cost: cost, Mode: r.Mode,
		Each: r.Each, Overdraw: overdraw, Lender: m.lender, Pending: pending})
}

// Queues reports whether the rule, which may be nil, may have requests wait for their turn.
func (r *Rule) Queues() bool {
	return r != nil && r.Limit != nil && r.Limit.Meter().Algorithm == counters.LeakyQueue
}

// NoWait has the layer deny requests that would have to wait, as there is no place for them.
func (m *Match) NoWait() { m.noWait = m.Rule.Queues() }

// NoPlace reports whether the layer denies only because of NoWait.
func (m *Match) NoPlace(ch *counters.Charge, d *counters.Decision) bool {
	return m.noWait && !d.Allowed && d.RetryAfter <= ch.Limit.Refills(ch.Pending)
}

// waits returns how much of a queue's limit must be free for a request that does not wait.
func (r *Rule) waits(l *counters.Limit) uint64 {
	if r.Mode == counters.Throttle {
		return r.marginOf(l, 0) + 1 // a queue has no overrides
	}
	return l.Max()
}

// IdleAt reports whether the rule admits more at the pressure p.
func (m *Match) IdleAt(p float64) bool {
	r := m.Rule
	return r != nil && r.Mode == counters.Elastic && r.Parent == "" && m.Listed == Unlisted && p <= r.MaxPressure
}

// Annotate puts the rule's view into the table's decision on the charge: its name, its limit without the margin, the
// quota of a bucket.
func (m *Match) Annotate(req *Request, ch *counters.Charge, d *counters.Decision) {
	r, l, peek := m.Rule, ch.Limit, m.Asked(req) == 0
	if l != nil && l.Max() == 0 && !l.Tallies() { // its next window is as empty as this one, but a reset of 0 means now
		d.ResetAfter = l.Meter().Window
	}
	if r == nil && l != nil {
		d.Rule, d.Mode = OverrideName, ch.Mode
		return
	}
	// an unlimited rule decides nothing: its decision would report a limit of 0 with 0 left
	if r == nil || l == nil {
		return
	}
	d.Rule, d.Mode = r.HeaderName, ch.Mode
	if m.own != nil {
		d.Rule = OverrideName
	}
	if m.banned > 0 {
		m.annotateBan(d)
		return
	}
	if m.failure == FailOpen || m.failure == FailClosed {
		m.annotateFailure(ch, d)
	}
	if m.owes > 0 && m.failure != FailClosed {
		m.annotateDebt(d)
		return
	}
	if l.Tallies() || m.failure == FailClosed { // a peek asks for nothing there
		return
	}
	if l.Refill() != 0 && l.Max() != 0 { // "q=20;w=12" is the policy of a bucket of 20 that gets 100 a minute back
		d.Window = l.Lasts()
	}
	// a peek asks for one, and this rule's requests cost more
	if peek && d.Allowed && !d.Waived && d.Remaining < r.Cost {
		if d.Waived = ch.Mode == counters.Shadow; !d.Waived {
			d.Allowed, d.RetryAfter = false, d.ResetAfter
		}
		if r.Cost > l.Max() && !d.Allowed {
			d.RetryAfter = counters.Never
		}
	}
	if m.pending > 0 && !d.Allowed && d.RetryAfter == counters.Never && r.Cost <= l.Max() {
		d.RetryAfter = pendingRetry
	}
	if margin := r.marginOf(l, m.Key); margin > 0 {
		over := d.Remaining < margin || peek && d.Remaining < margin+r.Cost
		d.Waived = d.Waived || d.Allowed && over
		d.Limit, d.Remaining = l.Max()-margin, d.Remaining-min(d.Remaining, margin)
	}
	if ch.Mode == counters.Throttle { // what needs no margin is not held back
		d.Delay = max(0, d.Delay-l.Refills(max(d.Limit, 1)-1))
	}
}

// marginOf returns the margin of one of the rule's limits for a key.
func (r *Rule) marginOf(l *counters.Limit, key counters.Key) uint64 {
	if l == r.Limit {
		return r.Margin
	}
	for i := range r.Schedule {
		if r.Schedule[i].Limit == l {
			return r.Schedule[i].Margin
		}
	}
	if r.overrides != nil {
		if o := r.overrides.byKey[key]; o.limit == l {
			return o.margin
		}
	}
	return 0
}
