package checker

import (
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
	sides    int // parts of the cluster that could not hear each other
}

// timeline is the periods of a run, in order and without gaps.
type timeline struct {
	periods []period
	// settle is how long a fault still shows after its end: in the counts, which reach back a window and the sub-window that overlaps,
	// and in the bound, which forgets it a sub-window later.
	settle  int64
	regions map[string]string // by node
}

// newTimeline draws the periods from the events. It is an error if a fault ends that never began, or begins twice.
func newTimeline(t *trace) (*timeline, error) {
	rule := t.header.Rule
	out := &timeline{settle: int64(rule.Window + 2*rule.Sub), regions: make(map[string]string)}
	for _, n := range t.header.Nodes {
		out.regions[n.ID] = n.Region
	}
	current := period{from: t.header.Started, sides: 1}
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
	next.sides = countSides(next.faults, nodes)
	return next, nil
}

// countSides is how many parts of the cluster cannot hear each other: every target of a partition by itself, and the rest.
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

// name is what a report calls the period.
func (p *period) name() string {
	if len(p.faults) == 0 {
		return "no fault"
	}
	var names []string
	for _, f := range p.faults {
		names = append(names, f.Fault())
	}
	return strings.Join(names, ", ")
}

// down reports whether a fault of the period keeps the node from answering.
func (p *period) down(n record.Node) bool {
	return slices.ContainsFunc(p.faults, func(f record.Event) bool {
		gone := f.Name == record.Kill || f.Name == record.Stop || f.Name == record.Pause
		return gone && (f.Target == n.ID || f.Target == n.Region)
	})
}

// sides is the most sides there were between from and to, or so shortly before that it still shows.
func (l *timeline) sides(from, to int64) int {
	most := 1
	for _, p := range l.periods {
		if p.from <= to && p.to > from-l.settle {
			most = max(most, p.sides)
		}
	}
	return most
}

// quiet reports whether no fault shows between from and to.
func (l *timeline) quiet(from, to int64) bool {
	return !slices.ContainsFunc(l.periods, func(p period) bool {
		return len(p.faults) > 0 && p.from <= to && p.to > from-l.settle
	})
}

// calm reports whether no fault was in force at any time between from and to.
func (l *timeline) calm(from, to int64) bool {
	return !slices.ContainsFunc(l.periods, func(p period) bool { return len(p.faults) > 0 && p.from <= to && p.to > from })
}

// diesWith is how long before its death a node may have admitted what it told nobody any more. It would be one gossip interval, and
// frames that are lost and not sent again.
const diesWith = time.Second

// told reports whether the node lived long enough after a decision to tell of it.
func (l *timeline) told(d *decision) bool {
	return !slices.ContainsFunc(l.periods, func(p period) bool {
		return p.from <= d.done+int64(diesWith) && d.sent < p.to && slices.ContainsFunc(p.faults, func(f record.Event) bool {
			return f.Name == record.Kill && (f.Target == d.node || f.Target == l.regions[d.node])
		})
	})
}

// last is the period in which the run ended.
func (l *timeline) last() *period { return &l.periods[len(l.periods)-1] }

// index is the number of the period that holds the time.
func (l *timeline) index(at int64) int {
	i, _ := slices.BinarySearchFunc(l.periods, at, func(p period, at int64) int {
		switch {
		case p.to <= at:
			return -1
		case p.from > at:
			return 1
		}
		return 0
	})
	return min(i, len(l.periods)-1)
}

func seconds(d int64) float64 { return time.Duration(d).Seconds() }
