package rulefile

import (
	"cmp"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// defaultMaxPressure is the default of max_pressure.
const defaultMaxPressure = 0.5

// child is an elastic rule whose parent is looked up once all files are read.
type child struct {
	rule   *rules.Rule
	file   *parser
	parent *yaml.Node // its name
}

// elastic reads the keys of elastic rules.
func (p *parser) elastic(r *rules.Rule, src *source) {
	f, parent := src.limit, src.limit["parent"]
	mode := f["mode"]
	r.Elastic = mode != nil && mode.Value == "elastic"
	r.MaxPressure = p.maxPressure(r.Elastic && parent == nil, f["max_pressure"])
	if r.Elastic {
		p.refuse(f, "is not for mode: elastic: the rule and what it borrows from count the same", "cost")
		p.refuse(f, "is not for mode: elastic: what is denied there depends on what others leave", "ban",
			"count_rejected")
	}
	switch name, ok := p.text(parent, "parent"); {
	case parent == nil || !ok:
	case !r.Elastic:
		p.add(parent, "parent is for mode: elastic")
	case name == "":
		p.add(parent, "the parent is empty: name a rule of the domain, or leave it out to borrow from the idle system")
	default:
		p.children = append(p.children, child{r, p, parent})
	}
}

// maxPressure reads the pressure up to which a rule admits more.
func (p *parser) maxPressure(wanted bool, n *yaml.Node) float64 {
	switch {
	case n == nil && wanted:
		return defaultMaxPressure
	case n == nil:
		return 0
	case !wanted:
		p.add(n, "max_pressure is for mode: elastic without a parent")
		return 0
	}
	return p.number(n, "max_pressure", "number", 1)
}

// adopt finds the parent, and reports what is wrong with it.
func (c *child) adopt() {
	p, r, name := c.file, c.rule, c.parent.Value
	parent, ambiguous := p.set.Lookup(name, r.Domain)
	switch {
	case ambiguous != "":
		p.add(c.parent, "%s", ambiguous)
	case parent == nil:
		p.add(c.parent, "%s", unknownParent(p.set, name, r.Domain))
	case parent == r:
		p.add(c.parent, "the rule would be its own parent: name another one")
	case parent.Elastic:
		p.add(c.parent, "parent %.32q is elastic itself: what is borrowed may not be lent again", name)
	case parent.Limit == nil:
		p.add(c.parent, "parent %.32q has no limit that could be borrowed from", name)
	case parent.Limit.Tallies():
		p.add(c.parent, "parent %.32q counts every request, as envoyproxy/ratelimit does: give it another algorithm",
			name)
	case parent.Strict:
		p.add(c.parent, "parent %.32q is strict: what is borrowed is counted in each node", name)
	case parent.Cost > 1:
		p.add(c.parent, "parent %.32q has a cost: it and who borrows from it count the same", name)
	case parent.Ban > 0 || parent.CountRejected:
		p.add(c.parent, "parent %.32q has a ban or counts what it rejects: its elastic rules would pass all the same",
			name)
	case parent.ChargesLater():
		p.add(c.parent, "parent %.32q charges responses: it and who borrows from it count the same", name)
	case !appliesWherever(parent.Regions, r.Regions):
		p.add(c.parent, "parent %.32q is not in force wherever the rule is: give both the same regions", name)
	case r.Limit != nil && perSecond(r.Limit) > perSecond(parent.Limit):
		p.add(c.parent, "the rule guarantees more than its parent %.32q has: %s, of %s", name,
			rules.DescribeLimit(r.Limit, 0), rules.DescribeLimit(parent.Limit, parent.Margin))
	default:
		r.Borrow(parent)
	}
}

// appliesWherever reports whether regions include others; an empty list is all regions.
func appliesWherever(regions, others []string) bool {
	absent := func(other string) bool { return !slices.Contains(regions, other) }
	return len(regions) == 0 || len(others) > 0 && !slices.ContainsFunc(others, absent)
}

// perSecond returns the long-term rate of a limit.
func perSecond(l *counters.Limit) float64 {
	return float64(cmp.Or(l.Refill(), l.Max())) / l.Meter().Window.Seconds()
}

// unknownParent returns the error for a parent that no rule of the domain is called.
func unknownParent(s *rules.Set, name, domain string) string {
	const max = 200 // there may be thousands
	var names []string
	for _, r := range s.Rules() {
		if len(names) < max && r.Domain == domain && !slices.Contains(names, r.Name) {
			names = append(names, r.Name)
		}
	}
	if more := len(names) - 8; more > 0 && rules.Nearest(name, names) == "" {
		names = append(names[:8], fmt.Sprintf("and %d more", more))
	}
	return unknown("rule", name, "the domain", names)
}
