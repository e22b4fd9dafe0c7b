package node

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/node/bans"
	"github.com/edgelimit/edgelimit/node/listen"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/status"
	"github.com/edgelimit/edgelimit/node/telemetry"
	"github.com/edgelimit/edgelimit/node/text"
	"github.com/edgelimit/edgelimit/regions"
)

// Events returns the events of the node: what its log reports, from New on.
func (n *Node) Events() *status.Events { return n.events }

// maxName is how many bytes of a peer's name are reported.
const maxName = 128

// Status returns what the node knows of itself and of its cluster. It asks nobody.
func (n *Node) Status() status.Status { return n.statusWith(true) }

// viewed is a node as the dashboard on a listener of its own shows it: it does not say who identities are.
type viewed struct{ *Node }

func (v viewed) Status() status.Status { return v.statusWith(false) }

// statusWith returns the status, with or without identities.
func (n *Node) statusWith(identities bool) status.Status {
	now := n.clock.Now()
	p, table := n.policy.Load(), n.table.Stats()
	age, complete := n.cluster.Staleness()
	skew := n.monitor.Skew()
	s := status.Status{
		Node: n.cfg.NodeID, Region: n.cfg.Region, Version: BuildVersion().Version, Time: time.Unix(0, now).UTC(),
		Uptime: time.Since(n.started).Milliseconds(), Degraded: append([]string{}, n.Degraded()...),
		Warnings: n.heldWarnings(), Shadow: n.shadow.Load(), Regions: n.regions(p, now),
		Rules: status.Rules{Count: len(p.tallies), Fingerprint: fingerprint(p.fingerprint), Since: p.since.UTC(),
			Loaded: n.loads.good.Load() || n.loads.ok.Load()+n.loads.failed.Load() == 0},
		Limits: n.limitStatus(p, now),
		Memory: status.Memory{Keys: table.Keys, Bytes: table.Bytes, Budget: int(n.cfg.Memory), Evicted: table.Evicted,
			EvictedFull: table.EvictedFull, EvictedDenied: table.EvictedDenied},
		Gossip: status.Gossip{Interval: n.cfg.Gossip.Interval.Milliseconds(), Staleness: age.Milliseconds(),
			Complete: complete, Skew: millis(skew.Ahead), Clocks: skew.Clocks},
		Strict: []status.Store{},
	}
	if n.reconciler != nil {
		r := n.reconciler.Stats()
		s.Redis = &status.Redis{State: n.storeState(), Pending: r.Pending, Failed: r.Failed, Lost: r.Lost}
	}
	for _, region := range slices.Sorted(maps.Keys(p.homes)) {
		h := p.homes[region]
		s.Strict = append(s.Strict, status.Store{Region: region, Known: h.store != nil, Away: h.away.Load(),
			Fallbacks: h.fallbacks.Load(), Passed: h.passed.Load()})
	}
	for _, count := range n.bans.Counts() {
		s.Bans += count
	}
	s.Top = n.topDenied(p, maps.Keys(p.tallies), status.TopShown)
	for i := range s.Top {
		if !identities {
			s.Top[i].Identity = ""
		}
	}
	s.Event, s.Repeats = n.events.Latest()
	blind, _ := n.cluster.Blind()
	s.Health = status.Healthy
	s.Summary = n.summary(&s, reasons{rules: n.staleRules(), cluster: n.monitor.Degraded(), blind: blind})
	if n.Ready() != nil {
		s.Health = status.Unready
	}
	return s
}

// storeState returns whether the region's store answers.
func (n *Node) storeState() string {
	switch {
	case n.reconciler == nil:
		return status.NoStore
	case n.reconciler.Stats().Breaker == regions.BreakerClosed:
		return status.Answers
	}
	return status.NoAnswer
}

