package node

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// A response may cost more than is left of its limit, and more than the limit holds. A count ends at twice the limit
// (counters.Table.Report) and leaves the window after a while, so that answers of ten times the limit would pass once a
// window. What they cost beyond the limit is a debt, therefore: a time in which the limit pays for it, and in which the
// layer denies. It begins when the count alone would admit again. All nodes that share the limit know the debt.

// maxOwed is the longest debt.
const maxOwed = counters.MaxWindow

// owedKey returns the key of what a layer's counter owes.
func (n *Node) owedKey(m *rules.Match) counters.Key {
	var room [counters.MaxRuleName + 64]byte
	meter := m.Rule.Limit.Meter()
	name := append(room[:0], meter.Rule...) // with its region, if each has a limit of its own
	if m.Rule.Scope == counters.Alone {
		name = append(append(name, 0), n.cfg.NodeID...)
	}
	return rules.KeyOf(n.secret, binary.BigEndian.AppendUint64(append(name, 0), uint64(m.Key)))
}

// owed returns what a layer's counter owes.
func (n *Node) owed(key counters.Key, now int64) time.Duration {
	return n.debts.Take(key, 0, maxOwed, now).ResetAfter
}

// collect has the layers deny whose counters owe something.
func (n *Node) collect(matches []rules.Match) {
	for i := range matches {
		m := &matches[i]
		if !m.MayOwe() {
			continue
		}
		if left := n.owed(n.owedKey(m), n.clock.Coarse()); left > 0 {
			m.Owe(left)
		}
	}
}

// reportOwing charges what was served, and keeps as a debt what is beyond the limits.
func (n *Node) reportOwing(matches []rules.Match, charges []counters.Charge, now int64) {
	var beyond [rules.MaxDescriptors]uint64
	owes := func(i int) bool {
		c := &charges[i]
		return matches[i].MayOwe() && c.Limit != nil && c.Limit.Max() > 0 && c.Cost > 0 && c.Mode != counters.Shadow
	}
	for i := range charges {
		if owes(i) { // of several at a time, each has to know what the others have used
			n.owing.Lock()
			defer n.owing.Unlock()
			break
		}
	}
	for i := range charges {
		if c := &charges[i]; owes(i) {
			holds := c.Limit.Max()
			beyond[i] = c.Cost - min(c.Cost, holds-min(holds, n.table.View(c.Limit, c.Key, now)))
		}
	}
	n.table.Report(charges, now)
	for i := range charges {
		if beyond[i] > 0 {
			n.keepDebt(&matches[i], &charges[i], beyond[i], now)
		}
	}
}

// keepDebt adds a cost to what a layer's counter owes.
func (n *Node) keepDebt(m *rules.Match, c *counters.Charge, cost uint64, now int64) {
	key := n.owedKey(m)
	owed := n.owed(key, now)
	more := paidIn(c.Limit, cost)
	if owed == 0 {
		if d := n.table.Take(c.Limit, c.Key, 0, now); !d.Allowed && d.RetryAfter > 0 {
			more += d.RetryAfter
		}
	}
	if more = min(more, maxOwed-owed); more > 0 {
		n.debts.Take(key, more, maxOwed, now)
	}
}

// paidIn returns how long a limit takes to admit a cost.
func paidIn(l *counters.Limit, cost uint64) time.Duration {
	if l.Refill() > 0 {
		return min(l.Refills(cost), maxOwed)
	}
	return time.Duration(min(math.Ceil(float64(l.Meter().Window)/float64(l.Max())*float64(cost)), float64(maxOwed)))
}
