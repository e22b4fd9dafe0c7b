package rules

import (
	"cmp"
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

// rateLimit reads a rate_limit into a rule at the place; without one (n is nil) there is no rule.
func (p *parser) rateLimit(n *yaml.Node, at place) {
	if n == nil {
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
	r := newRule(at.domain, at.fullName, at.path)
	if name != "" {
		r.Name = name
	}
	switch unlimited, ok := p.unlimited(f); {
	case !ok:
	case unlimited:
		for _, key := range []string{"unit", "window", "requests_per_unit"} {
			if f[key] != nil {
				p.add(f[key], "%s and unlimited exclude each other: remove one of them", key)
			}
		}
	default:
		r.Limit = p.limit(n, f, at.fullName)
	}
	at.node.rule = r
	p.put(r)
}

func (p *parser) unlimited(f map[string]*yaml.Node) (yes, ok bool) {
	n := f["unlimited"]
	if n == nil {
		return false, true
	}
	if n.Kind != yaml.ScalarNode || isNull(n) || n.Decode(&yes) != nil {
		p.add(n, "unlimited must be true or false, not %s", describe(n))
		return false, false
	}
	return yes, true
}

// limit reads requests per window. It returns nil after a problem with the window.
func (p *parser) limit(n *yaml.Node, f map[string]*yaml.Node, fullName string) *counters.Limit {
	requests := p.requests(n, f["requests_per_unit"])
	window, ok := p.window(n, f)
	if !ok {
		return nil
	}
	l, err := counters.NewLimit(counters.NewMeter(fullName, counters.SlidingWindow, window), requests)
	if err != nil {
		p.add(cmp.Or(f["window"], n), "%v", err)
	}
	return l
}

// requests reads requests_per_unit. It returns 0 after a problem.
func (p *parser) requests(limit, n *yaml.Node) uint64 {
	if n == nil {
		p.add(limit, "a rate_limit needs requests_per_unit, or unlimited: true")
		return 0
	}
	var v uint64
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Decode(&v) != nil || v > counters.MaxLimit {
		p.add(n, "requests_per_unit must be a whole number from 0 to %d, not %s", uint64(counters.MaxLimit), describe(n))
		return 0
	}
	return v
}

// window reads the unit or the window.
func (p *parser) window(limit *yaml.Node, f map[string]*yaml.Node) (time.Duration, bool) {
	unit, window := f["unit"], f["window"]
	switch {
	case unit != nil && window != nil:
		p.add(window, "unit and window exclude each other: remove one of them")
		return 0, false
	case unit != nil:
		return p.unit(unit)
	case window == nil:
		p.add(limit, "a rate_limit needs a unit or a window, or unlimited: true")
		return 0, false
	}
	s, ok := p.text(window, "window")
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		p.add(window, "window %.80q is no duration: write it as 10s, 1m30s or 24h", s)
		return 0, false
	}
	if d <= 0 {
		p.add(window, "window %v must be positive", d)
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
