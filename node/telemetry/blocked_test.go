package telemetry

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Each way that is blocked has a name, which says direction and region, and what opens it.
func TestBlockages(t *testing.T) {
	peer := func(name string, b gossip.Blocked) gossip.MemberStatus {
		p := seen(name, 0)
		p.Addr, p.Blocked = "10.0.0.9:9102", b
		return p
	}
	for _, test := range []struct {
		blocked gossip.Blocked
		want    string
	}{
		{gossip.Blocked{UDPTo: true}, "UDP from this node to region us is blocked, TCP is open: counts go over TCP; " +
			"open UDP from this node to 10.0.0.9:9102"},
		{gossip.Blocked{UDPFrom: true}, "UDP from region us to this node is blocked, TCP is open: counts go over " +
			"TCP; open UDP from 10.0.0.9 to the gossip port of this node"},
		{gossip.Blocked{UDPTo: true, UDPFrom: true}, "UDP between this node and region us is blocked both ways, TCP " +
			"is open: counts go over TCP; open UDP from this node to 10.0.0.9:9102, and back to its gossip port"},
		{gossip.Blocked{TCPTo: true}, "TCP from this node to region us is blocked, UDP is open: counts arrive, but " +
			"nodes that start cannot join; open TCP from this node to 10.0.0.9:9102"},
		{gossip.Blocked{}, ""},
	} {
		var got []string
		reach := reachOf([]gossip.MemberStatus{peer("eu/a", gossip.Blocked{}), peer("us/b", test.blocked)}, minSilence)
		got = NewMonitor(new(testkit.Log).Logger(), "", time.Second).reasons(reach, nil, false, false)
		if strings.Join(got, "|") != test.want {
			t.Errorf("%+v: %q, want %q", test.blocked, got, test.want)
		}
	}
	some := blockages([]gossip.MemberStatus{peer("us/a", gossip.Blocked{}), peer("us/b", gossip.Blocked{UDPTo: true})})
	if len(some) != 1 || !strings.HasPrefix(some[0].Text(), "UDP from this node to b of region us is blocked") {
		t.Errorf("%+v", some)
	}
}

// Nodes with one id in one region are twins. A node of that id in another region is none, nor one that has left.
func TestTwins(t *testing.T) {
	peers := []gossip.MemberStatus{seen("eu/a", 0), seen("!eu/a", 0), seen("eu/b", 0), seen("us/a", 0), seen("us/c", 0),
		seen("us/c", 0)}
	var got []string
	for _, p := range Twins(&gossip.Member{Region: "eu", NodeID: "a"}, peers) {
		got = append(got, p.Region+"/"+p.NodeID)
	}
	if strings.Join(got, " ") != "eu/a us/c us/c" {
		t.Errorf("%q", got)
	}
}

// A crash and a partition have different words, in reasons and in the log.
func TestEndedIsNotUnreachable(t *testing.T) {
	ended := func(name string) gossip.MemberStatus {
		p := seen("!"+name, 5*time.Second)
		p.Ended = true
		return p
	}
	for _, test := range []struct {
		peers        []gossip.MemberStatus
		reason, line string
	}{
		{[]gossip.MemberStatus{ended("eu/b"), seen("eu/c", 0)}, "eu/b is down: connections are refused",
			"nodes are down"},
		{[]gossip.MemberStatus{ended("us/b"), ended("us/c")}, "us/b, us/c are down: connections are refused",
			"all nodes of a region are down"},
		{[]gossip.MemberStatus{seen("!us/b", 5*time.Second)},
			"region us cannot be reached: nothing from its 1 node for 5 s", "a region cannot be reached"},
	} {
		var log testkit.Log
		m := NewMonitor(log.Logger(), "", time.Second)
		reach := reachOf(test.peers, minSilence)
		m.reach.look(reach, test.peers, minSilence, at(0))
		if got := strings.Join(m.reasons(reach, nil, false, false), "; "); got != test.reason {
			t.Errorf("%q, want %q", got, test.reason)
		}
		if !log.HasLine(test.line) {
			t.Errorf("no line says %q: %s", test.line, &log)
		}
	}
}

// However a cause comes and goes, being degraded changes twice a minute at most, but for the first minute of ten, and
// never ends while there is a cause.
func TestDegradedDoesNotFlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := degradation{log: new(testkit.Log).Logger()}
		var changes []time.Time
		now, was := at(0), false
		for range rapid.IntRange(1, 300).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(100, 20_000).Draw(t, "ms")) * time.Millisecond)
			var reasons []string
			if rapid.Bool().Draw(t, "cause") {
				reasons = []string{"region us cannot be reached"}
			}
			d.look(reasons, false, now)
			is := d.cluster.Load()
			if is != was {
				changes = append(changes, now)
			}
			was = is
			if len(reasons) > 0 && !is {
				t.Fatal("it is not degraded, though there is a cause")
			}
			if held := *d.reasons.Load(); (len(held) > 0) != is {
				t.Fatalf("degraded is %v, for %q", is, held)
			}
		}
		for i := 3; i < len(changes); i++ {
			quiet := changes[i-2].Sub(changes[i-3])
			if changes[i].Sub(changes[i-2]) < time.Minute && quiet <= degradedQuiet {
				t.Fatalf("three changes within a minute, %v after another: %v", quiet, changes[i-2:i+1])
			}
		}
	})
}
