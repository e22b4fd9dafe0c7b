package gossip

import (
	"cmp"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// MemberStatus is a node of the cluster as this one knows it.
type MemberStatus struct {
	Member
	PeerStatus
	Pool string // through which it is reached; empty when it is not in the membership
	Addr string
}

// Members returns the other nodes in the membership, by region and node id.
func (c *Cluster) Members() []MemberStatus {
	return slices.DeleteFunc(c.Peers(), func(m MemberStatus) bool { return m.Pool == "" })
}

// Peers returns Members and the nodes that left the membership without a goodbye, which count as unreachable for a
// quarter of an hour. The names are empty of nodes that have never been in the membership.
func (c *Cluster) Peers() []MemberStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	statuses, _ := c.peerStatuses()
	type named struct {
		of     *Member
		status int
	}
	byName := make([]named, len(statuses))
	var latest map[counters.Origin]Member // made when somebody is in no pool: it takes a hash for each member
	for i, p := range statuses {
		if r := c.routes[p.Origin]; r != nil {
			byName[i] = named{&r.member, i}
			continue
		}
		if latest == nil {
			latest = c.latestByOrigin()
		}
		m := latest[p.Origin]
		byName[i] = named{&m, i}
	}
	slices.SortFunc(byName, func(a, b named) int { // and not the large statuses
		return cmp.Or(cmp.Compare(a.of.Region, b.of.Region), cmp.Compare(a.of.NodeID, b.of.NodeID))
	})
	out := make([]MemberStatus, len(statuses))
	for i, n := range byName {
		out[i] = MemberStatus{Member: *n.of, PeerStatus: statuses[n.status]}
		if r := c.routes[out[i].PeerStatus.Origin]; r != nil {
			out[i].Pool, out[i].Addr = r.pool.name, r.addr
			out[i].Blocked.TCPTo = c.streamsBlocked(r)
		}
	}
	return out
}

// latestByOrigin returns the latest boot of each node. The lock is held.
func (c *Cluster) latestByOrigin() map[counters.Origin]Member {
	latest := make(map[counters.Origin]Member, len(c.latest))
	for _, m := range c.latest {
		latest[m.Origin()] = m
	}
	return latest
}

// Staleness is the largest age of what this node knows of another one. It is complete if all nodes are in the
// membership and all seeds have answered. Nodes that left are not counted; unreachable nodes and seeds are, for a
// quarter of an hour.
func (c *Cluster) Staleness() (age time.Duration, complete bool) {
	blind, _ := c.Blind()
	complete = !blind
	c.mu.Lock()
	defer c.mu.Unlock()
	statuses, relayed := c.peerStatuses()
	for _, p := range statuses {
		if !relayed[p.Origin] {
			age = max(age, p.Age)
		}
		complete = complete && p.Member
	}
	return age, complete
}

// peerStatuses returns the status of all members, and of those that are unreachable. Where owners add up, some members
// do not send to this node, or need not: it knows what they count from others, and their age is the least of their
// region's. If nobody there has anything to report, that is how long nothing came from the region. relayed are those of
// which nobody need have sent anything more. The lock is held.
func (c *Cluster) peerStatuses() (all []PeerStatus, relayed map[counters.Origin]bool) {
	now, most := c.cfg.Now(), MostSilence(c.cfg.Interval)
	links := c.replica.linked()
	linked := make(map[counters.Origin]bool, len(links))
	for _, o := range links {
		linked[o] = !c.replica.mayBeSilent(o)
	}
	relayed = make(map[counters.Origin]bool, max(0, len(c.routes)-len(links)))
	ages := make(map[string]time.Duration) // by region, of those who send
	all = c.replica.Peers(now)
	known := make(map[counters.Origin]bool, len(all))
	for _, p := range all {
		known[p.Origin] = true
		r := c.routes[p.Origin]
		if r == nil || !linked[p.Origin] {
			continue
		}
		if least, seen := ages[r.member.Region]; !seen || p.Age < least {
			ages[r.member.Region] = p.Age
		}
	}
	all = slices.Grow(all, max(0, len(c.routes)-len(links)))
	for o, r := range c.routes {
		if !known[o] && !linked[o] {
			all = append(all, PeerStatus{Origin: o, Member: true, OtherRegion: r.member.Region != c.self.Region,
				Known: time.Duration(max(0, now-r.since))})
		}
	}
	for i := range all {
		p := &all[i]
		r := c.routes[p.Origin]
		if r == nil || linked[p.Origin] {
			continue
		}
		age, some := ages[r.member.Region]
		rests := !some || age > most
		if rests { // nobody was silent for longer than it has been a member
			age = min(c.replica.silenceOf(r.member.Region, now), time.Duration(max(0, now-r.since)))
		}
		p.Age, p.Idle, relayed[p.Origin] = age, rests && age <= most, age <= most
	}
	return all, relayed
}