func fingerprint(f uint64) string {
	if f == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", f)
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// heldWarnings returns the warnings about configuration and rules that hold.
func (n *Node) heldWarnings() []string {
	n.warningMu.Lock()
	defer n.warningMu.Unlock()
	return append([]string{}, slices.Sorted(maps.Keys(n.warned))...)
}

// regions returns the regions with their nodes, the node's own first.
func (n *Node) regions(p *policy, now int64) []status.Region {
	self, peers := n.cluster.Self(), n.cluster.Peers()
	shares := n.limitShares(p, peers, now)
	own := status.Member{Node: self.NodeID, Region: self.Region, Self: true, Reachable: true,
		Addr: cmp.Or(n.cluster.Addr("wan"), n.cluster.Addr("lan")), Rules: fingerprint(self.Rules), SameRules: true,
		SameKey: true}
	all := []status.Region{{Name: self.Region, Own: true, Reachable: true, Members: []status.Member{own}}}
	for i := range peers {
		m := memberStatus(&peers[i], &self, n.cfg.Gossip.Interval, now)
		at := slices.IndexFunc(all, func(r status.Region) bool { return r.Name == m.Region })
		if at < 0 {
			at = len(all)
			all = append(all, status.Region{Name: m.Region, Down: true})
		}
		r := &all[at]
		r.Members = append(r.Members, m)
		r.Reachable, r.Down = r.Reachable || m.Reachable, r.Down && m.Down
		if m.Since.After(r.Since) {
			r.Since = m.Since
		}
	}
	for i := range all {
		if all[i].Reachable {
			all[i].Since = time.Time{}
		}
		if share, ok := shares[all[i].Name]; ok {
			all[i].Share = &share
		}
	}
	return all
}

func memberStatus(p *gossip.MemberStatus, self *gossip.Member, interval time.Duration, now int64) status.Member {
	m := status.Member{Node: text.CleanUpTo(p.NodeID, maxName), Region: text.CleanUpTo(p.Region, maxName), Addr: p.Addr,
		Pool: p.Pool, Reachable: !telemetry.Unreachable(p, interval), Staleness: p.Age.Milliseconds(),
		RTT: millis(p.RTT), Idle: p.Idle, Rules: fingerprint(p.Rules),
		SameRules: p.Rules == 0 || p.Rules == self.Rules, SameKey: p.Identity == 0 || p.Identity == self.Identity}
	if m.Down = !m.Reachable && p.Ended; !m.Reachable {
		m.Since = time.Unix(0, now-int64(p.Age)).UTC()
	}
	if p.Timed {
		ahead := millis(p.Ahead)
		m.ClockAhead = &ahead
	}
	return m
}

// limitShares returns which part of the limits of scope global each region admits while all keep their parts:
//
//	share(region) = sum over limits of D(region)/R : sum over limits of D(all)/R
//
//	D  cost per second that nodes are asked for, each for its hottest key of the limit
//	R  cost per second that the limit admits
//
// A limit that no reachable node is asked for at present is left out: what unreachable nodes last reported cannot be
// compared with a demand that has ended since. It is empty where no limit is left, and in clusters in which owners add
// up: their nodes do not know what each other one is asked for.
func (n *Node) limitShares(p *policy, peers []gossip.MemberStatus, now int64) map[string]float64 {
	if n.cluster.AddsUp() {
		return nil
	}
	self := n.cluster.Self().Origin()
	regionOf, reachable := map[counters.Origin]string{self: n.cfg.Region}, map[counters.Origin]bool{self: true}
	for i := range peers {
		o := peers[i].PeerStatus.Origin
		regionOf[o] = text.CleanUpTo(peers[i].Region, maxName)
		reachable[o] = !telemetry.Unreachable(&peers[i], n.cfg.Gossip.Interval)
	}
	shares, sum := make(map[string]float64), 0.0
	demand := n.cluster.Demand()
	for r := range p.tallies {
		l := r.LimitAt(now)
		if l == nil || l.Max() == 0 || r.Strict || r.Scope != counters.Global || r.OnPartition != counters.Share {
			continue
		}
		rule, rate := l.Meter().Rule, float64(l.Max())/l.Lasts().Seconds()
		current := false
		for o, asked := range demand {
			current = current || reachable[o] && asked[rule] > 0
		}
		if !current {
			continue
		}
		for o, asked := range demand {
			if region, known := regionOf[o]; known {
				part := asked[rule] / rate
				shares[region] += part
				sum += part
			}
		}
	}
	if sum <= 0 {
		return nil
	}
	for region := range shares {
		shares[region] /= sum
	}
	return shares
}

// exposes reports whether operators see in clear whom the rule denies: where it says so, and, but for secrets, where
// nobody can see it but who is on the node's own machine.
func (n *Node) exposes(r *rules.Rule) bool {
	return r.ExposeIdentity || n.cfg.keepsToItself() && !r.HasSecretKey()
}

// keepsToItself reports whether what the node knows stays on its machine: it has no peers, its operators are on
// loopback or a Unix socket, and it exports nothing.
func (c *Config) keepsToItself() bool {
	return c.Admin != "" && listen.IsLocal(c.Admin) && c.Gossip.LAN == "" && c.Gossip.WAN == "" && c.Dashboard == "" &&
		len(c.Bans.Exports) == 0 && c.OTLP.Endpoint == ""
}

// limitStatus returns the rules with series of their own, by name.
func (n *Node) limitStatus(p *policy, now int64) []status.Limit {
	all := []status.Limit{}
	for r, t := range p.tallies {
		if t == p.other {
			continue
		}
		s := status.Limit{Rule: r.Name, Scope: r.Scope.String(), Strict: r.Strict, Expose: n.exposes(r),
			Recent: n.rates.recent(t)}
		s.Bound, s.Over = n.excessOf(r)
		s.Allowed, s.Denied = t.totals()
		if l := r.LimitAt(now); l != nil {
			m := l.Meter()
			s.Limit, s.Window, s.Algorithm = l.Max(), l.Lasts().Milliseconds(), m.Algorithm.String()
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b status.Limit) int { return cmp.Compare(a.Rule, b.Rule) })
	return all
}

// found returns the most that a key has used of each limit among those that this node denies most, by the meter's rule.
// Rules are left out whose counts do not tell.
func (n *Node) found(at time.Time) map[string]uint64 {
	now, found := at.UnixNano(), make(map[string]uint64)
	p := n.policy.Load()
	for r, t := range p.tallies {
		l := r.LimitAt(now)
		if t == p.other || l == nil || !countsTell(r) {
			continue
		}
		for _, e := range t.top.Most(16, now) {
			rule := l.Meter().Rule
			found[rule] = max(found[rule], n.table.View(l, counters.Key(e.Key), now))
		}
	}
	return found
}

// countsTell reports whether counts above the limit of a rule are what was admitted too much.
func countsTell(r *rules.Rule) bool {
	l := r.Limit
	return l != nil && !l.Tallies() && !r.CountRejected && !r.ChargesLater() && !r.Strict && r.Overrides() == 0 &&
		r.Mode == counters.Enforce
}

// TopDenied returns whom this node denied most in the last five to ten minutes under a rule, or with an empty name
// under any; at most n. The error is rules.ErrUnknownRule or rules.ErrInvalidRequest.
func (n *Node) TopDenied(rule string, most int) ([]status.Denied, error) {
	p := n.policy.Load()
	of := maps.Keys(p.tallies)
	if rule != "" {
		r, err := p.set.Find(rule, "")
		if err != nil {
			return nil, err
		}
		of = func(yield func(*rules.Rule) bool) { yield(r) }
	}
	return n.topDenied(p, of, most), nil
}

// topDenied is TopDenied of some rules.
func (n *Node) topDenied(p *policy, of iter.Seq[*rules.Rule], most int) []status.Denied {
	type entry struct {
		rule *rules.Rule
		status.Entry
	}
	now := n.clock.Now()
	var all []entry
	for r := range of {
		t := p.tallies[r]
		if t == nil || t == p.other {
			continue
		}
		for _, e := range t.top.Most(most, now) {
			all = append(all, entry{r, e})
		}
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.Denials, a.Denials), cmp.Compare(a.rule.Name, b.rule.Name),
			cmp.Compare(a.Key, b.Key))
	})
	first := []status.Denied{}
	for _, e := range all[:min(len(all), most)] {
		d := status.Denied{Rule: e.rule.Name, Key: fmt.Sprintf("%016x", e.Key), Denials: e.Denials,
			Error: e.Error}
		if n.exposes(e.rule) {
			d.Identity = text.CleanUpTo(e.Identity, status.MaxIdentity)
		}
		first = append(first, d)
	}
	return first
}

