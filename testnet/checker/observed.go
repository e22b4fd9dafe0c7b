package checker

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/testnet/record"
)

// sightings remembers what each node was last seen to count.
type sightings struct {
	next []int // by observation: the next one of the same node, or -1
	last map[string]sighting
}

// sighting is what a node must still count when it is observed next, if it is the same boot.
type sighting struct {
	boot  string
	since int64             // when the boot was first observed; the start of the record for the first of a node
	floor map[string]uint64 // by identity
}

func (c *check) newSightings() *sightings {
	s := &sightings{next: make([]int, len(c.observations)), last: make(map[string]sighting)}
	following := make(map[string]int)
	for i := len(c.observations) - 1; i >= 0; i-- {
		s.next[i] = -1
		if n, ok := following[c.observations[i].Node]; ok {
			s.next[i] = n
		}
		following[c.observations[i].Node] = i
	}
	return s
}

// judgeObservation holds the counts of an observation against what was admitted, and against those of the one before.
func (c *check) judgeObservation(i int, b *bracket, seen *sightings) {
	o := &c.observations[i]
	before, again := seen.last[o.Node]
	now := sighting{boot: o.Boot, since: o.Sent, floor: make(map[string]uint64)}
	switch {
	case !again:
		now.since = c.header.Started
	case before.boot == o.Boot:
		now.since = before.since
	}
	old := o.Sent - c.agreeWithin()
	heardAll := old >= now.since && c.timeline.calm(old, o.Done)
	for _, name := range slices.Sorted(maps.Keys(o.Counts)) {
		count := o.Counts[name]
		key, known := c.identity(name)
		if !known {
			c.judgeCount(i, name, count, 0, 0)
			continue
		}
		c.judgeCount(i, name, count, min(b.known(key, o.Sent, o.Done), c.limit.Max()), b.atMost(key, o.Sent))
		if floor := before.floor[name]; before.boot == o.Boot && count < floor {
			c.violate(Growth, o.Done, fmt.Sprintf("%s was seen to count %s, in the same boot as before", o.Node, name),
				fmt.Sprintf("at least %d, less only by what left the window", floor), fmt.Sprint(count))
		}
		if least := min(b.known(key, old, o.Done), c.limit.Max()); heardAll && count < least {
			c.violate(Agreement, o.Done, fmt.Sprintf("%s was seen to count %s", o.Node, name),
				fmt.Sprintf("at least the %d that were admitted %v before", least, time.Duration(c.agreeWithin())), fmt.Sprint(count))
		}
		if n := seen.next[i]; n >= 0 {
			gone := b.leaves(key, o.Sent, c.observations[n].Done)
			now.floor[name] = count - min(count, gone)
		}
	}
	seen.last[o.Node] = now
}

// judgeCount holds a count against the least and the most that it has to be if all is known.
func (c *check) judgeCount(i int, name string, count, least, most uint64) {
	o := &c.observations[i]
	if count > most {
		c.violate(Truth, o.Done, fmt.Sprintf("%s was seen to count %s", o.Node, name),
			fmt.Sprintf("at most the %d that were admitted", most), fmt.Sprint(count))
	}
	if c.agrees[i] == "" && (count < least || count > most) {
		c.agrees[i] = fmt.Sprintf("%d of %s, of which %d to %d were admitted", count, name, least, most)
	}
}

// agreeWithin is how long, in nanoseconds, nodes have to come to agree: 5 s, but at most half a window, as what has left it proves
// nothing.
func (c *check) agreeWithin() int64 { return int64(min(5*time.Second, c.limit.Meter().Window/2)) }

// judgeAgreement finds when the nodes came to agree with what was admitted, and so with each other, and stayed so. It counts from the
// last answer or the end of the last fault, whichever was later.
func (c *check) judgeAgreement() {
	c.agreeMs = -1
	from, end := c.lastDone, c.timeline.last()
	if len(c.events) > 0 {
		from = max(from, c.events[len(c.events)-1].At)
	}
	if end.sides > 1 {
		return // they cannot
	}
	within := c.agreeWithin()
	since, all := from, true
	for _, n := range c.header.Nodes {
		if end.down(n) {
			continue
		}
		at, differs := c.agreedAt(n, from)
		if differs != "" || at-from > within {
			all = false
			if differs == "" {
				differs = fmt.Sprintf("agreed after %v", time.Duration(at-from))
			}
			c.violate(Agreement, min(from+within, c.end), n.ID+" after the last request",
				fmt.Sprintf("observed to count what was admitted within %v", time.Duration(within)), differs)
		}
		since = max(since, at)
	}
	if all {
		c.agreeMs = millis(since - from)
	}
}

// agreedAt is when the node was first asked, from a time on, so that this and all later observations of it are as the truth. If there
// is none it returns what was wrong with the last.
func (c *check) agreedAt(n record.Node, from int64) (at int64, differs string) {
	at, differs = -1, "not observed"
	for i := range c.observations {
		o := &c.observations[i]
		if o.Node != n.ID || o.Sent < from || len(o.Counts) == 0 {
			continue
		}
		switch differs = c.agrees[i]; {
		case differs != "":
			at = -1
		case at < 0:
			at = o.Sent
		}
	}
	return at, differs
}
