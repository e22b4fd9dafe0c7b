package telemetry

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/gossip"
)

// Way is one that a firewall closes between this node and others, while the other protocol passes. The names are those
// of the metric.
type Way string

const (
	UDPBoth Way = "udp_both"
	UDPTo   Way = "udp_to"
	UDPFrom Way = "udp_from"
	TCPTo   Way = "tcp_to"
)

var allWays = []Way{UDPBoth, UDPTo, UDPFrom, TCPTo}

// Blockage is a way that is blocked between this node and a region, or some nodes there.
type Blockage struct {
	Region string
	Way    Way
	Nodes  []string // of the region, by name
	all    bool     // they are all that this node knows there
	addrs  []string
}

// blockages returns the ways that are blocked, by region and way. The peers are sorted by region.
func blockages(peers []gossip.MemberStatus) (found []Blockage) {
	for len(peers) > 0 {
		n := 0
		for n < len(peers) && peers[n].Region == peers[0].Region {
			n++
		}
		for _, way := range allWays {
			b := Blockage{Region: printable(peers[0].Region), Way: way}
			for i := range peers[:n] {
				if p := &peers[i]; waysOf(p.Blocked, way) {
					b.Nodes, b.addrs = append(b.Nodes, printable(p.NodeID)), append(b.addrs, p.Addr)
				}
			}
			if b.all = len(b.Nodes) == n; len(b.Nodes) > 0 {
				found = append(found, b)
			}
		}
		peers = peers[n:]
	}
	return found
}

// Twins returns the members that share region and node id with this node or with another member. Membership knows one
// node of each name, so its probes of the others fail, and UDP to them seems to be blocked.
func Twins(self *gossip.Member, peers []gossip.MemberStatus) (found []*gossip.MemberStatus) {
	type name struct{ region, id string }
	members := map[name]int{{self.Region, self.NodeID}: 1}
	for i := range peers {
		if p := &peers[i]; p.Pool != "" {
			members[name{p.Region, p.NodeID}]++
		}
	}
	for i := range peers {
		if p := &peers[i]; p.Pool != "" && members[name{p.Region, p.NodeID}] > 1 {
			found = append(found, p)
		}
	}
	return found
}

func waysOf(b gossip.Blocked, way Way) bool {
	switch way {
	case UDPBoth:
		return b.UDPTo && b.UDPFrom
	case UDPTo:
		return b.UDPTo && !b.UDPFrom
	case UDPFrom:
		return b.UDPFrom && !b.UDPTo
	}
	return b.TCPTo
}

// Text says what is blocked, and what follows.
func (b *Blockage) Text() string {
	who := "region " + b.Region
	if !b.all {
		who = firstNames(b.Nodes) + " of " + who
	}
	switch b.Way {
	case UDPBoth:
		return fmt.Sprintf("UDP between this node and %s is blocked both ways, TCP is open: counts go over TCP", who)
	case UDPTo:
		return fmt.Sprintf("UDP from this node to %s is blocked, TCP is open: counts go over TCP", who)
	case UDPFrom:
		return fmt.Sprintf("UDP from %s to this node is blocked, TCP is open: counts go over TCP", who)
	}
	return fmt.Sprintf("TCP from this node to %s is blocked, UDP is open: counts arrive, but nodes that start cannot "+
		"join", who)
}

// Do says what opens it.
func (b *Blockage) Do() string {
	protocol, _, _ := strings.Cut(string(b.Way), "_")
	protocol = strings.ToUpper(protocol)
	if b.Way == UDPFrom {
		return fmt.Sprintf("open %s from %s to the gossip port of this node", protocol, firstNames(hosts(b.addrs)))
	}
	do := fmt.Sprintf("open %s from this node to %s", protocol, firstNames(b.addrs))
	if b.Way == UDPBoth {
		do += ", and back to its gossip port"
	}
	return do
}

// hosts returns the addresses without their ports.
func hosts(addrs []string) (all []string) {
	for _, a := range addrs {
		if host, _, err := net.SplitHostPort(a); err == nil {
			a = host
		}
		all = append(all, a)
	}
	return all
}

// blockAlarm logs ways that are blocked, and that are open again. look is not safe for concurrent use.
type blockAlarm struct {
	log   *slog.Logger
	since map[[2]string]time.Time // by region and way, of those that were logged
}

// blockedQuiet is how long a way has to be open until that is logged: one that comes and goes has a line.
const blockedQuiet = time.Minute

func (a *blockAlarm) look(found []Blockage, now time.Time) {
	if a.since == nil {
		a.since = make(map[[2]string]time.Time)
	}
	for i := range found {
		b := &found[i]
		id := [2]string{b.Region, string(b.Way)}
		if _, logged := a.since[id]; !logged {
			a.log.Warn(b.Text()+"; "+b.Do(), "peer_region", b.Region, "way", string(b.Way))
		}
		a.since[id] = now
	}
	for id, seen := range a.since {
		if now.Sub(seen) < blockedQuiet {
			continue
		}
		a.log.Info("a way that was blocked is open again", "peer_region", id[0], "way", id[1])
		delete(a.since, id)
	}
}

// Blocked returns the ways that are blocked now.
func (m *Monitor) Blocked() []Blockage { return slices.Clone(m.reach.latest.Load().blocked) }
