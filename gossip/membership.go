package gossip

import (
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edgelimit/counters"
)

// membership is how the other nodes are reached, and which of their boots is the latest. The cluster's lock guards it.
//
// A node that starts again is another member to memberlist, which takes a while to notice that the earlier boot is
// over. Here a later boot replaces the earlier one at once, so that nothing is sent to nobody and nothing that is over
// stays in the bound. Two living nodes that were given the same id look the same at first; the earlier one gives itself
// away by going on to speak.
type membership struct {
	routes   map[counters.Origin]*route
	latest   map[string]Member // the latest boot of each node, by name
	outdated map[counters.Origin]*route
}

// route is how a member is reached.
type route struct {
	member Member
	pool   *pool
	node   memberlist.Node
	since  int64 // when it came; for an outdated one, when it was replaced
}

func newMembership(self Member) membership {
	return membership{
		routes:   make(map[counters.Origin]*route),
		latest:   map[string]Member{self.name(): self},
		outdated: make(map[counters.Origin]*route),
	}
}

// lastWords is how long frames of a boot that is over may still be under way.
const lastWords = 5 * time.Second

// arrived takes in a member that memberlist holds to be alive.
func (c *Cluster) arrived(r *route) {
	m, now := r.member, c.cfg.Now()
	r.since = now
	twin := m.name() == c.self.name()
	c.mu.Lock()
	latest, known := c.latest[m.name()]
	_, routed := c.routes[m.Origin()]
	switch {
	case routed:
		r.since = c.routes[m.Origin()].since
		c.routes[m.Origin()] = r
		if known && m.Incarnation == latest.Incarnation && !twin {
			c.latest[m.name()] = m // as it says of itself now
		}
	case known && m.Incarnation < latest.Incarnation:
		c.outdated[m.Origin()] = r
	default:
		if !twin {
			if known {
				c.replace(latest, now)
			}
			c.latest[m.name()] = m
		}
		c.join(r, now)
	}
	_, joined := c.routes[m.Origin()]
	c.mu.Unlock()
	if joined && !routed {
		c.log.Info("gossip: member joined", "pool", r.pool.name, "peer", m.NodeID, "peer_region", m.Region, "addr",
			r.node.Address())
		if twin {
			c.warnOfTwin(r)
		}
	}
}

// replace takes it that an earlier boot is over. The lock is held.
func (c *Cluster) replace(earlier Member, now int64) {
	if r := c.routes[earlier.Origin()]; r != nil {
		r.since = now
		c.outdated[earlier.Origin()] = r
	}
	c.depart(earlier.Origin(), true)
}

// gone takes in that memberlist holds the member to be dead, or that it left: which of the two, memberlist does not
// say.
func (c *Cluster) gone(m Member, p *pool) {
	c.mu.Lock()
	_, outdated := c.outdated[m.Origin()]
	delete(c.outdated, m.Origin())
	if !outdated {
		c.depart(m.Origin(), false) // it may have sent a goodbye
	}
	graceful := c.replica.Left(m.Origin())
	c.forgetBoots()
	c.mu.Unlock()
	if !outdated {
		c.log.Info("gossip: member gone", "pool", p.name, "peer", m.NodeID, "peer_region", m.Region, "graceful",
			graceful)
	}
}

// join makes the member one that is spoken to. The lock is held.
func (c *Cluster) join(r *route, now int64) {
	c.routes[r.member.Origin()] = r
	c.replica.Join(r.member.Origin(), now)
	if r.member.Region != c.self.Region {
		c.replica.Far(r.member.Origin())
	}
}

// depart forgets the way to a member. The lock is held.
func (c *Cluster) depart(o counters.Origin, graceful bool) {
	delete(c.routes, o)
	c.replica.Leave(o, graceful)
}

// replaced reports whether a later boot of the same node is known.
func (c *Cluster) replaced(m Member) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest[m.name()].Incarnation > m.Incarnation
}

// silent returns the addresses of members that are reached through the pool and were not heard for a while, in random
// order.
func (c *Cluster) silent(p *pool) (addrs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o, r := range c.routes {
		if r.pool == p && c.cfg.Now()-max(r.since, c.replica.lastSeen(o)) > int64(max(3*idleBeacon, 5*c.cfg.Interval)) {
			addrs = append(addrs, r.node.Address())
		}
	}
	return addrs
}

// twins returns the members that were taken for earlier boots of other ones and speak all the same, and joins them: two
// nodes have the same id. Each is an origin of its own, so that no count suffers. The lock is held.
func (c *Cluster) twins(now int64) (found []*route) {
	for o, r := range c.outdated {
		switch inbound := c.replica.lastSeen(o); {
		case inbound > r.since+int64(lastWords):
			delete(c.outdated, o)
			c.join(r, now)
			found = append(found, r)
		case now > r.since+int64(forgetSilent):
			delete(c.outdated, o)
		}
	}
	return found
}

func (c *Cluster) warnOfTwin(r *route) {
	c.log.Error("gossip: two nodes have the same id; give each one of its own (--node-id)",
		"node_id", r.member.NodeID, "peer_region", r.member.Region, "addr", r.node.Address())
}

// forgetBoots forgets the boots of nodes that are gone for good, lest a fleet whose node ids never come back fills the
// memory. The lock is held.
func (c *Cluster) forgetBoots() {
	for name, m := range c.latest {
		if m != c.self && c.routes[m.Origin()] == nil && c.replica.inbound[m.Origin()] == nil {
			delete(c.latest, name)
		}
	}
}