// Inspect returns what the node knows of an identity under a rule, and what the next request of cost 1 would get. It
// charges nothing; of a strict rule it asks the store. The errors are those of Take.
func (n *Node) Inspect(ctx context.Context, rule, identity string) (status.Inspection, error) {
	req := Request{Rule: rule, Identity: identity, Peek: true}
	in := status.Inspection{Node: n.cfg.NodeID, Allows: true, Layers: []status.Layer{}}
	p, matches, err := n.match(&req, nil)
	if err != nil {
		return in, err
	}
	decisions, err := n.decide(ctx, p, &req, matches, nil)
	if err != nil {
		return in, err
	}
	now, store := n.clock.Now(), n.storeState()
	for i := range decisions {
		m, d := &matches[i], &decisions[i]
		if m.Rule == nil {
			continue
		}
		l := status.Layer{Rule: m.Rule.Name, Key: fmt.Sprintf("%016x", uint64(m.Key)), Limit: d.Limit,
			Remaining: d.Remaining, Allowed: d.Allowed, Banned: d.Banned, Degraded: d.Degraded, Store: store,
			Bound: n.boundOf(m.Rule), Strict: m.Rule.Strict, Counts: []status.NodeCount{},
			ByRegion: make(map[string]uint64)}
		l.RetryAfter = d.RetryAfter.Milliseconds()
		if d.RetryAfter == counters.Never {
			l.RetryAfter = -1
		}
		switch m.Listed {
		case rules.AllowListed:
			l.Listed = "allow"
		case rules.DenyListed:
			l.Listed = "deny"
		}
		if limit := m.Charge(&req, now).Limit; limit != nil {
			l.Used = n.table.View(limit, m.Key, now)
			l.Counts = n.countsOf(n.table.Slots(limit, m.Key, now))
		}
		for _, c := range l.Counts {
			l.ByRegion[c.Region] += c.Count
		}
		in.Allows = in.Allows && d.Allowed
		in.Layers = append(in.Layers, l)
	}
	return in, nil
}

