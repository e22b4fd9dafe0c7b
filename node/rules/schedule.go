package rules

import (
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/counters"
)

// scheduled is a limit that takes the place of a rule's during a part of each day.
type scheduled struct {
	from, to int // seconds since midnight on the zone's clocks; to is not included, and before from where midnight is between
	zone     *time.Location
	limit    *counters.Limit
	margin   uint64 // of the limit, as Policy.Margin
}

// holds reports whether clocks that show so many seconds since midnight are within.
func (s *scheduled) holds(clock int) bool {
	if s.from < s.to {
		return s.from <= clock && clock < s.to
	}
	return s.from <= clock || clock < s.to
}

// LimitAt returns the limit in force at a time, in nanoseconds since the Unix epoch: the first of the schedule that holds then, else the
// rule's own. All of them have the same meter, so that the counts stay. It is nil when the rule is unlimited.
//
// A schedule goes by what clocks show in its zone: an hour that they skip in spring is skipped, and what they show twice in autumn holds
// twice.
func (r *Rule) LimitAt(now int64) *counters.Limit {
	for i := range r.schedule {
		s := &r.schedule[i]
		hour, minute, second := time.Unix(0, now).In(s.zone).Clock()
		if s.holds(hour*3600 + minute*60 + second) {
			return s.limit
		}
	}
	return r.Limit
}

// Scheduled reports whether LimitAt depends on the time.
func (r *Rule) Scheduled() bool { return len(r.schedule) > 0 }

// schedule reads the schedule of a rule. limit makes the rule's limit with another maximum, which key names.
func (p *parser) schedule(n *yaml.Node, key string, limit func(requests *yaml.Node) (*counters.Limit, uint64)) []scheduled {
	if n == nil || isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		p.add(n, "schedule must be a list, not %s", describe(n))
		return nil
	}
	var all []scheduled
	for _, item := range n.Content {
		if p.stopped { // each zone that is not known costs a look at the disk
			return nil
		}
		item = p.deref(item)
		f, ok := p.fields(item, "a schedule", slices.Concat(scheduleKeys, []string{key}))
		if !ok {
			continue
		}
		s := scheduled{zone: p.zone(f["tz"])}
		from, fromOK := p.clock(item, f, "from")
		to, toOK := p.clock(item, f, "to")
		if fromOK && toOK && from == to {
			p.add(f["to"], "from and to are the same time: for all day, write the limit into the rule")
		}
		s.from, s.to = from, to
		if f[key] == nil {
			p.add(item, "a schedule needs %s", key)
			continue
		}
		if s.limit, s.margin = limit(f[key]); s.limit != nil {
			all = append(all, s)
		}
	}
	return all
}

// clock reads a time of day as seconds since midnight. 24:00 is the midnight at the end of the day.
func (p *parser) clock(item *yaml.Node, f map[string]*yaml.Node, key string) (seconds int, ok bool) {
	text, ok := p.required(item, f, key, "a schedule")
	if !ok {
		return 0, false
	}
	if text == "24:00" && key == "to" {
		return 0, true
	}
	t, err := time.Parse("15:04", text)
	if err != nil {
		p.add(f[key], "%s %.80q is no time of day: write it as \"06:00\" or \"23:30\"", key, text)
		return 0, false
	}
	return t.Hour()*3600 + t.Minute()*60, true
}

// zone reads a time zone; UTC where there is none.
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
		p.add(n, "time zone %.80q is not known: write it as Europe/Paris, America/New_York or UTC", name)
		return time.UTC
	}
	p.zones[name] = zone
	return zone
}
