// Package telemetry observes a node and its peers, and reports in logs and metrics: how far decisions may go over their
// limits, who cannot be reached or counts otherwise, whose clock is off, which keys were evicted. It changes no
// decision.
package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/text"
	"github.com/edgelimit/edgelimit/regions"
)

// Sources are what a running Monitor reads.
type Sources struct {
	Cluster  *gossip.Cluster
	Table    *counters.Table
	Store    *regions.Reconciler // nil: none
	Rules    func() *rules.Set
	Limits   func(at time.Time) map[string]*counters.Limit // in force then, by their meters' rules
	Found    func(at time.Time) map[string]uint64          // the most that a key has used that the node denies
	Now      func() int64                                  // the node's clock
	Interval time.Duration                                 // of gossip
}

// Monitor observes one node. Its exported methods are safe for concurrent use.
type Monitor struct {
	Unmatched Unmatched
	Unpriced  Unpriced
	Latencies *Latencies

	bounds
	skew                      *skewMonitor
	reach                     *reachAlarm
	otherRules, otherIdentity *fingerprintAlarm
	table                     tableAlarms
	degraded                  degradation
	outages                   outages
	blocked                   blockAlarm
	storeFailed               time.Time // since when the store does not answer; zero: it does
	lookUpAt                  time.Time // when the keys are looked up next that the node denies
}

// lookUpShare is how much longer than a lookup of the keys that a node denies the time is until the next one: so they
// take a hundredth of a core at most, however many rules there are.
const lookUpShare = 100

// NewMonitor returns a monitor that has not seen anything yet. memory is the budget of the counters, for the log, and
// maxSkew the largest clock skew that is no alarm.
func NewMonitor(log *slog.Logger, memory string, maxSkew time.Duration) *Monitor {
	return &Monitor{
		Unmatched: Unmatched{log: log}, Unpriced: Unpriced{log: log}, Latencies: newLatencies(),
		bounds: newBounds(),
		skew:   newSkewMonitor(log, maxSkew),
		reach:  newReachAlarm(log), otherRules: newRulesAlarm(log), otherIdentity: newIdentityAlarm(log),
		table: tableAlarms{log: log, memory: memory}, degraded: degradation{log: log},
		outages: outages{log: log}, blocked: blockAlarm{log: log},
	}
}

// Run reads the sources once a gossip interval, until ctx ends. It may be called once.
func (m *Monitor) Run(ctx context.Context, s Sources) {
	ticker := time.NewTicker(s.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			m.Read(&s, now)
		}
	}
}

// Read reads the sources once, before Run: a node knows from its first decision whether it is cut off.
func (m *Monitor) Read(s *Sources, now time.Time) {
	at := time.Unix(0, s.Now()) // windows go by the node's clock, not by the machine's
	limits := s.Limits(at)
	var found map[string]uint64
	if !now.Before(m.lookUpAt) {
		began := time.Now()
		found = s.Found(at)
		m.lookUpAt = now.Add(lookUpShare * time.Since(began))
	}
	m.bounds.read(limits, found, s.Cluster.Audit(limits, found), at)
	peers := s.Cluster.Peers()
	members := slices.DeleteFunc(slices.Clone(peers), func(p gossip.MemberStatus) bool { return p.Pool == "" })
	m.Latencies.observe(members)
	var store time.Duration
	storeKnown := false
	if s.Store != nil {
		store, storeKnown = s.Store.ClockAhead()
	}
	m.skew.look(members, store, storeKnown, s.Now())
	stats := s.Table.Stats()
	stats.LastImplausible.Rule = s.Rules().NameOf(stats.LastImplausible.Rule)
	m.table.look(stats, members, now)
	m.Unmatched.logSamples(s.Rules())
	var shared [counters.Alone + 1]bool
	for _, l := range limits {
		shared[l.Scope()] = true
	}
	m.outages.shared.Store(&shared)
	m.readPeers(s, peers, members, now)
}

// Unreachable reports whether a peer counts as unreachable at a gossip interval.
func Unreachable(p *gossip.MemberStatus, interval time.Duration) bool {
	return isLost(p, gossip.MostSilence(interval))
}

func (m *Monitor) readPeers(s *Sources, peers, members []gossip.MemberStatus, now time.Time) {
	limit := gossip.MostSilence(s.Interval)
	own := s.Cluster.Self()
	for _, p := range Twins(&own, peers) {
		p.Blocked = gossip.Blocked{}
	}
	reach := reachOf(peers, limit)
	m.reach.look(reach, peers, limit, now)
	identity := differing(members, own.Identity, func(m *gossip.Member) uint64 { return m.Identity })
	others := differing(members, own.Rules, func(m *gossip.Member) uint64 { return m.Rules })
	m.otherRules.look(others, len(members), now)
	m.otherIdentity.look(identity, len(members), now)
	blind, blindToRegion := s.Cluster.Blind()
	inRegion := blindToRegion || reach.near > 0 || m.skew.own.on
	for i := range members {
		inRegion = inRegion || !members[i].OtherRegion && members[i].Identity != 0 &&
			members[i].Identity != own.Identity
	}
	all, near := companies(peers, limit, func(m *gossip.Member) bool {
		return m.Identity != 0 && m.Identity != own.Identity
	})
	all.partial, near.partial = blind, blindToRegion
	all.alone, near.alone = s.Cluster.Alone()
	all.storeAway = m.storeAway(s, limit, now)
	near.storeAway = all.storeAway
	m.outages.look(counters.Global, all, now)
	m.outages.look(counters.Region, near, now)
	inRegion = inRegion || near.byStore() || m.Outage(counters.Region) == rules.CutOff
	m.degraded.look(m.reasons(reach, identity, blind, all.byStore()), inRegion, now)
	m.blocked.look(reach.blocked, now)
}

