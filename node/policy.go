package node

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/rules"
)

// policy is a set of rules with the decisions on each. It is replaced as a whole.
type policy struct {
	set       *rules.Set
	tallies   map[*rules.Rule]*decisionCounts // rules without series of their own share other
	other     *decisionCounts                 // of those
	folded    int                             // how many rules share it
	scheduled []*rules.Rule                   // whose limits, which nodes share, change by the time of day
	since     time.Time
	strict    map[string]bool  // the meters' rules of strict limits; nil: there are none
	homes     map[string]*home // the stores that decide on them, by their regions

	fingerprint uint64 // of the rules of all regions
}

// maxRuleSeries is how many rules, the first by name, have series of their own in the metrics. The others are counted
// together, as otherRules.
const (
	maxRuleSeries = 1000
	otherRules    = "/other" // no rule is named so: no domain is empty, and a rule without one has no slash
	adHocRule     = "/adhoc" // likewise: the decisions on all ad-hoc limits
)

// newPolicy returns a policy that goes on counting where the one before it, if there is one, ended. otherRules is kept
// for as long as the node runs, whatever rules it is of: totals never decrease.
func newPolicy(set *rules.Set, before *policy) *policy {
	p := &policy{set: set, other: new(decisionCounts), tallies: make(map[*rules.Rule]*decisionCounts)}
	counted := make(map[string]*decisionCounts)
	if before != nil {
		p.other = before.other
		for r, t := range before.tallies {
			if t != p.other {
				counted[r.FullName] = t
			}
		}
	}
	byName := set.Rules()
	slices.SortFunc(byName, func(a, b *rules.Rule) int { return cmp.Compare(a.FullName, b.FullName) })
	for i, r := range byName {
		switch t := counted[r.FullName]; {
		case i >= maxRuleSeries:
			p.tallies[r] = p.other
			p.folded++
		case t != nil:
			p.tallies[r] = t
		default:
			p.tallies[r] = new(decisionCounts)
		}
		if shared(r) && r.Scheduled() {
			p.scheduled = append(p.scheduled, r)
		}
		if r.Strict && r.Limit != nil {
			if p.strict == nil {
				p.strict = make(map[string]bool)
			}
			p.strict[r.Limit.Meter().Rule] = true
		}
	}
	return p
}

// shared reports whether nodes share the counts of a rule's limit.
func shared(r *rules.Rule) bool { return r.Limit != nil && r.Scope != counters.Alone }

// The APIs whose requests bring ad-hoc limits along.
const (
	redisAPI = iota // CL.THROTTLE
	envoyAPI        // requests with a limit of their own
	adHocAPIs
)

// learnAdHoc returns a function that replaces the ad-hoc limits of an API.
func (n *Node) learnAdHoc(api int) func([]*counters.Limit) {
	return func(all []*counters.Limit) {
		n.limitsMu.Lock()
		defer n.limitsMu.Unlock()
		n.adHoc[api] = all
		n.updateLimits(n.policy.Load())
	}
}

// updateLimits puts the limits of a policy and of requests in force. limitsMu is held.
func (n *Node) updateLimits(p *policy) {
	limits := make(map[string]*counters.Limit)
	for _, r := range p.set.Rules() {
		if shared(r) {
			limits[r.Limit.Meter().Rule] = r.Limit
			for _, l := range r.OwnMeters() {
				limits[l.Meter().Rule] = l
			}
		}
	}
	for _, l := range slices.Concat(n.adHoc[:]...) {
		// Of those that count together, the smallest has the largest bound.
		if other := limits[l.Meter().Rule]; other == nil || l.Max() < other.Max() {
			limits[l.Meter().Rule] = l
		}
	}
	n.limits.Store(&limits)
	n.table.Know(slices.Collect(maps.Values(limits)))
}

// limitsAt returns the limits that are in force at a time and that nodes share, by their meters' rules. The map must
// not be written to.
func (n *Node) limitsAt(now time.Time) map[string]*counters.Limit {
	limits, scheduled := *n.limits.Load(), n.policy.Load().scheduled
	if len(scheduled) > 0 {
		limits = maps.Clone(limits)
	}
	for _, r := range scheduled {
		limits[r.Limit.Meter().Rule] = r.LimitAt(now.UnixNano())
	}
	return limits
}

