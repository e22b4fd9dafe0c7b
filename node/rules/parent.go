package rules

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/counters"
)

// defaultMaxPressure is up to which pressure an elastic rule without a parent lets more pass, unless it says so itself.
const defaultMaxPressure = 0.5

// child is an elastic rule whose parent is looked for once all files are read.
type child struct {
	rule   *Rule
	file   *parser
	parent *yaml.Node // its name
}

// elastic reads what is for elastic rules only.
func (p *parser) elastic(r *Rule, src *source) {
	f, parent := src.limit, src.limit["parent"]
	mode := f["mode"]
	r.elastic = mode != nil && mode.Value == "elastic"
	r.MaxPressure = p.maxPressure(r.elastic && parent == nil, f["max_pressure"])
	if f["cost"] != nil && r.elastic {
		p.add(f["cost"], "cost is not for mode: elastic: the rule and what it borrows from count the same")
	}
	for _, key := range []string{"ban", "count_rejected"} {
		if f[key] != nil && r.elastic {
			p.add(f[key], "%s is not for mode: elastic: what is denied there depends on what others leave", key)
		}
	}
	switch name, ok := p.text(parent, "parent"); {
	case parent == nil || !ok:
	case !r.elastic:
		p.add(parent, "parent is for mode: elastic")
	case name == "":
		p.add(parent, "the parent is empty: name a rule of the domain, or leave it out to borrow from the idle system")
	default:
		p.children = append(p.children, child{r, p, parent})
	}
}

// maxPressure reads up to which pressure a rule lets more pass.
func (p *parser) maxPressure(wanted bool, n *yaml.Node) (most float64) {
	switch {
	case n == nil && wanted:
		return defaultMaxPressure
	case n == nil:
		return 0
	case !wanted:
		p.add(n, "max_pressure is for mode: elastic without a parent")
		return 0
	}
	number := n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!int" || n.ShortTag() == "!!float") && n.Decode(&most) == nil
	if !number || !(most > 0 && most <= 1) {
		p.add(n, "max_pressure must be a number above 0, at most 1, not %s", describe(n))
		return 0
	}
	return most
}

// adopt finds the parent, and says what is wrong with it.
func (c *child) adopt() {
	p, r, name := c.file, c.rule, c.parent.Value
	parent, ambiguous := p.set.named(name, r.Domain)
	switch {
	case ambiguous:
		p.add(c.parent, "%s", p.set.ambiguity(name, r.Domain))
	case parent == nil:
		p.add(c.parent, "%s", p.set.unknownParent(name, r.Domain))
	case parent == r:
		p.add(c.parent, "the rule would be its own parent: name another one")
	case parent.elastic:
		p.add(c.parent, "parent %.80q is elastic itself: what is borrowed may not be lent again", name)
	case parent.Limit == nil:
		p.add(c.parent, "parent %.80q has no limit that could be borrowed from", name)
	case parent.Cost > 1:
		p.add(c.parent, "parent %.80q has a cost: it and who borrows from it count the same", name)
	case parent.Ban > 0 || parent.CountRejected:
		p.add(c.parent, "parent %.80q has a ban or counts what it rejects: what is promised would pass all the same", name)
	case !appliesWherever(parent.Regions, r.Regions):
		p.add(c.parent, "parent %.80q is not in force wherever the rule is: give both the same regions", name)
	case r.Limit != nil && perSecond(r.Limit) > perSecond(parent.Limit):
		p.add(c.parent, "the rule promises more than its parent %.80q has: %s, of %s", name,
			describeLimit(r.Limit, 0), describeLimit(parent.Limit, parent.Margin))
	default:
		r.parent, r.Parent = parent, parent.FullName
		r.brings = len(parent.open) == 0 || len(parent.path) < len(r.path) && slices.Equal(parent.path, r.path[:len(parent.path)])
	}
}

// appliesWherever reports whether what is in force in some regions is so in all of others; none are all.
func appliesWherever(regions, others []string) bool {
	if len(regions) == 0 {
		return true
	}
	return len(others) > 0 && !slices.ContainsFunc(others, func(other string) bool { return !slices.Contains(regions, other) })
}

// perSecond is how much a limit admits in the long run.
func perSecond(l *counters.Limit) float64 {
	amount := l.Max()
	if l.Refill() > 0 {
		amount = l.Refill()
	}
	return float64(amount) / l.Meter().Window.Seconds()
}

// unknownParent says that no rule of the domain has the name, and which do.
func (s *Set) unknownParent(name, domain string) string {
	const most = 200 // there may be thousands
	var names []string
	for _, r := range s.rules {
		if len(names) < most && r.Domain == domain && !slices.Contains(names, r.Name) {
			names = append(names, r.Name)
		}
	}
	if nearest(name, names) == "" {
		names = some(names)
	}
	return unknown("rule", name, "the domain", names)
}

// borrows reports whether the layer goes to its rule's parent for what the rule has no room for. Who is on a list is beyond that.
func (m *Match) borrows() bool {
	return m.Rule != nil && m.Rule.parent != nil && m.Rule.Mode == counters.Elastic && m.Listed == Unlisted
}

// findLender finds the layer of its rule's parent that the elastic layer i of a request borrows from, among those from first on. A parent that
// the request does not meet by itself is met as one more layer, at the end, if its key is known: that of an ancestor from the entries, that of
// a rule with one count for everybody always. A parent that another rule replaces is not met.
func findLender(dst []Match, first, i int, entries []Entry, secret Secret) ([]Match, error) {
	layers, child := dst[first:], dst[first+i].Rule
	parent := child.parent
	met := Match{Rule: parent}
	if child.brings {
		met.Key = parent.key(secret, entries)
		if parent.listed != nil { // then its last key is open, and the parent an ancestor
			met.Listed = parent.listing(entries[len(parent.path)-1].Value)
		}
	}
	at := slices.IndexFunc(layers, func(m Match) bool { return m.Rule == parent && (!child.brings || m.Key == met.Key) })
	switch {
	case at >= 0:
	case !child.brings || replacedBy(parent, layers) != nil:
		return dst, nil
	case len(layers) == MaxDescriptors:
		return dst, invalid("it meets more than %d limits, with the parents of elastic rules: send fewer descriptors", MaxDescriptors)
	default:
		at = len(layers)
		dst = append(dst, met)
	}
	dst[first+i].lender = uint8(at + 1)
	return dst, nil
}