// countsOf sums slots by their nodes, this one first, then by region and name. Nodes that are cut off are there even
// without counts, as what they admit is not known; but not where owners add up: what came of them is in a sum.
func (n *Node) countsOf(slots []counters.Slot) []status.NodeCount {
	self := n.cluster.Self()
	names := map[counters.Origin]status.NodeCount{self.Origin(): {Node: self.NodeID, Region: self.Region, Self: true}}
	sums, addsUp := make(map[status.NodeCount]uint64), n.cluster.AddsUp()
	for _, p := range n.cluster.Peers() {
		who := status.NodeCount{Node: text.CleanUpTo(p.NodeID, maxName), Region: text.CleanUpTo(p.Region, maxName),
			CutOff: telemetry.Unreachable(&p, n.cfg.Gossip.Interval) && !p.Ended}
		if names[p.PeerStatus.Origin] = who; who.CutOff && !addsUp {
			sums[who] = 0
		}
	}
	for _, s := range slots {
		sums[names[s.Origin]] += s.Count
	}
	all := []status.NodeCount{}
	for who, sum := range sums {
		who.Count, who.Sum = sum, addsUp && who.Node == ""
		all = append(all, who)
	}
	slices.SortFunc(all, func(a, b status.NodeCount) int {
		if a.Self != b.Self {
			return map[bool]int{true: -1, false: 1}[a.Self]
		}
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Node, b.Node))
	})
	return all
}

