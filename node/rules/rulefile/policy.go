package rulefile

import (
	"cmp"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/net/http/httpguts"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/bans/banname"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/text"
)

// choice reads one of the words of a key, the default if it is missing.
func (p *parser) choice(src *source, key string) string {
	words, n := choices[key], src.limit[key]
	if n == nil {
		return words[0]
	}
	word, ok := p.text(n, key)
	if !ok {
		return words[0]
	}
	if !slices.Contains(words, word) {
		p.add(n, "%s", unknown("word", word, key, words))
	}
	return word
}

// policy reads how a rule is enforced.
func (p *parser) policy(src *source) rules.Policy {
	f := src.limit
	policy := rules.Policy{
		Mode: p.mode(src), Scope: p.scope(src), Each: p.each(src),
		Cost: p.whole(f, "cost", 1), MaxUnsent: p.whole(f, "max_unsent", 0),
		Ban: p.ban(f["ban"]), CountRejected: p.flag(f, "count_rejected"),
		ExportAddress: p.choice(src, "export") == "address", ExposeIdentity: p.choice(src, "expose") == "identity",
	}
	word := p.choice(src, "on_partition")
	policy.OnPartition, _ = counters.ParsePartition(word)
	policy.PartitionDenies = word == "deny"
	if word := p.choice(src, "on_failure"); f["on_failure"] != nil {
		policy.OnFailure, _ = rules.ParseFailure(word)
	}
	if f["overdraw"] != nil {
		policy.Overdraw = rules.OverdrawDeny
		if p.choice(src, "overdraw") == "charge" {
			policy.Overdraw = rules.OverdrawCharge
		}
	}
	p.strict(src, &policy)
	return policy
}

// after reads what is charged after the response.
func (p *parser) after(src *source) rules.After {
	f := src.limit
	if f["charge_on"] == nil && f["cost_from"] == nil {
		return rules.After{}
	}
	const why = "is for requests, and responses are charged here (charge_on, cost_from)"
	p.refuse(f, why, "queue", "count_rejected", "charge", "overdraw")
	if f["charge_on"] == nil || f["cost_from"] != nil {
		p.refuse(f, why+": a ban after responses of certain statuses takes charge_on alone", "ban")
	} else if p.choice(src, "consistency") == "strict" {
		p.refuse(f, "and charge_on exclude each other with consistency: strict: its store does not answer what a "+
			"response left of the limit", "ban")
	}
	if p.choice(src, "mode") == "elastic" {
		p.refuse(f, "and mode: elastic exclude each other: remove one of them", "charge_on", "cost_from")
	}
	var on rules.Statuses
	before := p.found
	if n := f["charge_on"]; n != nil {
		g := p.fields(n, "charge_on", chargeOnKeys)
		if g != nil && g["status"] == nil {
			p.add(n, "charge_on needs a status, as in {status: [401, 403]}")
		}
		for item, word := range p.texts(g["status"], "status") {
			if !on.Add(word) {
				p.add(item, "status %.32q is neither one of 100 to 599 nor a class as 4xx", word)
			}
		}
		if g["status"] != nil && on == (rules.Statuses{}) && p.found == before {
			p.add(g["status"], "charge_on has no status: it would charge nothing")
		}
	}
	cost, header := p.costFrom(f["cost_from"])
	return rules.NewAfter(on, cost, header)
}

