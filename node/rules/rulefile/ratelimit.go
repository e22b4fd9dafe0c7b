package rulefile

import (
	"cmp"
	"math"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

const day = 24 * time.Hour

// units are the windows with names.
var units = []struct {
	name   string
	window time.Duration
}{
	{"second", time.Second},
	{"minute", time.Minute},
	{"hour", time.Hour},
	{"day", day},
	{"week", 7 * day},
	{"month", 30 * day},
	{"year", 365 * day},
}

// source is the YAML of a rule: the map of its limit, and the one beside it, which are the same map in the flat form.
type source struct {
	*form
	node   *yaml.Node
	limit  map[string]*yaml.Node
	beside map[string]*yaml.Node
}

// rateLimit reads the rate_limit of a descriptor, if any.
func (p *parser) rateLimit(descriptor map[string]*yaml.Node, at place) {
	n := descriptor["rate_limit"]
	if n == nil {
		for _, key := range []string{"allow", "deny", "schedule"} {
			if descriptor[key] != nil {
				p.add(descriptor[key], "%s is for a descriptor with a rate_limit", key)
			}
		}
		for _, key := range []string{"shadow_mode", "quota_mode"} {
			_, _ = p.flag(descriptor, key)
		}
		p.ignored(descriptor)
		return
	}
	f, ok := p.fields(n, "a rate_limit", rateLimitKeys)
	if !ok {
		return
	}
	name, ok := p.text(f["name"], "name")
	if ok && len(name) > counters.MaxRuleName {
		p.add(f["name"], "the name has %d bytes, at most %d are allowed", len(name), counters.MaxRuleName)
	}
	r := rules.NewRule(at.Place)
	if name != "" {
		r.Name = name
	}
	r.Replaces = p.replaces(f["replaces"], name)
	p.ignored(descriptor)
	p.rule(r, at.Steps[len(at.Steps)-1], &source{form: treeForm, node: n, limit: f, beside: descriptor})
	at.node.Rule = r
	p.set.Add(r)
}

// rule reads what both forms have in common; last is the step of the rule's last key.
func (p *parser) rule(r *rules.Rule, last rules.Step, src *source) {
	r.Policy = p.policy(src)
	p.elastic(r, src)
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
	switch unlimited, ok := p.flag(src.limit, "unlimited"); {
	case !ok:
	case unlimited:
		p.unlimited(src)
	default:
		if p.limited++; r.Ban > 0 {
			p.limited++
		}
		if p.limited > MaxLimited {
			p.stop(src.node, "there are more than %d rules with a limit, where one with a ban counts twice", MaxLimited)
			return
		}
		limit := func(number *yaml.Node) (*counters.Limit, uint64) {
			l, margin := p.limit(src, r.FullName, number)
			if l != nil {
				l = p.with(&r.Policy, src, l)
			}
			return l, margin
		}
		r.Limit, r.Margin = limit(src.limit[src.max])
		r.Schedule = p.schedule(src.beside["schedule"], src.form, limit)
	}
}

// unlimited reports keys that an unlimited rule cannot have. It accepts the number, as the reference server does.
func (p *parser) unlimited(src *source) {
	for _, key := range src.limitKeys().names() {
		if src.limit[key] != nil && key != src.max {
			p.add(src.limit[key], "%s and unlimited exclude each other: remove one of them", key)
		}
	}
	if src.beside["schedule"] != nil {
		p.add(src.beside["schedule"], "schedule and unlimited exclude each other: remove one of them")
	}
}

// replaces reads the names of the rules that the rule called name replaces.
func (p *parser) replaces(n *yaml.Node, name string) (names []string) {
	for item := range p.items(n, "replaces") {
		f, ok := p.fields(item, "an entry of replaces", replacesKeys)
		if !ok {
			continue
		}
		other, ok := p.required(item, f, "name", "an entry of replaces")
		switch {
		case !ok:
		case other == name:
			p.add(f["name"], "the rule would replace itself: name another one")
		default:
			names = append(names, other)
		}
	}
	return names
}

// ignored checks keys of the reference server that have no effect here: no metric is named after a request's values.
func (p *parser) ignored(descriptor map[string]*yaml.Node) {
	for _, key := range []string{"detailed_metric", "value_to_metric"} {
		_, _ = p.flag(descriptor, key)
	}
}

// flag reads a boolean, false if it is missing.
func (p *parser) flag(f map[string]*yaml.Node, key string) (yes, ok bool) {
	n := f[key]
	if n == nil {
		return false, true
	}
	if n.Kind != yaml.ScalarNode || isNull(n) || n.Decode(&yes) != nil {
		p.add(n, "%s must be true or false, not %s", key, describe(n))
		return false, false
	}
	return yes, true
}

// complete reads a number within the range of its key.
func (p *parser) complete(n *yaml.Node, key string) (v uint64, ok bool) {
	r := ranges[key]
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Decode(&v) != nil || v < r.min || v > r.max {
		p.add(n, "%s must be a whole number from %d to %d, not %s", key, r.min, r.max, describe(n))
		return 0, false
	}
	return v, true
}

// window reads the window under the keys of the form.
func (p *parser) window(src *source) (time.Duration, bool) {
	f := src.limit
	switch {
	case f["unit"] != nil && f["window"] != nil:
		p.add(f["window"], "unit and window exclude each other: remove one of them")
		return 0, false
	case f["unit"] != nil:
		return p.unit(f["unit"])
	case f["window"] != nil:
		return p.duration(f["window"], "window")
	case f["window_seconds"] != nil:
		return p.seconds(f["window_seconds"], "window_seconds")
	}
	p.add(src.node, "%s needs a %s, or unlimited: true", src.what, strings.Join(src.windows.names(), " or a "))
	return 0, false
}

// seconds reads a number of seconds, which may be fractional.
func (p *parser) seconds(n *yaml.Node, what string) (time.Duration, bool) {
	var s float64
	number := n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!int" || n.ShortTag() == "!!float") && n.Decode(&s) == nil
	if !number || !(s > 0) || s > counters.MaxWindow.Seconds() {
		p.add(n, "%s must be a number of seconds above 0, at most %.0f, not %s", what, counters.MaxWindow.Seconds(),
			describe(n))
		return 0, false
	}
	return time.Duration(math.Round(s * float64(time.Second))), true
}

func (p *parser) duration(n *yaml.Node, what string) (time.Duration, bool) {
	s, ok := p.text(n, what)
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		p.add(n, "%s %.32q is no duration: write it as 10s, 1m30s or 24h", what, s)
		return 0, false
	}
	if d <= 0 {
		p.add(n, "%s %v must be positive", what, d)
		return 0, false
	}
	return d, true
}

func (p *parser) unit(n *yaml.Node) (time.Duration, bool) {
	s, ok := p.text(n, "unit")
	if !ok {
		return 0, false
	}
	names := make([]string, len(units))
	for i, u := range units {
		if strings.EqualFold(s, u.name) {
			return u.window, true
		}
		names[i] = u.name
	}
	p.add(n, "%s", unknown("unit", s, "a rate_limit", names))
	return 0, false
}