// reasons are why decisions are degraded, by who says so.
type reasons struct {
	rules   []string // the Redis of the rules
	cluster []string // the monitor: most have a finding of their own
	blind   bool     // membership: seeds do not answer
}

// summary returns what an operator should know, worst first, and sets the health to degraded if there is trouble.
func (n *Node) summary(s *status.Status, why reasons) []status.Finding {
	found := []status.Finding{}
	add := func(level, do, format string, args ...any) {
		found = append(found, status.Finding{Level: level, Text: fmt.Sprintf(format, args...), Do: do})
	}
	if err := n.Ready(); err != nil {
		add("error", "wait; if it lasts, see the events", "the node is not ready: %v", err)
	}
	if missing := n.rulesMissing(); missing != "" {
		add("error", "see the events for why, and run: edgelimit rules validate", "%s", missing)
	} else if !s.Rules.Loaded {
		add("error", "run: edgelimit rules validate FILE, and correct the file; the events name each problem",
			"the last rules were refused: those of %s stay in force", timeOfDay(s.Rules.Since))
	}
	explained := n.regionFindings(s, add)
	n.twinFindings(add)
	for _, b := range n.monitor.Blocked() {
		add("warn", b.Do(), "%s", b.Text())
		explained = true
	}
	if cut := n.monitor.CutOff(); cut != "" {
		add("error", "look at the network of this side; edgelimit_decisions_total, outcomes failed_closed and "+
			"failed_open, says which rules deny or admit all", "%s", cut)
		explained = true
	}
	if s.Redis != nil && s.Redis.State != status.Answers {
		add("warn", "look at that Redis: no request waits for it, and what it lacks is written when it is back",
			"the Redis of region %s %s: %s to write when it does", s.Region, s.Redis.State,
			plural(s.Redis.Pending, "count"))
		explained = true
	}
	if n.reconciler != nil && n.reconciler.Stats().Others > 0 {
		add("warn", "give all of them gossip and join, see node/README.md, or keep each to a Redis of its own",
			"another node counts in the Redis of region %s, and this one gossips with none: each may admit the whole "+
				"limit", s.Region)
	}
	for _, h := range s.Strict {
		what := status.NoAnswer
		if !h.Known {
			what = "is not known"
		}
		if h.Away || !h.Known {
			add("error", "look at that Redis, and at redis and strict.redis in the configuration",
				"the store of strict rules of region %s %s: on_failure decides, so far on %s, of which %d passed",
				h.Region, what, plural(int(h.Fallbacks), "request"), h.Passed)
		}
	}
	skew := time.Duration(s.Gossip.Skew * float64(time.Millisecond))
	if s.Gossip.Clocks > 0 && skew.Abs() > n.cfg.MaxSkew {
		add("warn", "run NTP on this machine", "this node's clock is %v off the median of %s",
			text.Duration(skew.Round(time.Millisecond)), plural(s.Gossip.Clocks, "clock"))
		explained = true
	}
	for _, reason := range why.rules {
		add("warn", "look at the Redis of the rules (rules_redis), and see the events", "%s", reason)
	}
	if others := n.otherKeyOverrides(); others > 0 {
		add("error", "set them again with the --key-file that the nodes have: edgelimit limits set; edgelimit "+
			"limits unset --key removes them", "%s of single identities without effect: made with another key file "+
			"than this node's", plural(others, "limit"))
	}
	if why.blind {
		add("warn", "look at the network to the seeds (gossip.join), and at their processes: with another key file "+
			"they refuse this node, and say so in their logs",
			"seeds do not answer: there may be nodes that this one does not know")
	}
	if len(why.cluster) > 0 && !explained && !why.blind {
		add("warn", "see the events", "decisions are degraded: %s", strings.Join(why.cluster, "; "))
	}
	n.fileFindings(add)
	if len(found) > 0 {
		s.Health = status.Degraded
	}
	// Packets of strangers may be forged: they leave the health as it is.
	for _, k := range n.cluster.OtherKeys() {
		add("warn", "if it is one of your nodes, give it this node's key file, see edgelimit keys status; if not, "+
			"close the gossip port to it", "%s sends gossip that is encrypted with another key: it cannot join (%s, "+
			"the last %s)", k.Addr, plural(k.Messages, "message"), timeOfDay(k.Last))
	}
	for _, s := range n.senders.Recent(time.Now()) {
		add("warn", s.Do(), "%s", s.Text())
	}
	n.sparedFindings(add)
	n.trafficFindings(s, len(why.cluster) > 0, add)
	n.overrideFindings(add)
	if lost := s.Memory.EvictedDenied + s.Memory.EvictedFull; lost > 0 {
		add("info", "give the counters more memory (--memory)", "since the start %s with half of the limit used or "+
			"more were evicted, and may be admitted as much again", plural(int(lost), "key"))
	}
	if pair := n.pairWarning(); pair != "" {
		add("info", "add a third node, or make the rule strict, with a Redis", "%s", pair)
	}
	if s.Shadow {
		add("info", "set shadow: false when it shall deny", "all rules are in shadow mode: nothing is denied")
	}
	levels := []string{"error", "warn", "info"}
	slices.SortStableFunc(found, func(a, b status.Finding) int {
		return cmp.Compare(slices.Index(levels, a.Level), slices.Index(levels, b.Level))
	})
	return found
}

