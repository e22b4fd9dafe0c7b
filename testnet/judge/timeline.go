package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/testnet/record"
)

// period is a time between two events, in which the same faults were in force.
type period struct {
	from, to int64 // [from, to)
	faults   []record.Event
	names    []string // of the faults
	name     string   // what a report calls the period
	sides    int      // of the partitions in force; 1: none
}

// overlaps reports whether some of the period lies between from and to.
func (p *period) overlaps(from, to int64) bool { return p.from <= to && p.to > from }

// timeline is the periods of a run, in order and without gaps.
type timeline struct {
	periods []period
	// settle is the time for which a fault still shows after its end: in the counts, which reach back a window and the
	// overlapping sub-window, and in the bound, which forgets it a sub-window later.
	settle  int64
	regions map[string]string // by node
}

// newTimeline draws the periods from the events. It is an error if a fault ends that never began, or begins twice.
func newTimeline(t *trace) (*timeline, error) {
	rule := t.header.Rule
	out := &timeline{settle: int64(rule.Window + 2*rule.Sub), regions: t.header.Regions()}
	current := period{from: t.header.Started, names: []string{}, name: "no fault", sides: 1}
	for _, e := range t.events {
		next, err := current.after(e, t.header.Nodes)
		if err != nil {
			return nil, err
		}
		if current.to = e.At; current.to > current.from {
			out.periods = append(out.periods, current)
		}
		current = next
	}
	current.to = t.end + 1
	out.periods = append(out.periods, current)
	return out, nil
}

// after returns the period that begins with the event.
func (p *period) after(e record.Event, nodes []record.Node) (period, error) {
	i := slices.IndexFunc(p.faults, func(f record.Event) bool { return f.Fault() == e.Fault() })
	next := period{from: e.At, faults: slices.Clone(p.faults)}
	switch {
	case e.Began && i >= 0:
		return next, fmt.Errorf("event: %s began twice without an end between", e.Fault())
	case e.Began:
		next.faults = append(next.faults, e)
	case i < 0:
		return next, fmt.Errorf("event: %s ended, but never began", e.Fault())
	default:
		next.faults = slices.Delete(next.faults, i, i+1)
	}
	next.names = []string{}
	for _, f := range next.faults {
		next.names = append(next.names, f.Fault())
	}
	next.name = cmp.Or(strings.Join(next.names, ", "), "no fault")
	next.sides = countSides(next.faults, nodes)
	return next, nil
}

// countSides counts the parts of the cluster that cannot reach each other: every target of a partition, and the rest.
func countSides(faults []record.Event, nodes []record.Node) int {
	targets := make(map[string]bool)
	for _, f := range faults {
		if f.Name == record.Partition {
			targets[f.Target] = true
		}
	}
	sides := len(targets)
	if slices.ContainsFunc(nodes, func(n record.Node) bool { return !targets[n.ID] && !targets[n.Region] }) {
		sides++
	}
	return sides
}

// hits reports whether one of the named faults of the period acts on the node.
func (p *period) hits(node, region string, names ...string) bool {
	return slices.ContainsFunc(p.faults, func(f record.Event) bool {
		return slices.Contains(names, f.Name) && (f.Target == node || f.Target == region)
	})
}

// maxSides is the largest number of sides between from and to, or so shortly before that it still shows.
func (l *timeline) maxSides(from, to int64) (sides int) {
	for _, p := range l.periods {
		if p.overlaps(from-l.settle, to) {
			sides = max(sides, p.sides)
		}
	}
	return sides
}

// settled reports whether no fault shows between from and to.
func (l *timeline) settled(from, to int64) bool { return l.faultFree(from-l.settle, to) }

// faultFree reports whether no fault was in force at any time between from and to.
func (l *timeline) faultFree(from, to int64) bool {
	return !slices.ContainsFunc(l.periods, func(p period) bool { return len(p.faults) > 0 && p.overlaps(from, to) })
}

// lostByKill is the time before its death in which a node may have admitted what it did not replicate: a gossip
// interval, and frames that are lost and not sent again.
const lostByKill = time.Second

// replicated reports whether the node lived long enough after a decision to replicate it.
func (l *timeline) replicated(d *decision) bool {
	return !slices.ContainsFunc(l.periods, func(p period) bool {
		return p.overlaps(d.Sent, d.Done+int64(lostByKill)) && p.hits(d.Node, l.regions[d.Node], record.Kill)
	})
}

// last is the period in which the run ended.
func (l *timeline) last() *period { return &l.periods[len(l.periods)-1] }

// index returns the number of the period that holds the time.
func (l *timeline) index(at int64) int {
	i, _ := slices.BinarySearchFunc(l.periods, at, func(p period, at int64) int { return cmp.Compare(p.to, at+1) })
	return min(i, len(l.periods)-1)
}

func seconds(ns int64) float64 { return time.Duration(ns).Seconds() }
