package rulefile

import (
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// choice reads one of the words of a key, the default if it is missing.
func (p *parser) choice(src *source, key string) string {
	c, n := choices[key], src.limit[key]
	if n == nil {
		return c.words[0]
	}
	word, ok := p.text(n, key)
	switch {
	case !ok:
		return c.words[0]
	case !slices.Contains(c.words, word):
		p.add(n, "%s", unknown("word", word, key, c.words))
	case slices.Contains(c.later, word):
		p.later(n, key+": "+word)
	}
	return word
}

// later refuses what this version does not enforce.
func (p *parser) later(n *yaml.Node, what string) {
	p.add(n, "%s comes later: this version does not do it yet, leave it out", what)
}

// policy reads how a rule is enforced.
func (p *parser) policy(src *source) rules.Policy {
	f := src.limit
	policy := rules.Policy{
		Mode: p.mode(src), Scope: p.scope(src), Each: p.each(src),
		Cost: p.whole(f, "cost", 1), MaxUnsent: p.whole(f, "max_unsent", 0),
		Ban: p.ban(f["ban"]), CountRejected: p.flag(f, "count_rejected"),
	}
	policy.OnPartition, _ = counters.ParsePartition(p.choice(src, "on_partition"))
	if f["overdraw"] != nil {
		policy.Overdraw = rules.OverdrawDeny
		if p.choice(src, "overdraw") == "charge" {
			policy.Overdraw = rules.OverdrawCharge
		}
	}
	for _, key := range []string{"consistency", "on_failure"} {
		p.choice(src, key)
	}
	if name, ok := p.text(f["home_region"], "home_region"); ok && f["home_region"] != nil {
		p.later(f["home_region"], fmt.Sprintf("home_region: %.32s", name))
	}
	return policy
}

// each reads whether the rule charges what it admits, whatever the others say.
func (p *parser) each(src *source) bool {
	return p.choice(src, "charge") == "each" || p.compatible && src.limit["charge"] == nil
}

// scope reads which nodes share the limit. A rule of single nodes has no keys about peers.
func (p *parser) scope(src *source) counters.Scope {
	s, _ := counters.ParseScope(p.choice(src, "scope"))
	if s == counters.Alone {
		p.refuse(src.limit, "is for limits that nodes keep together, and the scope is node", "on_partition",
			"max_unsent")
	}
	return s
}

// mode reads how a rule is enforced, from all keys that matter.
func (p *parser) mode(src *source) counters.Mode {
	mode := counters.Enforce
	word := p.choice(src, "mode")
	percent := src.limit["soft_percent"]
	switch {
	case word == "soft" && percent == nil:
		p.add(src.limit["mode"], "mode: soft needs a soft_percent: how much over the limit may pass")
	case word == "soft":
		mode = counters.Soft
	case percent != nil:
		p.add(percent, "soft_percent is for mode: soft")
	case word == "elastic":
		mode = counters.Elastic
	}
	if p.flag(src.beside, "quota_mode") {
		if mode == counters.Elastic {
			p.refuse(src.beside, "and mode: elastic exclude each other: remove one of them", "quota_mode")
		}
		mode = counters.Quota
	}
	if p.flag(src.beside, "shadow_mode") {
		mode = counters.Shadow
	}
	return mode
}

// ban reads the duration of bans; 0 for none.
func (p *parser) ban(n *yaml.Node) time.Duration {
	d := p.duration(n, "ban")
	if d > 0 && d%time.Millisecond != 0 || d > counters.MaxWindow {
		p.add(n, "ban %v must be whole milliseconds, at most %v", d, counters.MaxWindow)
		return 0
	}
	return d
}

// with returns the limit with the rule's policy, nil after a problem.
func (p *parser) with(policy *rules.Policy, src *source, l *counters.Limit) *counters.Limit {
	l = l.OnPartition(policy.OnPartition).MaxUnsent(policy.MaxUnsent)
	var err error
	if policy.CountRejected {
		if l, err = l.CountRejected(); err != nil {
			p.add(src.limit["count_rejected"], "count_rejected is for windows and logs: %v", err)
			return nil
		}
	}
	if policy.Overdraw == rules.OverdrawCharge && l.Meter().Algorithm == counters.LeakyQueue {
		p.add(src.limit["overdraw"], "overdraw: charge is not for a queue: what it has no place for does not wait")
		return nil
	}
	if p.tallies(policy, l) {
		l, _ = l.Tally() // a fixed window has no error
	}
	if policy.Ban > 0 {
		if l, err = l.Ban(policy.Ban); err != nil {
			p.add(src.limit["ban"], "%v", err)
			return nil
		}
	}
	return l
}

// tallies reports whether a rule counts as envoyproxy/ratelimit does: everything, and compares afterwards. A rule that
// says how it counts does not.
func (p *parser) tallies(policy *rules.Policy, l *counters.Limit) bool {
	isPlain := policy.Mode != counters.Soft && policy.Mode != counters.Elastic && !policy.CountRejected &&
		policy.Overdraw == rules.OverdrawByAPI
	return p.compatible && isPlain && l.Meter().Algorithm == counters.FixedWindow
}