// maxExportAge is how long an export of bans may not have been up to date before that is a finding: one that works is
// looked at every ten seconds, and begins once peers have had their time to answer.
const maxExportAge = time.Minute

// fileFindings adds which files the node cannot read or write as it should: secrets, certificates, exports and logs.
func (n *Node) fileFindings(add func(level, do, format string, args ...any)) {
	for _, f := range n.secrets.files {
		if f.bad.Load() {
			add("error", "correct the file, the node needs no restart; the events say what is wrong with it",
				"the file of %s cannot be used: the secrets that it had last stay in use", f.setting)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.listeners)) {
		if c := n.listeners[name].Certificate(); c != nil && !c.Current {
			add("error", "correct the files, the node needs no restart; the events say what is wrong with them",
				"the files of tls.%s cannot be used: the last good certificate stays in use", name)
		}
	}
	for _, w := range n.certificateWarnings() {
		add("warn", "renew the certificate", "%s", w.Text)
	}
	for _, x := range n.exporters {
		s := x.Stats()
		if s.Failing || time.Since(s.Success) > maxExportAge {
			add("error", "see the events for why", "the bans exported to %s are not up to date since %s: %s failed",
				s.Name, timeOfDay(s.Success), plural(int(s.Failures), "attempt"))
		}
	}
	for _, log := range n.losses.recent(n.lostWrites(), time.Now()) {
		add("warn", "look at its disk and its permissions, and see the events",
			"the %s log loses lines: %s failed since the start, the last at %s", log.what,
			plural(int(log.failures), "write"), timeOfDay(log.last))
	}
}

// regionFindings adds what is wrong with other nodes, and reports whether that explains why decisions are degraded.
func (n *Node) regionFindings(s *status.Status, add func(level, do, format string, args ...any)) (explains bool) {
	const network = "look at the network to them and at their processes: counts agree again within seconds of the heal"
	const restart = "start them again, under the same --node-id: their hosts refuse connections, so the processes " +
		"have ended, and the network is fine"
	isolated := n.isolation(s, add)
	for _, r := range s.Regions {
		var lost, down, strangers, others []string
		for _, m := range r.Members {
			switch {
			case m.Down:
				down = append(down, m.Node)
			case !m.Reachable:
				lost = append(lost, cmp.Or(m.Node, "unknown"))
			case !m.SameKey:
				strangers = append(strangers, m.Node)
			case !m.SameRules:
				others = append(others, m.Node)
			}
		}
		switch {
		case r.Down:
		case !r.Reachable && isolated:
		case !r.Reachable:
			add("warn", network, "region %s is cut off since %s: this node receives no counts of it; its %s",
				cmp.Or(r.Name, "unknown"), timeOfDay(r.Since), keeps(r))
		case len(lost) > 0:
			add("warn", network, "%s of region %s cut off: %s", plural(len(lost), "node"), r.Name, some(lost))
		}
		switch {
		case r.Down:
			add("warn", restart, "region %s is down since %s: %s", r.Name, timeOfDay(r.Since), some(down))
		case len(down) > 0:
			add("warn", restart, "%s of region %s down: %s", plural(len(down), "node"), r.Name, some(down))
		}
		if len(strangers) > 0 {
			add("error", "give all nodes the same key file", "%s of region %s has another identity key, and counts "+
				"apart", some(strangers), r.Name)
		}
		if len(others) > 0 {
			add("warn", "give all nodes the same rules; while they are rolled out, wait", "%s of region %s has other "+
				"rules or overrides than this node", some(others), r.Name)
		}
		explains = explains || len(lost)+len(down)+len(strangers) > 0
	}
	return explains
}