// storeAway reports whether the store has not answered for as long as makes a peer unreachable.
func (m *Monitor) storeAway(s *Sources, limit time.Duration, now time.Time) bool {
	switch {
	case s.Store == nil || s.Store.Stats().Breaker == regions.BreakerClosed:
		m.storeFailed = time.Time{}
		return false
	case m.storeFailed.IsZero():
		m.storeFailed = now
	}
	return now.Sub(m.storeFailed) >= limit
}

// reasons returns why decisions are degraded; nothing if they are not.
func (m *Monitor) reasons(reach *reachable, identity []string, blind, byStore bool) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for i := range reach.regions {
		if r := &reach.regions[i]; r.down && !r.ended {
			add("region %s cannot be reached: nothing from its %s for %v",
				printable(r.name), plural(r.nodes, "node"), text.Duration(r.silent.Round(time.Second)))
		}
	}
	if len(reach.ended) > 0 {
		add("%s down: connections are refused", isOrAre(reach.ended))
	}
	for _, b := range reach.blocked {
		add("%s; %s", b.Text(), b.Do())
	}
	if len(reach.names) > 0 {
		add("%s cannot be reached: nothing for %v or longer", firstNames(reach.names),
			text.Duration(reach.silent.Round(time.Second)))
	}
	if len(identity) > 0 {
		add("%s has another identity key and counts apart", firstNames(identity))
	}
	if s := m.Skew(); m.skew.own.on {
		add("this node's clock is %v ahead of the median of %s",
			text.Duration(s.Ahead.Round(time.Millisecond)), plural(s.Clocks, "clock"))
	}
	if blind {
		add("seeds do not answer: there may be nodes that this one does not know")
	}
	switch cut := m.CutOff(); {
	case byStore:
		add("the regional store does not answer, and this node counts with others by it alone")
	case cut != "": // also from nodes that were silent for so long that they are forgotten
		add("%s", cut)
	}
	return all
}

func isOrAre(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return firstNames(names) + " are"
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Skew returns the last skew that was measured.
func (m *Monitor) Skew() Skew { return *m.skew.latest.Load() }

// Degraded returns why decisions are degraded; nothing while they are not.
func (m *Monitor) Degraded() []string {
	if reasons := m.degraded.reasons.Load(); reasons != nil {
		return *reasons
	}
	return nil
}

// DegradedIn reports whether decisions on limits of a scope are degraded. A limit that a node keeps alone never is.
func (m *Monitor) DegradedIn(s counters.Scope) bool {
	return s == counters.Global && m.degraded.cluster.Load() || s == counters.Region && m.degraded.region.Load()
}

// Outage returns which of the nodes that share limits of a scope this one cannot count with. There is none for a limit
// that a node keeps alone.
func (m *Monitor) Outage(s counters.Scope) rules.Outage { return m.outages.in(s) }

// CutOff says that this node is cut off, and the widest scope for which it is; nothing if it is not.
func (m *Monitor) CutOff() string {
	for _, s := range []counters.Scope{counters.Global, counters.Region} {
		if m.Outage(s) == rules.CutOff && m.outages.isShared(s) {
			return fmt.Sprintf("this node is cut off from most nodes that share limits of scope %s: "+
				"rules follow their on_failure", s)
		}
	}
	return ""
}

// degradation is whether a node that shares limits with this one is unreachable or counts apart, or this node's clock
// is off. A cause that comes and goes does not make it do so as often: it changes twice a minute at most, or three
// times in the first minute of ten. look is not safe for concurrent use.
type degradation struct {
	log             *slog.Logger
	cluster, region atomic.Bool              // limits of that scope are degraded
	reasons         atomic.Pointer[[]string] // nil before the first look
	since, until    time.Time                // of the latest degradation
	last            []string                 // the latest reasons
	over            time.Time                // when they ended; zero: they have not
}

const (
	// degradedLeast is how long a degradation lasts at least that begins within degradedQuiet of the end of another.
	degradedLeast = time.Minute
	degradedQuiet = 10 * time.Minute
)

// held returns the reasons, or where they have just ended and come again and again, that they did.
func (d *degradation) held(reasons []string, now time.Time) []string {
	switch {
	case len(reasons) > 0:
		d.last, d.over = reasons, time.Time{}
		return reasons
	case !d.cluster.Load() || d.until.IsZero() || d.since.Sub(d.until) > degradedQuiet ||
		now.Sub(d.since) >= degradedLeast:
		return nil
	case d.over.IsZero():
		d.over = now
	}
	return []string{fmt.Sprintf("it comes and goes, the last time until %s: %s",
		d.over.UTC().Format("15:04:05 UTC"), strings.Join(d.last, "; "))}
}

// look takes the reasons why limits of the cluster are degraded, and whether the region's are.
func (d *degradation) look(reasons []string, region bool, now time.Time) {
	d.region.Store(region)
	reasons = d.held(reasons, now)
	is := len(reasons) > 0
	was := d.cluster.Swap(is)
	d.reasons.Store(&reasons)
	switch {
	case is && !was:
		d.since = now
		d.log.Warn("decisions are degraded", "because", strings.Join(reasons, "; "))
	case was && !is:
		d.until = now
		d.log.Info("decisions are no longer degraded", "after", now.Sub(d.since).Round(time.Millisecond))
	}
}