// adHocBound returns the largest over-admission bound of an API's ad-hoc limits.
func (n *Node) adHocBound(api int) (bound float64) {
	n.limitsMu.Lock()
	defer n.limitsMu.Unlock()
	for _, l := range n.adHoc[api] {
		bound = max(bound, n.monitor.Bound(l.Meter().Rule))
	}
	return bound
}

// enforce puts the rules of a set for this region in force, and returns the policies before and after. The table gets
// the limits first, so that it checks what peers report of them.
func (n *Node) enforce(set *rules.Set) (before, after *policy) {
	fingerprint := set.Fingerprint()
	n.limitsMu.Lock()
	defer n.limitsMu.Unlock()
	before = n.policy.Load()
	after = newPolicy(set.In(n.cfg.Region), before)
	after.fingerprint, after.since = fingerprint, time.Unix(0, n.clock.Now())
	n.updateLimits(after)
	after.homes = n.openHomes(after.set)
	if n.stats != nil {
		n.stats.SetRules(after.set.Rules())
	}
	err := n.cfg.Requests.Derived.Set(actions.FromRules(after.set, n.cfg.Requests.Descriptors))
	if err != nil {
		n.log.Warn("a rule's from cannot be used: its requests are not limited by it", "error", err)
	}
	n.policy.Store(after)
	return before, after
}

// SetRules puts the rules of a set in force in place of all others, atomically for each request. Counts of a rule go on
// as long as it stands at the same place and has the same window and algorithm, whatever its limit; so do its metrics.
// The log says what has changed. SetRules is safe for concurrent use, also before Run. Where the node has rule files,
// these take over again when they change.
func (n *Node) SetRules(set *rules.Set) {
	before, after := n.enforce(set)
	n.loads.succeed()
	n.cluster.AnnounceRules(n.policy.Load().fingerprint)
	changes := rules.Diff(before.set, after.set)
	for _, c := range changes[:min(len(changes), maxLogLines)] {
		n.log.Info("rule changed", "change", c.Kind, "rule", c.Rule, "counts", c.Counts, "old", c.Old, "new", c.New)
	}
	n.log.Info("rules in force", "rules", len(after.tallies), "changes", len(changes))
	n.bans.Refresh() // other rules may be exported
	n.logWarnings()
}

// Reload has the rule files and the files of TLS read again, changed or not. It does not wait: log and metrics report
// the result. It is safe for concurrent use; before Run it takes effect when that begins.
func (n *Node) Reload() {
	n.certificates.Reload()
	n.secrets.reread()
	if n.ruleStore != nil {
		n.log.Info("rules come from Redis, which is followed all the time")
		return
	}
	if n.files == nil {
		n.log.Info("there are no rule files to read again")
		return
	}
	n.files.Reload()
}

// loads counts loads of rules by their result.
type loads struct {
	ok, failed atomic.Uint64
	good       atomic.Bool // the last one
}

func (l *loads) succeed() {
	l.good.Store(true)
	l.ok.Add(1)
}

// none reports whether no load has been good yet.
func (l *loads) none() bool { return l.ok.Load() == 0 }

func (l *loads) counts() (ok, failed uint64) { return l.ok.Load(), l.failed.Load() }

func (n *Node) watchRules(ctx context.Context) {
	switch {
	case n.source != nil:
		n.source.Run(ctx, n.sourced)
	case n.files != nil:
		n.files.Run(ctx, n.loaded)
	}
}

// maxLogLines is how many changes, problems or warnings of rules are logged one by one.
const maxLogLines = 100

// loaded takes the result of reading the rule files. Unless all of them are good, the rules in force stay.
func (n *Node) loaded(set *rules.Set, err error) {
	if err == nil {
		n.SetRules(set)
		return
	}
	n.loads.good.Store(false)
	n.loads.failed.Add(1)
	problems := rulefile.Problems(err)
	for _, p := range problems[:min(len(problems), maxLogLines)] {
		n.log.Error("rules refused", "problem", p)
	}
	if n.loads.none() {
		n.log.Error("no rules are in force", "problems", len(problems))
		return
	}
	n.log.Error("the last good rules stay in force", "problems", len(problems),
		"since", n.policy.Load().since.Format(time.RFC3339))
}

// nameOf returns the name of the rule of a full name; of a rule that is not in force the full name.
func (n *Node) nameOf(fullName string) string { return n.policy.Load().set.NameOf(fullName) }
