package rulefile

import (
	"cmp"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// source is the YAML of a rule: the map of its limit, and the one beside it, which are the same map in the flat form.
type source struct {
	*form
	node   *yaml.Node
	limit  map[string]*yaml.Node
	beside map[string]*yaml.Node
}

// secondLimit says how a value gets a second limit.
const secondLimit = "for a second limit of the same value, give it a descriptor with a key of its own and the same " +
	"source, as {key: %[1]s_2, from: client, rate_limit: ...}, or have requests send the value as %[1]s_2, too"

// rateLimit reads the rate_limit of a descriptor, if any.
func (p *parser) rateLimit(descriptor map[string]*yaml.Node, at place) {
	detailed := p.flag(descriptor, "detailed_metric")
	n := descriptor["rate_limit"]
	if n == nil {
		p.refuse(descriptor, "is for a descriptor with a rate_limit", "allow", "deny", "schedule")
		for _, key := range []string{"shadow_mode", "quota_mode"} {
			p.flag(descriptor, key)
		}
		return
	}
	if key, _ := p.text(descriptor["key"], "key"); n.Kind == yaml.SequenceNode {
		p.add(n, "a rate_limit must be a map, not a list: "+secondLimit, key)
		return
	}
	f := p.fields(n, "a rate_limit", rateLimitKeys)
	if f == nil {
		return
	}
	name, _ := p.text(f["name"], "name")
	if long := len(name) > counters.MaxRuleName; long && p.compatible {
		p.warn(f["name"], "the name has %d bytes, more than the %d that are usual", len(name), counters.MaxRuleName)
	} else if long {
		p.add(f["name"], "the name has %d bytes, at most %d are allowed", len(name), counters.MaxRuleName)
	}
	r := rules.NewRule(at.Place)
	r.DetailedMetric, r.Given = detailed, name
	var replaced []*yaml.Node
	r.Replaces, replaced = p.replaces(f["replaces"], name)
	src := &source{form: treeForm, node: n, limit: f, beside: descriptor}
	p.rule(r, at.Steps[len(at.Steps)-1], src)
	if at.unreachable {
		return
	}
	if p.compatible {
		r.Reference = p.referenceOf(src)
	}
	at.node.Rule = r
	p.set.Add(r)
	if len(r.Replaces) > 0 {
		p.replacing = append(p.replacing, &replacement{file: p, rule: r, at: replaced})
	}
}

// rule reads what both forms have in common; last is the step of the rule's last key.
func (p *parser) rule(r *rules.Rule, last rules.Step, src *source) {
	r.Policy, r.After = p.policy(src), p.after(src)
	p.elastic(r, src)
	p.exports(r, src)
	if r.Scope != counters.Global && len(r.FullName) > counters.MaxScopedRule {
		p.add(src.limit["scope"], "the full name %.40s... has %d bytes, at most %d are allowed with scope: %s",
			r.FullName, len(r.FullName), counters.MaxScopedRule, r.Scope)
	}
	r.Metadata = p.metadata(src.beside["metadata"])
	r.Lists = p.addresses(src.beside)
	if r.Lists != nil && !last.Open {
		p.add(cmp.Or(src.beside["allow"], src.beside["deny"]),
			"allow and deny are for a key whose values are counted one by one")
	}
	before := p.found
	switch unlimited := p.flag(src.limit, "unlimited"); {
	case p.found > before:
	case unlimited:
		const why = "and unlimited exclude each other: remove one of them"
		allowed := func(key string) bool { return key == src.max } // by the reference server, too
		p.refuse(src.limit, why, slices.DeleteFunc(src.limitKeys().names(), allowed)...)
		p.refuse(src.beside, why, "schedule")
	default:
		if p.limited++; r.Ban > 0 {
			p.limited++
			if r.ExportAddress {
				p.limited++
			}
		}
		if p.limited > MaxLimited {
			p.stop(src.node, "there are more than %d rules with a limit, where one with a ban counts twice", MaxLimited)
			return
		}
		limit := func(number *yaml.Node) (*counters.Limit, uint64) {
			l, margin := p.limit(src, r.FullName, number)
			if l != nil {
				l = p.with(r, src, l)
			}
			return l, margin
		}
		r.Limit, r.Margin = limit(src.limit[src.max])
		r.Schedule = p.schedule(src.beside["schedule"], src.form, limit)
	}
}