// costFrom reads where the cost of a response comes from: response_bytes, duration, or header NAME.
func (p *parser) costFrom(n *yaml.Node) (rules.CostFrom, string) {
	word, ok := p.text(n, "cost_from")
	name, isHeader := strings.CutPrefix(word, "header ")
	switch {
	case n == nil || !ok:
	case word == rules.CostBytes.String():
		return rules.CostBytes, ""
	case word == rules.CostDuration.String():
		return rules.CostDuration, ""
	case isHeader && httpguts.ValidHeaderFieldName(name):
		return rules.CostHeader, textproto.CanonicalMIMEHeaderKey(name)
	default:
		p.add(n, "cost_from %.40q is none of response_bytes, duration and header NAME", word)
	}
	return rules.CostOne, ""
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
			"on_failure", "max_unsent")
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
	case word == "throttle" && src.limit["max_delay"] == nil:
		p.add(src.limit["mode"], "mode: throttle needs a max_delay: how long a request may be held back")
	case word == "throttle":
		mode = counters.Throttle
		p.refuse(src.limit, "and mode: throttle exclude each other: remove one of them", "queue", "charge_on",
			"cost_from")
	}
	if word != "throttle" {
		p.refuse(src.limit, "is for mode: throttle", "max_delay")
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
		p.add(n, "ban %v must be whole milliseconds, at most %v", text.Setting(d), text.Setting(counters.MaxWindow))
		return 0
	}
	return d
}

// with returns the limit with the rule's policy, nil after a problem.
func (p *parser) with(r *rules.Rule, src *source, l *counters.Limit) *counters.Limit {
	if r.CountRejected && rules.IsBucket(l.Meter().Algorithm) {
		p.add(src.limit["count_rejected"],
			"count_rejected is for windows and logs: a %s refills whatever is asked of it", l.Meter().Algorithm)
		return nil
	}
	if r.Overdraw == rules.OverdrawCharge && l.Meter().Algorithm == counters.LeakyQueue {
		p.add(src.limit["overdraw"], "overdraw: charge is not for a queue: what it has no place for does not wait")
		return nil
	}
	if err := p.opt.Stores.check(r, l); err != nil {
		p.add(src.limit["consistency"], "%v", err)
		return nil
	}
	if r.Strict && p.opt.Stores != nil {
		r.CheckStrict = p.opt.Stores.Check
	}
	tallies := p.tallies(r, l)
	l, err := l.With(func(c *counters.LimitConfig) {
		c.OnPartition, c.MaxUnsent, c.CountRejected, c.Tally = r.OnPartition, r.MaxUnsent, r.CountRejected, tallies
		if c.Ban = r.Ban; c.Ban > 0 {
			c.BanSpent = r.ChargesLater()
			if r.ExportAddress {
				name := banname.Name{Rule: c.Meter.Rule, Keys: banname.AddressKeys, Bits: uint8(r.AddressBits())}
				c.AddressBans = name.String()
			}
		}
	})
	if err != nil {
		p.add(cmp.Or(src.limit["export"], src.limit["ban"], src.node), "%v", err)
		return nil
	}
	return l
}

// exports checks that a rule whose bans are exported counts addresses, which bans can keep.
func (p *parser) exports(r *rules.Rule, src *source) {
	n := src.limit["export"]
	if slices.ContainsFunc(r.Steps, func(s rules.Step) bool { return s.Secret && s.Open }) {
		p.refuse(src.limit, "would show values that secret hides", "expose", "export")
	}
	switch bits := r.AddressBits(); {
	case !r.ExportAddress:
	case bits == 0:
		p.add(n, "export: address is for a rule whose last key holds an address, each counted by itself: a key such "+
			"as remote_address, or one with an ipv6_prefix")
	case r.Steps[len(r.Steps)-1].IPv4 > 0:
		p.add(n, "export: address blocks single IPv4 addresses, and the rule counts them by /%d: leave out ipv4_prefix",
			r.Steps[len(r.Steps)-1].IPv4)
	case bits > banname.MaxAddressBits:
		p.add(n, "export: address keeps %d bits of an IPv6 address, and the rule tells clients apart by %d: lower its "+
			"ipv6_prefix", banname.MaxAddressBits, bits)
	}
}

// tallies reports whether a rule counts as envoyproxy/ratelimit does: everything, and compares afterwards. A rule that
// says how it counts does not.
func (p *parser) tallies(r *rules.Rule, l *counters.Limit) bool {
	isPlain := r.Mode != counters.Soft && r.Mode != counters.Elastic && !r.CountRejected &&
		r.Overdraw == rules.OverdrawByAPI && !r.ChargesLater()
	return p.compatible && isPlain && l.Meter().Algorithm == counters.FixedWindow
}
