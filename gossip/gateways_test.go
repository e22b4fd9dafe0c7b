package gossip

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// regionsOf starts regions of so many nodes each, and waits until all know each other.
func (l *testCluster) regionsOf(nodes int, regions ...string) (names map[string][]string) {
	l.t.Helper()
	names = make(map[string][]string)
	for _, region := range regions {
		for i := range nodes {
			name := fmt.Sprintf("%s/n%d", region, i+1)
			l.start(name)
			names[region] = append(names[region], name)
		}
	}
	l.t.Log("whole after", l.within(wholeWithin, "a fresh cluster", l.sees(l.all()...)))
	return names
}

// allCount has every node ask for the key, and checks that all count the same then.
func (l *testCluster) allCount() {
	l.t.Helper()
	time.Sleep(2 * time.Minute) // nothing of before counts any more
	for _, name := range l.all() {
		l.take(name, 3)
	}
	want := uint64(3 * len(l.nodes))
	l.t.Log("counted after", l.within(counted, "the counts of all", l.counts(want, l.all()...)))
}

// gatewaysOf returns the nodes of a region that take themselves for gateways.
func (l *testCluster) gatewaysOf(names []string) (found []string) {
	for _, name := range names {
		if n := l.nodes[name]; n != nil && n.Self().Gateway {
			found = append(found, name)
		}
	}
	return found
}

// hasGateways says which region has not so many gateways, or whose WAN pool has others than these.
func (l *testCluster) hasGateways(want int, regions map[string][]string) func() string {
	return func() string {
		all := 0
		for _, names := range regions {
			all += len(l.gatewaysOf(names))
		}
		for region, names := range regions {
			gateways := l.gatewaysOf(names)
			if len(gateways) != want {
				return fmt.Sprintf("%s has the gateways %v, want %d", region, gateways, want)
			}
			for _, name := range names {
				n := l.nodes[name]
				if n == nil {
					continue
				}
				size := 1
				if slices.Contains(gateways, name) {
					size = all
				}
				if got := n.pool(wan).ml().NumMembers(); got != size {
					return fmt.Sprintf("the WAN pool of %s has %d members, want %d", name, got, size)
				}
			}
		}
		return ""
	}
}

// Three gateways a region know each other, and every node knows every other one, and what it counts.
func TestGatewaysPassOnMembers(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		names := l.regionsOf(6, "east", "mid", "west")
		t.Log("three gateways after", l.within(2*time.Minute, "the gateways", l.hasGateways(maxGateways, names)))
		if m := l.sees(l.all()...)(); m != "" {
			t.Error("a gateway that steps down takes members along: ", m)
		}
		l.within(3*pushPullEvery, "what nodes send of themselves", l.fingerprints)
		l.allCount()
		for _, name := range l.all() {
			n := l.nodes[name]
			if age, complete := n.Staleness(); !complete || age > 3*time.Second {
				t.Errorf("%s sees the whole cluster: %v, as it was %v ago", name, complete, age)
			}
			for _, m := range n.Members() {
				want := l.nodes[m.Region+"/"+m.NodeID]
				pool := lan
				if m.Region != n.Self().Region {
					pool = wan
				}
				if m.Pool != pool || m.Addr != want.Addr(pool) {
					t.Errorf("%s reaches %s over %s at %s, want %s", name, m.NodeID, m.Pool, m.Addr, want.Addr(pool))
				}
			}
			if lines := n.logs.about("gossip:"); len(lines) > 0 {
				t.Errorf("%s logs %q", name, lines)
			}
		}
		// What a node sends of itself later reaches all, too; whom its broadcasts miss, when lists are compared.
		l.nodes["west/n1"].AnnounceRules(77)
		l.nodes["west/n2"].AnnounceRules(78)
		t.Log("known after", l.within(3*pushPullEvery, "new fingerprints", l.fingerprints))
	})
}