// twinFindings adds which nodes have the id of another one in their region.
func (n *Node) twinFindings(add func(level, do, format string, args ...any)) {
	self, addrs := n.cluster.Self(), make(map[string][]string)
	for _, p := range telemetry.Twins(&self, n.cluster.Peers()) {
		id := fmt.Sprintf("%s of region %s", text.CleanUpTo(p.NodeID, maxName), text.CleanUpTo(p.Region, maxName))
		addrs[id] = append(addrs[id], p.Addr)
	}
	for _, id := range slices.Sorted(maps.Keys(addrs)) {
		among := "the nodes at "
		if id == fmt.Sprintf("%s of region %s", self.NodeID, self.Region) {
			among = "this node and those at "
		}
		add("error", "give each an id of its own (--node-id, EDGELIMIT_NODE_ID; default: the host's name)",
			"several nodes have the id %s: %s%s", id, among, some(addrs[id]))
	}
}

// isolation adds that this node's own side is the one cut off, and reports whether it is: of several other regions it
// receives nothing. With one other region nobody can tell which of the two is cut off.
func (n *Node) isolation(s *status.Status, add func(level, do, format string, args ...any)) bool {
	var away []string
	var since time.Time
	who := "this node"
	for _, r := range s.Regions {
		switch {
		case r.Own:
			if slices.ContainsFunc(r.Members, func(m status.Member) bool { return m.Reachable && !m.Self }) {
				who = "region " + r.Name + ", which this node is in,"
			}
		case r.Reachable:
			return false
		case r.Down:
		default:
			away = append(away, fmt.Sprintf("%s (%s)", cmp.Or(r.Name, "unknown"), keeps(r)))
			if r.Since.After(since) {
				since = r.Since
			}
		}
	}
	if len(away) < 2 {
		return false
	}
	add("warn", "look at this side first, its network and its firewall: all other regions at once are unlikely to be "+
		"down; ask a node of theirs, which sees the rest. Counts agree again within seconds of the heal",
		"%s is cut off from all other regions since %s: %s", who, timeOfDay(since), some(away))
	return true
}

// keeps says which part of the limits the nodes of a region admit that is cut off.
func keeps(r status.Region) string {
	part := "the part of the limits that they were asked for before"
	if r.Share != nil {
		part = fmt.Sprintf("about %.0f %% of the limits", 100**r.Share)
	}
	verb := " keep "
	if len(r.Members) == 1 {
		verb = " keeps "
	}
	return plural(len(r.Members), "node") + verb + part
}

// sparedFindings adds which bans are not exported. A client can cause that, so it is no trouble of the node.
func (n *Node) sparedFindings(add func(level, do, format string, args ...any)) {
	for _, x := range n.exporters {
		s := x.Stats()
		if s.Spared == 0 {
			continue
		}
		do := "ban the rest of the prefix"
		if s.Because == bans.Protected {
			do = "if that is a proxy's address, set requests.trusted_proxies: until then its visitors are one client"
		}
		add("warn", do, "%s of addresses not exported to %s, such as %v: %v", plural(s.Spared, "ban"), s.Name,
			s.Example, s.Because)
	}
}

