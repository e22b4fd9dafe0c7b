package rulefile

import (
	"math"
	"net/netip"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// schedule reads the schedule of a rule. limit makes the rule's limit with another number.
func (p *parser) schedule(n *yaml.Node, fm *form,
	limit func(requests *yaml.Node) (*counters.Limit, uint64)) []rules.Scheduled {
	var all []rules.Scheduled
	key, known := fm.max, fm.scheduleKeys()
	for item := range p.items(n, "schedule") {
		item = p.deref(item)
		f := p.fields(item, "a schedule", known)
		if f == nil {
			continue
		}
		before := p.found
		s := rules.Scheduled{From: p.clock(item, f, "from"), To: p.clock(item, f, "to"), Zone: p.zone(f["tz"])}
		if p.found == before && s.From == s.To {
			p.add(f["to"], "from and to are the same time: for all day, write the limit into the rule")
		}
		if f[key] == nil {
			p.add(item, "a schedule needs %s", key)
		} else if s.Limit, s.Margin = limit(f[key]); s.Limit != nil {
			all = append(all, s)
		}
	}
	return all
}

// clock reads a time of day as seconds since midnight. 24:00 is midnight at the end of the day.
func (p *parser) clock(item *yaml.Node, f map[string]*yaml.Node, key string) (seconds int) {
	text := p.required(item, f, key, "a schedule")
	if text == "" || text == "24:00" && key == "to" {
		return 0
	}
	t, err := time.Parse("15:04", text)
	if err != nil {
		p.add(f[key], "%s %.32q is no time of day: write it as \"06:00\" or \"23:30\"", key, text)
	}
	return t.Hour()*3600 + t.Minute()*60
}

// zone reads a time zone, UTC by default.
func (p *parser) zone(n *yaml.Node) *time.Location {
	name, ok := p.text(n, "tz")
	if !ok || name == "" {
		return time.UTC
	}
	if zone := p.zones[name]; zone != nil {
		return zone
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" { // the clocks of nodes may be set differently
		p.add(n, "time zone %.32q is not known: write it as Europe/Paris, America/New_York or UTC", name)
		return time.UTC
	}
	p.zones[name] = zone
	return zone
}

// addresses reads the allow and deny lists of a descriptor; nil where there are none.
func (p *parser) addresses(f map[string]*yaml.Node) *rules.AddressLists {
	listed := make(map[netip.Prefix]rules.Listing)
	lines := make(map[netip.Prefix]int)
	for _, list := range []struct {
		key     string
		listing rules.Listing
	}{{"allow", rules.AllowListed}, {"deny", rules.DenyListed}} {
		for n, text := range p.texts(f[list.key], list.key) {
			prefix, err := rules.ParsePrefix(text)
			switch {
			case err != nil && prefix.IsValid():
				p.add(n, "%s: %v", list.key, err)
			case err != nil:
				p.add(n,
					"%.32q in %s is neither an address nor a prefix: write 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32",
					text, list.key)
			case lines[prefix] > 0:
				p.add(n, "%s was already given in line %d", prefix, lines[prefix])
			default:
				lines[prefix], listed[prefix] = n.Line, list.listing
			}
		}
	}
	return rules.NewAddressLists(listed)
}

// metadata reads a map of JSON values.
func (p *parser) metadata(n *yaml.Node) map[string]any {
	if n == nil || isNull(n) {
		return nil
	}
	m, ok := p.anything(n, 0).(map[string]any)
	if !ok {
		p.add(n, "metadata must be a map, not %s", describe(n))
	}
	return m
}

// anything reads a map, a list or a scalar; depth is its nesting depth.
func (p *parser) anything(n *yaml.Node, depth int) any {
	n = p.deref(n)
	if p.stopped {
		return nil
	}
	if depth > rules.MaxEntries && !p.compatible {
		p.add(n, "metadata is nested more than %d deep", rules.MaxEntries)
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key, ok := p.text(p.deref(n.Content[i]), "a key in metadata"); ok {
				m[key] = p.anything(n.Content[i+1], depth+1)
			}
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			list = append(list, p.anything(item, depth+1))
		}
		return list
	}
	return p.scalar(n)
}

func (p *parser) scalar(n *yaml.Node) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int", "!!float":
		var f float64
		if n.Decode(&f) == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
		p.add(n, "metadata holds %s, which is not a finite number", describe(n))
		return nil
	}
	text, _ := p.text(n, "an entry of metadata")
	return text
}