// A region whose gateways are all killed chooses others, and is whole again by itself.
func TestAllGatewaysKilled(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		names := l.regionsOf(6, "east", "west")
		l.within(2*time.Minute, "the gateways", l.hasGateways(maxGateways, names))
		for _, name := range l.gatewaysOf(names["east"]) {
			l.kill(name)
		}
		killed := time.Now()
		for time.Since(killed) < 20*time.Second { // the data path goes on meanwhile
			time.Sleep(time.Second)
			for _, name := range l.all() {
				for _, other := range l.all() {
					if o := l.nodes[other].Self().Origin(); other != name && !l.nodes[name].knows(o) {
						t.Fatalf("after %v %s has lost %s", time.Since(killed), name, other)
					}
				}
			}
		}
		t.Log("whole after another", l.within(100*time.Second, "the others", l.sees(l.all()...)))
		left := map[string][]string{"west": names["west"]}
		l.within(time.Minute, "new gateways", func() string {
			if n := len(l.gatewaysOf(names["east"])); n != maxGateways {
				return fmt.Sprint(n, " gateways")
			}
			return ""
		})
		l.within(2*time.Minute, "the gateways of the other region", func() string {
			if n := len(l.gatewaysOf(left["west"])); n != maxGateways {
				return fmt.Sprint(n, " gateways")
			}
			return ""
		})
		l.allCount()
		// A node that starts now is known everywhere.
		seed := l.nodes[l.gatewaysOf(names["east"])[0]].Addr(lan)
		l.start("east/n9", func(c *Config) { c.LAN.Seeds = []string{seed} })
		t.Log("known after", l.within(wholeWithin, "a new node", l.sees(l.all()...)))
		l.allCount()
	})
}

// A region is cut off for longer than memberlist remembers the dead, and comes back.
func TestGatewaysPartitioned(t *testing.T) {
	for _, lasts := range []time.Duration{2 * time.Minute, forgetSilent + time.Minute} {
		testkit.VirtualTime(t, func(t *testing.T) {
			l := newTestCluster(t)
			names := l.regionsOf(5, "east", "west")
			l.within(2*time.Minute, "the gateways", l.hasGateways(maxGateways, names))
			l.links.Partition("west")
			time.Sleep(lasts)
			for _, side := range names {
				for _, name := range side {
					for _, other := range side {
						if o := l.nodes[other].Self().Origin(); other != name && !l.nodes[name].knows(o) {
							t.Fatalf("%s has lost %s of its own side", name, other)
						}
					}
				}
			}
			for _, name := range l.all() {
				if age, complete := l.nodes[name].Staleness(); complete && age < lasts && lasts < forgetSilent {
					t.Errorf("%s believes that it sees the whole cluster as it was %v ago", name, age)
				}
			}
			l.loss(0)
			l.links.Heal()
			t.Log("healed after", l.within(wholeWithin, "the healed cluster", l.sees(l.all()...)))
			t.Log("one pool after", l.within(2*time.Minute, "the gateways", l.hasGateways(maxGateways, names)))
			l.allCount()
		})
	}
}

// All nodes are restarted, one after the other. Nobody is lost but whoever is down, and nobody who is over stays.
func TestGatewaysRollingRestart(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		names := l.regionsOf(5, "east", "west")
		l.within(2*time.Minute, "the gateways", l.hasGateways(maxGateways, names))
		all := l.all()
		for _, name := range all {
			l.stop(name)
			time.Sleep(time.Second)
			l.start(name, func(c *Config) { c.LAN.Seeds = append(c.LAN.Seeds, l.someAddr(name, lan)) },
				func(c *Config) { c.WAN.Seeds = append(c.WAN.Seeds, l.someAddr(name, wan)) })
			took := l.within(20*time.Second, "a restarted node", l.sees(l.all()...))
			t.Log(name, "known after", took)
		}
		l.within(2*time.Minute, "the gateways", l.hasGateways(maxGateways, names))
		l.allCount()
		for _, name := range all {
			for _, p := range l.nodes[name].Peers() {
				if p.Pool == "" {
					t.Errorf("%s misses %+v", name, p)
				}
			}
			if lines := l.nodes[name].logs.about("same id"); len(lines) > 0 {
				t.Errorf("%s: %q", name, lines)
			}
		}
	})
}

// someAddr is the address in a pool of another node of the node's region.
func (l *testCluster) someAddr(name, pool string) string {
	region, _, _ := strings.Cut(name, "/")
	for _, other := range l.all() {
		if r, _, _ := strings.Cut(other, "/"); r == region && other != name {
			return l.nodes[other].Addr(pool)
		}
	}
	return ""
}

