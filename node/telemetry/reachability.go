package telemetry

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/gossip"
)

// idleGap is the time between two frames of an idle peer: within it, nodes that are partitioned at once become
// unreachable one after the other.
const idleGap = time.Second

// reachable is which part of the cluster can be reached.
type reachable struct {
	regions []regionReach // of the other nodes, by name
	peers   int           // unreachable nodes
	ended   []string      // region/node of those of them whose processes have ended
	near    int           // of the others, those of the node's own region
	blocked []Blockage
	names   []string      // region/node of the others whose region can be reached
	silent  time.Duration // the least time since a frame came from any of names
	overdue []string      // those of names that are silent for idleGap longer than they may be
}

// regionReach is whether a region can be reached.
type regionReach struct {
	name   string
	own    bool          // it is the node's own
	nodes  int           // the other nodes there
	down   bool          // all of them are unreachable
	ended  bool          // all of their processes have ended
	silent time.Duration // the time since a frame came from any of them
}

// isLost reports whether a peer is unreachable: silent for longer than limit, or out of the membership without having
// left.
func isLost(p *gossip.MemberStatus, limit time.Duration) bool { return p.Age > limit || p.Pool == "" }

// hasEnded reports whether a peer is unreachable because its process has ended. Then it admits nothing, and no
// partition is why nothing comes from it.
func hasEnded(p *gossip.MemberStatus, limit time.Duration) bool { return p.Ended && isLost(p, limit) }

// reachOf sums up the peers, which are sorted by region.
func reachOf(peers []gossip.MemberStatus, limit time.Duration) *reachable {
	all := &reachable{blocked: blockages(peers)}
	for len(peers) > 0 {
		r := regionReach{name: peers[0].Region, own: !peers[0].OtherRegion, silent: peers[0].Age}
		var lost []*gossip.MemberStatus
		ended := 0
		for ; len(peers) > 0 && peers[0].Region == r.name; peers = peers[1:] {
			p := &peers[0]
			r.nodes++
			r.silent = min(r.silent, p.Age)
			switch {
			case hasEnded(p, limit):
				ended++
				all.ended = append(all.ended, peerName(p))
			case isLost(p, limit):
				lost = append(lost, p)
				if !p.OtherRegion {
					all.near++
				}
			}
		}
		r.down, r.ended = len(lost)+ended == r.nodes, ended == r.nodes
		all.regions = append(all.regions, r)
		all.peers += len(lost) + ended
		if r.down {
			continue
		}
		for _, p := range lost {
			if len(all.names) == 0 || p.Age < all.silent {
				all.silent = p.Age
			}
			all.names = append(all.names, peerName(p))
			if isLost(p, limit+idleGap) {
				all.overdue = append(all.overdue, peerName(p))
			}
		}
	}
	return all
}

// byLabel returns, for the first maxRegionSeries regions by name, whether any node there can be reached.
func (r *reachable) byLabel() map[string]bool {
	labels := make(map[string]bool)
	for i := range r.regions[:min(len(r.regions), maxRegionSeries)] {
		name := label(r.regions[i].name)
		labels[name] = labels[name] || !r.regions[i].down
	}
	return labels
}

// peerName returns a peer's region/node. Peers choose both freely.
func peerName(p *gossip.MemberStatus) string { return printable(p.Region) + "/" + printable(p.NodeID) }

// printable quotes a name that could be taken for something else in a log.
func printable(name string) string {
	if name == "" {
		return "unknown"
	}
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` || strings.ContainsAny(name, " ,;") {
		return quoted
	}
	return name
}

func firstNames(names []string) string { return FirstNames(names, 8) }

// FirstNames joins so many names of a list with how many more there are.
func FirstNames(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// reachAlarm logs which regions and peers become unreachable, and reachable again. look is not safe for concurrent use.
type reachAlarm struct {
	log    *slog.Logger
	latest atomic.Pointer[reachable]

	regions, peers map[string]time.Time // logged as unreachable, and since when they are
}

func newReachAlarm(log *slog.Logger) *reachAlarm {
	a := &reachAlarm{log: log, regions: make(map[string]time.Time), peers: make(map[string]time.Time)}
	a.latest.Store(&reachable{})
	return a
}

func (a *reachAlarm) look(r *reachable, peers []gossip.MemberStatus, limit time.Duration, now time.Time) {
	a.latest.Store(r)
	a.lookAtRegions(r, now)
	a.lookAtPeers(r, peers, limit, now)
}

func (a *reachAlarm) lookAtRegions(r *reachable, now time.Time) {
	known := make(map[string]bool, len(r.regions))
	over := func(name, text string) {
		a.log.Info(text, "peer_region", name, "after", now.Sub(a.regions[name]).Round(time.Millisecond))
		delete(a.regions, name)
	}
	for _, region := range r.regions {
		known[region.name] = true
		switch _, logged := a.regions[region.name]; {
		case region.down && !logged:
			a.regions[region.name] = now.Add(-region.silent)
			text := "a region cannot be reached"
			if region.own {
				text = "no other node of this region can be reached"
			}
			text += ": the limits that it shares go on here with an estimate of what it admits, those of " +
				"on_partition: local in full"
			if region.ended {
				text = "all nodes of a region are down: their hosts refuse connections, so they admit nothing"
			}
			a.log.Warn(text, "peer_region", region.name, "nodes", region.nodes,
				"silent_for", region.silent.Round(time.Millisecond))
		case !region.down && logged:
			over(region.name, "a region is reachable again")
		}
	}
	for name := range a.regions {
		if !known[name] {
			over(name, "an unreachable region is not waited for any more: its nodes have left, or were silent for "+
				"too long")
		}
	}
}

// lookAtPeers logs, on one line, the peers that become unreachable at once while others of their region are reachable.
func (a *reachAlarm) lookAtPeers(r *reachable, peers []gossip.MemberStatus, limit time.Duration, now time.Time) {
	var lost, back []string
	for _, name := range r.overdue {
		if _, logged := a.peers[name]; !logged {
			a.peers[name] = now.Add(-r.silent)
			lost = append(lost, name)
		}
	}
	if len(lost) > 0 {
		a.log.Warn("peers cannot be reached: the limits that they share go on here with an estimate of what they admit",
			"peers", firstNames(lost), "count", len(lost), "silent_for", r.silent.Round(time.Millisecond))
	}
	var down []string
	for _, name := range r.ended {
		if _, logged := a.peers[name]; !logged {
			a.peers[name] = now
			down = append(down, name)
		}
	}
	if len(down) > 0 {
		a.log.Warn("nodes are down: their hosts refuse connections, so they admit nothing; start them again",
			"peers", firstNames(down), "count", len(down))
	}
	if len(a.peers) == 0 {
		return
	}
	here := make(map[string]bool) // by name: whether any boot of the node can be reached
	for i := range peers {
		name := peerName(&peers[i])
		here[name] = here[name] || !isLost(&peers[i], limit)
	}
	longest := time.Duration(0)
	for name, since := range a.peers {
		reached, known := here[name]
		if reached {
			back, longest = append(back, name), max(longest, now.Sub(since))
		}
		if reached || !known {
			delete(a.peers, name)
		}
	}
	if slices.Sort(back); len(back) > 0 {
		a.log.Info("peers are reachable again", "peers", firstNames(back), "count", len(back),
			"after", longest.Round(time.Millisecond))
	}
}
