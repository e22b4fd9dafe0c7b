package rulefile

import (
	"fmt"
	"slices"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Stores are the stores that strict rules are decided by, as a node knows them.
type Stores struct {
	Region string   // of the node
	Known  []string // the regions whose Redis the node knows, its own included; nil: nobody can say
	// Check returns why the stores cannot have a limit.
	Check func(*counters.Limit) error
}

// unleased are the keys of rules that each request is decided for by itself.
var unleased = []string{"queue", "max_delay", "soft_percent", "charge_on", "cost_from", "count_rejected"}

// strict reads the keys of strict rules.
func (p *parser) strict(src *source, policy *rules.Policy) {
	f := src.limit
	if p.choice(src, "consistency") != "strict" {
		p.refuse(f, "is for consistency: strict", "home_region", "lease")
		return
	}
	const why = "and consistency: strict exclude each other: "
	policy.Strict, policy.Lease = true, p.whole(f, "lease", 0)
	if p.compatible {
		p.add(f["consistency"], "consistency: strict is for domains without compatibility: %s, in which rules count "+
			"what they deny: put the rule into a document with compatibility: none", Ratelimit)
	}
	p.refuse(f, why+"one store decides, whoever else is unreachable; on_failure says what happens without it",
		"on_partition", "max_unsent")
	if p.flag(src.beside, "quota_mode") {
		p.refuse(src.beside, why+"quotas are counted in one place", "quota_mode")
	}
	if policy.Each && f["charge"] != nil {
		p.add(f["charge"], "charge: each "+why+"a request that a node denies never reaches the store")
	}
	if p.choice(src, "mode") == "elastic" {
		p.add(f["mode"], "mode: elastic "+why+"what is borrowed is counted in each node")
	}
	if f["lease"] != nil {
		p.refuse(f, "and lease exclude each other: remove one of them", unleased...)
	}
	p.home(src, policy)
}

// home reads whose Redis decides on a strict rule.
func (p *parser) home(src *source, policy *rules.Policy) {
	f := src.limit
	n := f["home_region"]
	name, ok := p.text(n, "home_region")
	switch {
	case policy.Scope == counters.Alone:
		p.add(f["scope"], "scope: node and consistency: strict exclude each other: a node that counts alone is exact, "+
			"leave consistency out")
	case policy.Scope == counters.Region:
		p.refuse(f, "is for scope: global: with scope: region the Redis of each region decides", "home_region")
	case n == nil:
		p.add(f["consistency"], "consistency: strict needs a home_region, whose Redis decides for all regions, as in "+
			"home_region: eu-west; or scope: region")
	case !ok:
	case name == "" || len(name) > counters.MaxRegion:
		p.add(n, "home_region %.32q: want the name of a region, of 1 to %d bytes", name, counters.MaxRegion)
	default:
		policy.HomeRegion = name
	}
}

// check returns why the stores cannot decide on a rule with a limit. A nil Stores knows of no reason.
func (s *Stores) check(r *rules.Rule, l *counters.Limit) error {
	if s == nil || !r.Strict {
		return nil
	}
	home := r.Home(s.Region)
	if s.Known != nil && rules.AppliesIn(r.Regions, s.Region) && home != "" && !slices.Contains(s.Known, home) {
		return fmt.Errorf("consistency: strict needs the Redis of region %.32q, which this node does not know: %s",
			home, s.setting(home))
	}
	if s.Check != nil {
		return s.Check(l)
	}
	return nil
}

// setting says where the Redis of a region is set.
func (s *Stores) setting(home string) string {
	if home == s.Region {
		return "set redis.url in its configuration (--redis)"
	}
	return fmt.Sprintf("set strict.redis in its configuration, as in {%s: {url: redis://host:6379}}", home)
}
