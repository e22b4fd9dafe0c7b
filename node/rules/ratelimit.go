package rules

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/counters"
)

const day = 24 * time.Hour

// units are the windows that have a name, the shortest first.
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

// source is what a rule is read from: the map of its limit, and that of what stands beside the limit. The flat form has one for both.
type source struct {
	*form
	node   *yaml.Node
	limit  map[string]*yaml.Node
	beside map[string]*yaml.Node
}

// rateLimit reads the rate_limit of a descriptor into a rule at the place; without one there is no rule.
func (p *parser) rateLimit(descriptor map[string]*yaml.Node, at place) {
	n := descriptor["rate_limit"]
	if n == nil {
		for _, key := range slices.Concat(listKeys, []string{"schedule"}) {
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
	r := newRule(at)
	if name != "" {
		r.Name = name
	}
	r.Replaces = p.replaces(f["replaces"], name)
	p.ignored(descriptor)
	p.rule(r, &source{form: treeForm, node: n, limit: f, beside: descriptor})
	at.node.rule = r
	p.set.put(r)
}

// rule reads what both forms have in common.
func (p *parser) rule(r *Rule, src *source) {
	r.Policy = p.policy(src)
	p.elastic(r, src)
	if r.Scope != counters.Global && len(r.FullName) > counters.MaxScopedRule {
		p.add(src.limit["scope"], "the full name %.40s... has %d bytes, at most %d are allowed with scope: %s", r.FullName, len(r.FullName),
			counters.MaxScopedRule, r.Scope)
	}
	r.Metadata = p.metadata(src.beside["metadata"])
	r.listed = p.addresses(src.beside)
	if last := r.steps[len(r.steps)-1]; r.listed != nil && !last.open {
		p.add(cmp.Or(src.beside["allow"], src.beside["deny"]), "allow and deny are for a key whose values are counted one by one")
	}
	blocked := counters.NewMeter(r.FullName, counters.FixedWindow, time.Second)
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
		limit := func(most *yaml.Node) (*counters.Limit, uint64) {
			l, margin := p.limit(src, r.FullName, most)
			if l != nil {
				l = p.with(&r.Policy, src, l)
			}
			return l, margin
		}
		r.Limit, r.Margin = limit(src.limit[src.most])
		r.schedule = p.schedule(src.beside["schedule"], src.most, limit)
		if r.Limit != nil {
			blocked = r.Limit.Meter()
		}
	}
	if r.listed != nil {
		r.blocked, _ = counters.NewLimit(blocked, 0) // the meter was valid, or is not used
	}
}

// unlimited complains of what an unlimited rule cannot have. How many requests it would have been is no matter: the reference server
// does not look at it either.
func (p *parser) unlimited(src *source) {
	for _, key := range src.limitKeys() {
		if src.limit[key] != nil && key != src.most {
			p.add(src.limit[key], "%s and unlimited exclude each other: remove one of them", key)
		}
	}
	if src.beside["schedule"] != nil {
		p.add(src.beside["schedule"], "schedule and unlimited exclude each other: remove one of them")
	}
}

// replaces reads the names of the rules that a rule named name replaces.
func (p *parser) replaces(n *yaml.Node, name string) (names []string) {
	if n == nil || isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		p.add(n, "replaces must be a list, not %s", describe(n))
		return nil
	}
	for _, item := range n.Content {
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

// ignored checks what the reference server knows and this one has no use for: its metrics are named after values of requests where these
// ask for it, here no metric ever is.
func (p *parser) ignored(descriptor map[string]*yaml.Node) {
	for _, key := range []string{"detailed_metric", "value_to_metric"} {
		_, _ = p.flag(descriptor, key)
	}
}

// flag reads what is true or false, and false where it is missing.
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

// amount reads a number of which 0 makes no sense.
func (p *parser) amount(n *yaml.Node, what string) (uint64, bool) { return p.whole(n, what, 1) }

func (p *parser) whole(n *yaml.Node, what string, least uint64) (uint64, bool) {
	return p.wholeUpTo(n, what, least, counters.MaxLimit)
}

func (p *parser) wholeUpTo(n *yaml.Node, what string, least, most uint64) (v uint64, ok bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Decode(&v) != nil || v < least || v > most {
		p.add(n, "%s must be a whole number from %d to %d, not %s", what, least, most, describe(n))
		return 0, false
	}
	return v, true
}

// window reads the window in the words of the form.
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
	p.add(src.node, "%s needs a %s, or unlimited: true", src.what, strings.Join(src.windows, " or a "))
	return 0, false
}

// seconds reads a number of seconds, which need not be whole.
func (p *parser) seconds(n *yaml.Node, what string) (time.Duration, bool) {
	var s float64
	number := n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!int" || n.ShortTag() == "!!float") && n.Decode(&s) == nil
	if !number || !(s > 0) || s > counters.MaxWindow.Seconds() {
		p.add(n, "%s must be a number of seconds above 0, at most %.0f, not %s", what, counters.MaxWindow.Seconds(), describe(n))
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
		p.add(n, "%s %.80q is no duration: write it as 10s, 1m30s or 24h", what, s)
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
