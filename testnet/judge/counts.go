package judge

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/testnet/record"
)

// floor is what a node must still count when it is observed next, if it is the same boot.
type floor struct {
	boot   string
	since  int64             // when the boot was first observed; the start of the record for the first of a node
	counts map[string]uint64 // by identity
}

// judgeObservation compares the counts of an observation with what was admitted, and with the floor that the
// observation before left for the node.
func (c *check) judgeObservation(i int, t *truth, floors map[string]floor) {
	o := &c.observations[i]
	before, again := floors[o.Node]
	sameNode := func(next record.Observation) bool { return next.Node == o.Node }
	next := i + 1 + slices.IndexFunc(c.observations[i+1:], sameNode) // i: it is the last of the node
	now := floor{boot: o.Boot, since: o.Sent, counts: make(map[string]uint64)}
	switch {
	case !again:
		now.since = c.header.Started
	case before.boot == o.Boot:
		now.since = before.since
	}
	within := c.agreeWithin()
	old := o.Sent - within
	receivedAll := old >= now.since && c.timeline.faultFree(old, o.Done)
	for _, name := range slices.Sorted(maps.Keys(o.Counts)) {
		count := o.Counts[name]
		key, known := c.keys[name]
		if !known {
			c.judgeCount(i, name, 0, 0)
			continue
		}
		c.judgeCount(i, name, min(t.minKnown(key, o.Sent, o.Done), c.limit.Max()), maxView(t.largest, key, o.Sent))
		if least := before.counts[name]; before.boot == o.Boot && count < least {
			c.violate(Growth, o.Done, fmt.Sprintf("%s counted %s, in the same boot as before", o.Node, name),
				fmt.Sprintf("at least %d, less only by what left the window", least), fmt.Sprint(count))
		}
		if least := min(t.minKnown(key, old, o.Done), c.limit.Max()); receivedAll && count < least {
			c.violate(Agreement, o.Done, fmt.Sprintf("%s counted %s", o.Node, name),
				fmt.Sprintf("at least the %d that were admitted %v before", least, time.Duration(within)),
				fmt.Sprint(count))
		}
		expired := t.maxExpired(key, o.Sent, c.observations[next].Done)
		now.counts[name] = count - min(count, expired)
	}
	floors[o.Node] = now
}

// judgeCount compares a count with the least and the most that it has to be if the node has received everything.
func (c *check) judgeCount(i int, name string, least, largest uint64) {
	o := &c.observations[i]
	count := o.Counts[name]
	if count > largest {
		c.violate(Truth, o.Done, fmt.Sprintf("%s counted %s", o.Node, name),
			fmt.Sprintf("at most the %d that were admitted", largest), fmt.Sprint(count))
	}
	if c.differs[i] == "" && (count < least || count > largest) {
		c.differs[i] = fmt.Sprintf("%d of %s, of which %d to %d were admitted", count, name, least, largest)
	}
}

// agreeWithin is the time, in nanoseconds, that nodes have to come to agree: 5 s, but at most half a window, as counts
// that left the window prove nothing.
func (c *check) agreeWithin() int64 { return int64(min(5*time.Second, c.limit.Meter().Window/2)) }

// judgeAgreement finds when the nodes came to agree with what was admitted, and so with each other, and stayed so. It
// counts from the last answer or the end of the last fault, whichever was later.
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
		if end.hits(n.ID, n.Region, record.Kill, record.Stop, record.Pause) {
			continue
		}
		at, differs := c.agreedAt(n, from)
		if differs == "" && at-from > within {
			differs = fmt.Sprintf("agreed after %v", time.Duration(at-from))
		}
		if differs != "" {
			all = false
			c.violate(Agreement, min(from+within, c.end), n.ID+" after the last request",
				fmt.Sprintf("observed to count what was admitted within %v", time.Duration(within)), differs)
		}
		since = max(since, at)
	}
	if all {
		c.agreeMs = millis(since - from)
	}
}

// agreedAt returns when the node was first observed, from a time on, so that this and all later observations of it
// agree with the truth. If there is none it returns how the last one differs.
func (c *check) agreedAt(n record.Node, from int64) (at int64, differs string) {
	at, differs = -1, "not observed"
	for i := range c.observations {
		o := &c.observations[i]
		if o.Node != n.ID || o.Sent < from || len(o.Counts) == 0 {
			continue
		}
		switch differs = c.differs[i]; {
		case differs != "":
			at = -1
		case at < 0:
			at = o.Sent
		}
	}
	return at, differs
}
