package telemetry

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/node/rules"
)

// outages says, by scope, which of the nodes that share limits a node cannot count with. look is not safe for
// concurrent use.
type outages struct {
	log    *slog.Logger
	now    [counters.Alone + 1]atomic.Uint32 // a rules.Outage for each scope
	most   [counters.Alone + 1]int           // the most nodes reached at a time since all known ones were
	nodes  [counters.Alone + 1]int           // while the node is cut off: how many are waited for
	before [counters.Alone + 1]time.Time     // since when the node is cut off; zero: it is not
	shared atomic.Pointer[[counters.Alone + 1]bool]
}

// isShared reports whether there are limits of the scope: without, nothing depends on whether the node is cut off.
func (o *outages) isShared(s counters.Scope) bool {
	shared := o.shared.Load()
	return shared == nil || shared[s]
}

func (o *outages) in(s counters.Scope) rules.Outage { return rules.Outage(o.now[s].Load()) }

// company is the nodes of one scope.
type company struct {
	reached, known int  // this one included
	ended          int  // of the others, those whose processes have ended: they need not be reached
	partial        bool // there may be others
	alone          bool // nothing is known of the others
	storeAway      bool // the regional store does not answer
}

// byStore reports whether the store, by which alone the node could count with others, is away: it knows no other node.
func (c *company) byStore() bool { return c.storeAway && c.known == 1 }

// look takes the nodes of a scope. A node that reaches no more than half of them is cut off, as is one that knows
// nobody while its seeds, or the store, do not answer. It stays cut off until it reaches more than half of as many
// nodes: those that were silent for so long that nobody waits for them any more have not come back. Never are more
// nodes waited for than were reached at a time: the others have been replaced.
func (o *outages) look(s counters.Scope, c company, now time.Time) {
	cut := !o.before[s].IsZero()
	o.most[s] = max(o.most[s], c.reached)
	waited := min(c.known, o.most[s])
	if cut {
		waited = max(waited, o.nodes[s])
		c.known = max(c.known, waited)
	}
	o.nodes[s] = waited
	outage, alive := rules.Whole, c.known-c.ended
	switch {
	case c.alone || c.byStore() || alive > 1 && 2*c.reached <= alive:
		outage = rules.CutOff
	case c.partial || c.reached < alive:
		outage = rules.Partitioned
	default:
		o.most[s] = c.reached
	}
	o.now[s].Store(uint32(outage))
	switch {
	case outage == rules.CutOff && !cut:
		if o.before[s] = now; !o.isShared(s) {
			break
		}
		o.log.Warn("this node is cut off from most of the nodes that share limits: rules follow their on_failure",
			"scope", s, "reached", c.reached, "nodes", c.known, "store_away", c.storeAway)
	case outage != rules.CutOff && cut && !o.isShared(s):
		o.before[s] = time.Time{}
	case outage != rules.CutOff && cut:
		o.log.Info("this node is no longer cut off", "scope", s, "reached", c.reached, "nodes", c.known,
			"after", now.Sub(o.before[s]).Round(time.Millisecond))
		o.before[s] = time.Time{}
	}
}

// companies returns the nodes of the scopes Global and Region. Boots of one node count once, and peers of another
// identity key, which count apart, as if they were silent.
func companies(peers []gossip.MemberStatus, limit time.Duration, apart func(*gossip.Member) bool) (all, near company) {
	all, near = company{reached: 1, known: 1}, company{reached: 1, known: 1}
	count := func(c *company, reached, ended bool) {
		c.known++
		switch {
		case reached:
			c.reached++
		case ended:
			c.ended++
		}
	}
	for len(peers) > 0 {
		p := &peers[0]
		boots := 1
		for boots < len(peers) && peers[boots].Region == p.Region && peers[boots].NodeID == p.NodeID && p.NodeID != "" {
			boots++
		}
		reached := slices.ContainsFunc(peers[:boots], func(p gossip.MemberStatus) bool {
			return !isLost(&p, limit) && !apart(&p.Member)
		})
		ended := !slices.ContainsFunc(peers[:boots], func(p gossip.MemberStatus) bool { return !hasEnded(&p, limit) })
		count(&all, reached, ended)
		if !p.OtherRegion {
			count(&near, reached, ended)
		}
		peers = peers[boots:]
	}
	return all, near
}
