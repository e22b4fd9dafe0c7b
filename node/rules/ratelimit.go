package rules

import (
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
	switch unlimited, ok := p.flag(f, "unlimited"); {
	case !ok:
	case unlimited:
		for _, key := range limitKeys {
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

// requests reads requests_per_unit, where 0 blocks.
func (p *parser) requests(limit, n *yaml.Node) (uint64, bool) {
	if n == nil {
		p.add(limit, "a rate_limit needs requests_per_unit, or unlimited: true")
		return 0, false
	}
	return p.whole(n, "requests_per_unit", 0)
}

// amount reads a number of which 0 makes no sense.
func (p *parser) amount(n *yaml.Node, what string) (uint64, bool) { return p.whole(n, what, 1) }

func (p *parser) whole(n *yaml.Node, what string, least uint64) (v uint64, ok bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Decode(&v) != nil || v < least || v > counters.MaxLimit {
		p.add(n, "%s must be a whole number from %d to %d, not %s", what, least, uint64(counters.MaxLimit), describe(n))
		return 0, false
	}
	return v, true
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
	return p.duration(window, "window")
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
