package rules

import (
	"fmt"
	"math"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/counters"
)

// maxSoftPercent is the most that a soft rule may admit beyond what it promises.
const maxSoftPercent = 1000

// choices are the words that a key may be given, the default first, and those of them that this version does not do yet.
var choices = map[string]struct{ words, later []string }{
	"mode":         {[]string{"hard", "soft", "elastic"}, nil},
	"scope":        {[]string{"global", "region", "node"}, nil},
	"on_partition": {[]string{"share", "local"}, nil},
	"consistency":  {[]string{"approximate", "strict"}, []string{"strict"}},
	"on_failure":   {[]string{"local", "open", "closed"}, []string{"open", "closed"}},
	"charge":       {[]string{"all", "each"}, nil},
}

// choice reads one of the words of a key, the default where it is missing.
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

// later refuses what is known and not done yet: a rule that promised it would not keep its word.
func (p *parser) later(n *yaml.Node, what string) {
	p.add(n, "%s comes later: this version does not do it yet, leave it out", what)
}

// policy reads what is to be done with the requests of a rule.
func (p *parser) policy(src *source) Policy {
	f := src.limit
	policy := Policy{Cost: 1, Each: p.choice(src, "charge") == "each"}
	policy.OnPartition, _ = counters.ParsePartition(p.choice(src, "on_partition"))
	policy.Scope = p.scope(src)
	if n := f["max_unsent"]; n != nil {
		policy.MaxUnsent, _ = p.amount(n, "max_unsent")
	}
	if n := f["cost"]; n != nil {
		policy.Cost, _ = p.wholeUpTo(n, "cost", 1, maxCost)
	}
	policy.Mode = p.mode(src)
	policy.Ban = p.ban(f["ban"])
	policy.CountRejected, _ = p.flag(f, "count_rejected")
	for _, key := range []string{"consistency", "on_failure"} {
		p.choice(src, key)
	}
	p.notYet(src)
	return policy
}

// scope reads which nodes keep the limit together. What a rule says of the others makes no sense where there are none.
func (p *parser) scope(src *source) counters.Scope {
	s, _ := counters.ParseScope(p.choice(src, "scope"))
	if s != counters.Global {
		p.set.regional = true
	}
	if s == counters.Alone {
		for _, key := range []string{"on_partition", "max_unsent"} {
			if n := src.limit[key]; n != nil {
				p.add(n, "%s is for limits that nodes keep together, and the scope is %s", key, s)
			}
		}
	}
	return s
}

// mode reads how a rule is enforced, from all the keys that say so.
func (p *parser) mode(src *source) counters.Mode {
	mode := counters.Enforce
	word := p.choice(src, "mode")
	soft, percent := word == "soft", src.limit["soft_percent"]
	switch {
	case soft && percent == nil:
		p.add(src.limit["mode"], "mode: soft needs a soft_percent: how much over the limit may pass")
	case percent != nil && !soft:
		p.add(percent, "soft_percent is for mode: soft")
	case soft:
		_, _ = p.wholeUpTo(percent, "soft_percent", 1, maxSoftPercent)
		mode = counters.Soft
	case word == "elastic":
		mode = counters.Elastic
	}
	if quota, _ := p.flag(src.beside, "quota_mode"); quota {
		if mode == counters.Elastic {
			p.add(src.beside["quota_mode"], "quota_mode and mode: elastic exclude each other: remove one of them")
		}
		mode = counters.Quota
	}
	if shadow, _ := p.flag(src.beside, "shadow_mode"); shadow {
		mode = counters.Shadow
	}
	return mode
}

// ban reads for how long a rule bans whom it denies; 0 where it does not.
func (p *parser) ban(n *yaml.Node) time.Duration {
	if n == nil {
		return 0
	}
	d, ok := p.duration(n, "ban")
	if ok && (d%time.Millisecond != 0 || d > counters.MaxWindow) {
		p.add(n, "ban %v must be whole milliseconds, at most %v", d, counters.MaxWindow)
		return 0
	}
	return d
}

// with returns the limit with what the rule's policy says of it, nil after a problem.
func (p *parser) with(policy *Policy, src *source, l *counters.Limit) *counters.Limit {
	l = l.OnPartition(policy.OnPartition).MaxUnsent(policy.MaxUnsent)
	var err error
	if policy.CountRejected {
		if l, err = l.CountRejected(); err != nil {
			p.add(src.limit["count_rejected"], "count_rejected is for windows and logs: %v", err)
			return nil
		}
	}
	if policy.Ban > 0 {
		if l, err = l.Ban(policy.Ban); err != nil {
			p.add(src.limit["ban"], "%v", err)
			return nil
		}
	}
	return l
}

// softMargin returns how much a rule admits beyond what it promises.
func softMargin(f map[string]*yaml.Node, promised uint64) uint64 {
	var percent uint64
	if n := f["soft_percent"]; n == nil || n.Decode(&percent) != nil || percent > maxSoftPercent {
		return 0 // what is wrong with it is reported elsewhere
	}
	return min(promised*percent/100, math.MaxInt64)
}

// notYet checks what no rule can have yet, and refuses it.
func (p *parser) notYet(src *source) {
	f := src.limit
	if name, ok := p.text(f["home_region"], "home_region"); ok && f["home_region"] != nil {
		p.later(f["home_region"], fmt.Sprintf("home_region: %.80s", name))
	}
}