// trafficFindings adds whom the node denies most, and how far a limit may be exceeded: neither is a trouble of the
// cluster. In trouble the lines above say what makes the bound large.
func (n *Node) trafficFindings(s *status.Status, trouble bool, add func(level, do, format string, args ...any)) {
	if len(s.Top) > 0 {
		d := s.Top[0]
		how := "expose: identity for the rule"
		if r, _ := n.policy.Load().set.Lookup(d.Rule, ""); r != nil && r.HasSecretKey() {
			how = "the file says that it is secret"
		}
		who, do := "#"+d.Key, fmt.Sprintf("nothing: the rule does its work. Who it is: %s; how many more there are: "+
			"edgelimit top %s", how, d.Rule)
		if d.Identity != "" {
			who, do = d.Identity, fmt.Sprintf("nothing: the rule does its work. What it used, region by region: "+
				"edgelimit inspect %s %s", d.Rule, argument(d.Identity))
		}
		add("info", do, "rule %s denies %s most: %s by this node in the last minutes", d.Rule, who, times(d))
	}
	loosest := -1
	for i := range s.Limits {
		if b := s.Limits[i].Bound; b >= 0.0005 && (loosest < 0 || b > s.Limits[loosest].Bound) {
			loosest = i
		}
	}
	if loosest >= 0 {
		unseen := trouble || slices.ContainsFunc(s.Regions, func(r status.Region) bool {
			return slices.ContainsFunc(r.Members, func(m status.Member) bool { return !m.Reachable })
		})
		l := &s.Limits[loosest]
		shown := "there is no estimate for this rule"
		if l.Over != nil {
			shown = fmt.Sprintf("the counts that have arrived show %.1f %% (estimated)", 100**l.Over)
		}
		do := "nothing, unless the limit must hold exactly: then make the rule strict. After an outage it falls " +
			"within a window of the rule"
		if unseen {
			do = "what the lines above say: the guarantee covers what this node cannot see, and falls within a " +
				"window of the rule after the heal"
		}
		add("info", do, "over the limit: rule %s by at most %.1f %% in all nodes together (guaranteed); %s", l.Rule,
			100*l.Bound, shown)
	}
}

// overrideFindings adds for how many identities another limit is in force than the one that the rule's row shows.
func (n *Node) overrideFindings(add func(level, do, format string, args ...any)) {
	now := n.clock.Now()
	var of []string
	for _, r := range n.policy.Load().set.Rules() {
		if count := r.OverridesAt(now); count > 0 {
			of = append(of, fmt.Sprintf("%s (%d)", r.Name, count))
		}
	}
	if len(of) > 0 {
		add("info", "nothing, if they are meant. Which they are, and until when: edgelimit limits list; to take one "+
			"back: edgelimit limits unset", "identities with limits of their own: rule %s", some(of))
	}
}

// argument is an identity as an argument of a command that an operator may paste into a shell. Clients choose it: one
// that a shell could take for more than a word is not repeated.
func argument(identity string) string {
	for i, c := range []byte(identity) {
		plain := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !plain && (i == 0 && c != ':' || !strings.ContainsRune("._:/@-", rune(c))) {
			return "IDENTITY"
		}
	}
	return identity
}

// times is how often somebody was denied.
func times(d status.Denied) string {
	if d.Error > 0 {
		return fmt.Sprintf("%d to %s", d.Denials-min(d.Error, d.Denials), plural(int(d.Denials), "denial"))
	}
	return plural(int(d.Denials), "denial")
}

// some joins the first names of a list.
func some(names []string) string { return telemetry.FirstNames(names, 5) }

// timeOfDay is a time as a person reads it who looks now, in UTC.
func timeOfDay(t time.Time) string {
	if time.Since(t).Abs() > 12*time.Hour {
		return t.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	return t.UTC().Format("15:04:05 UTC")
}

func plural(count int, what string) string {
	if count == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", count, what)
}
