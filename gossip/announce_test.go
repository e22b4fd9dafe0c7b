package gossip

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// fingerprints says which of the nodes does not know what the others send of themselves.
func (l *testCluster) fingerprints() string {
	for _, n := range l.nodes {
		for _, m := range n.Members() {
			other := l.nodes[m.Region+"/"+m.NodeID]
			if want := other.Self(); m.Member != want {
				return fmt.Sprintf("%s knows of %+v, want %+v", n.Self().NodeID, m.Member, want)
			}
		}
	}
	return ""
}

// What a node says of its rules and its identity secret is known to all others when they know the node, and what
// changes of it within five seconds, with loss, in both pools.
func TestClusterKnowsFingerprints(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		for i, name := range []string{"east/n1", "east/n2", "west/n3", "west/n4"} {
			l.start(name, func(c *Config) { c.Rules, c.Identity = 100, uint64(1+i/3) })
		}
		l.within(wholeWithin, "a fresh cluster", l.sees(l.all()...))
		if m := l.fingerprints(); m != "" {
			t.Error(m)
		}
		since := l.nodes["east/n1"].silent(l.nodes["east/n1"].pools[0])
		for round := range uint64(5) {
			l.nodes["east/n2"].AnnounceRules(200 + round)
			l.nodes["west/n4"].AnnounceRules(300 + round)
			l.nodes["west/n4"].AnnounceRules(400 + round) // at once
			t.Log("known after", l.within(5*time.Second, "new fingerprints", l.fingerprints))
		}
		l.take("east/n2", 7)
		l.within(counted, "a count after that", l.counts(7, l.all()...))
		if m := l.sees(l.all()...)(); m != "" || len(since) > 0 {
			t.Errorf("the membership has changed: %s; silent were %v", m, since)
		}
	})
}

// Rules that change while a region is partitioned off are known once it is back, and a stop does not wait for the
// announcement.
func TestFingerprintsCrossAPartition(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.twoRegions()
		l.links.Partition("west")
		time.Sleep(2 * time.Minute)
		l.nodes["west/n4"].AnnounceRules(9)
		time.Sleep(time.Second)
		l.links.Heal()
		l.within(wholeWithin, "the healed cluster", l.sees(l.all()...))
		l.within(15*time.Second, "the fingerprint", l.fingerprints)
		l.nodes["west/n4"].AnnounceRules(10)
		l.stop("west/n4")
	})
}

// Nodes that memberlist has given up are known by name as long as they may still admit; those that left are not.
func TestPeersBeyondAPartitionHaveNames(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		east, _ := l.twoRegions()
		l.stop("west/n5")
		l.within(counted, "nobody sees the one that has left", l.sees(l.all()...))
		time.Sleep(time.Second) // its second goodbye may be under way
		l.links.Partition("west")
		l.within(6*time.Minute, "east without west", l.sees(east...))
		for _, name := range east {
			var gone []string
			for _, p := range l.nodes[name].Peers() {
				if p.Pool == "" {
					gone = append(gone, p.Region+"/"+p.NodeID)
				}
			}
			if len(gone) != 1 || gone[0] != "west/n4" {
				t.Errorf("%s misses %v, want west/n4", name, gone)
			}
		}
		time.Sleep(forgetSilent)
		if n := len(l.nodes[east[0]].Peers()); n != len(east)-1 {
			t.Errorf("%d peers after a quarter of an hour, want those that are left", n)
		}
	})
}

// metaDelegate is a node of this metadata, as far as memberlist goes.
type metaDelegate struct{ meta []byte }

func (d metaDelegate) NodeMeta(int) []byte           { return d.meta }
func (metaDelegate) NotifyMsg([]byte)                {}
func (metaDelegate) GetBroadcasts(int, int) [][]byte { return nil }
func (metaDelegate) LocalState(bool) []byte          { return nil }
func (metaDelegate) MergeRemoteState([]byte, bool)   {}

// A node that speaks another version of the protocol is no member, and the log names it; one that speaks this one too
// is asked.
func TestOtherProtocolVersion(t *testing.T) {
	for _, tt := range []struct {
		min, max uint8
		refused  bool
	}{
		{protocolVersion + 1, protocolVersion + 1, true}, {0, protocolVersion - 1, true},
		{protocolVersion, protocolVersion + 1, false},
	} {
		testkit.VirtualTime(t, func(t *testing.T) {
			l := newTestCluster(t)
			n := l.start("east/n1")
			other := Member{NodeID: "n2", Region: "east", Incarnation: 5, MinVersion: tt.min, MaxVersion: tt.max}
			conf := memberlist.DefaultLANConfig()
			conf.Name, conf.Label = other.poolName(), DefaultLabel+"/lan/east"
			conf.EnableCompression, conf.UDPBufferSize = false, 1400
			conf.Delegate, conf.Transport = metaDelegate{other.encode()}, l.transport("10.101.1.2:7946", "east")
			conf.Logger = bridgeLog(slog.New(slog.DiscardHandler), lan)
			ml, err := memberlist.Create(conf)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = ml.Leave(time.Second)
				_ = ml.Shutdown()
			}()
			if _, err := ml.Join([]string{n.Addr(lan)}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(counted)
			n.mu.Lock()
			asked := n.candidates[other.Origin()] != nil
			n.mu.Unlock()
			if lines := n.logs.about("another protocol version"); asked == tt.refused || len(lines) > 0 != tt.refused {
				t.Errorf("versions %d to %d: asked: %t, log %q", tt.min, tt.max, asked, lines)
			}
		})
	}
}