// Regions of one node, beside one that has nodes which are no gateways.
func TestGatewaysOfRegionsOfOne(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		for _, name := range []string{"a/n1", "b/n1", "c/n1"} {
			l.start(name)
		}
		l.within(wholeWithin, "regions of one", l.sees(l.all()...))
		l.regionsOf(7, "west")
		l.within(2*time.Minute, "three gateways", func() string {
			if n := len(l.gatewaysOf(l.all())); n != 3+maxGateways {
				return fmt.Sprint(n, " gateways")
			}
			return ""
		})
		if m := l.sees(l.all()...)(); m != "" {
			t.Error(m)
		}
		l.kill("b/n1")
		t.Log("noticed after", l.within(3*time.Minute, "a region that is gone", func() string {
			for _, name := range l.gatewaysOf(l.all()) {
				if m := l.nodes[name]; len(m.Members()) != 8 {
					return fmt.Sprintf("%s has %d members", name, len(m.Members()))
				}
			}
			return ""
		}))
		l.start("b/n1")
		l.within(wholeWithin, "it is back", l.sees(l.all()...))
	})
}

// A node that starts with a seed that is no gateway finds the cluster by it, and is warm only then.
func TestSeedIsNoGateway(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		names := l.regionsOf(6, "east", "west")
		l.within(2*time.Minute, "the gateways", l.hasGateways(maxGateways, names))
		var seed string
		for _, name := range names["east"] {
			if n := l.nodes[name]; !n.Self().Gateway {
				seed = n.Addr(wan)
			}
		}
		n := l.start("mid/n1", func(c *Config) { c.WAN.Seeds = []string{seed} })
		if err := n.Warm(t.Context()); err != nil || len(n.Members()) == 0 {
			t.Errorf("warm with %d members: %v", len(n.Members()), err)
		}
		l.within(wholeWithin, "the cluster", l.sees(l.all()...))
	})
}

// knows reports whether a node is a member.
func (n *testNode) knows(o counters.Origin) bool {
	return slices.ContainsFunc(n.Members(), func(m MemberStatus) bool { return m.PeerStatus.Origin == o })
}

// Whoever has the key can neither add to a region who does not answer, nor remove its members alone, nor move them.
func TestRosterLiesRemoveNobody(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		names := l.regionsOf(5, "east", "west")
		l.within(2*time.Minute, "the gateways", l.hasGateways(maxGateways, names))
		now := time.Now().UnixNano()
		liar := Member{NodeID: "liar", Region: "west", Incarnation: 1,
			MinVersion: protocolVersion, MaxVersion: protocolVersion,
			Gateway: true, WAN: netip.MustParseAddrPort("10.66.2.8:7946")}
		elsewhere := liar
		elsewhere.NodeID, elsewhere.Region = "other", "lie"
		departed, moved := []Member{}, []Member{elsewhere}
		for _, name := range names["west"] {
			m := l.nodes[name].Self()
			departed = append(departed, m)
			m.Region, m.WAN = "lie", elsewhere.WAN
			moved = append(moved, m)
		}
		gateway := l.nodes[l.gatewaysOf(names["west"])[0]].Self()
		lies := []*roster{newRoster([]Member{liar}, departed, now), newRoster(moved, nil, now),
			newRoster([]Member{gateway}, nil, now+int64(10*time.Minute))} // in another one's name
		packets, stream := encodeRosters(lies)
		for _, name := range names["east"] {
			for _, b := range append(packets, stream) {
				if len(b) > 0 {
					l.nodes[name].receive(wan, b)
				}
			}
		}
		n := l.nodes[names["east"][0]]
		n.mu.Lock()
		if n.candidates[liar.Origin()] == nil {
			t.Error("the lies did not arrive")
		}
		n.mu.Unlock()
		for range 30 {
			time.Sleep(time.Second)
			for _, name := range names["east"] {
				members := l.nodes[name].Members()
				if l.nodes[name].knows(liar.Origin()) {
					t.Fatalf("%s takes a node for a member that answers nothing", name)
				}
				for _, m := range departed {
					if !slices.ContainsFunc(members, func(s MemberStatus) bool {
						return s.PeerStatus.Origin == m.Origin() && s.Region == "west" && s.Addr == m.WAN.String()
					}) {
						t.Fatalf("%s has lost %s", name, m.NodeID)
					}
				}
			}
		}
		time.Sleep(time.Minute)
		for _, name := range names["east"] {
			n := l.nodes[name]
			n.mu.Lock()
			if n.candidates[liar.Origin()] != nil {
				t.Errorf("%s asks a node still that only a publisher who is gone has listed", name)
			}
			n.mu.Unlock()
		}
		l.allCount()
	})
}
