package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/testnet/netem"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// minSilence is how long a node is silent at least that counts as unreachable.
const minSilence = 3 * time.Second

// A region that is cut off is named 3 s later, unchanged lost while memberlist forgets its nodes, and is back soon
// after the heal. Time is virtual.
func TestRegionsAreNamedInTime(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		links := netem.NewLinks(1)
		links.SetDefaults(netem.Link{Latency: time.Millisecond, Loss: .01},
			netem.Link{Latency: 40 * time.Millisecond, Loss: .01})
		network := netem.NewNetwork(links)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		var running sync.WaitGroup
		defer func() {
			cancel()
			running.Wait()
			time.Sleep(time.Minute) // memberlist's probes run out
		}()
		var first *gossip.Cluster
		for i, name := range []string{"eu", "us", "us"} {
			addr := fmt.Sprintf("10.0.0.%d:7947", i+1)
			transport, err := network.NewTransport(addr, name)
			if err != nil {
				t.Fatal(err)
			}
			c, err := gossip.NewCluster(gossip.Config{
				NodeID: fmt.Sprint("n", i), Region: name, Incarnation: uint64(i + 1),
				Interval: gossip.DefaultInterval, Label: "x",
				WAN:    &gossip.PoolConfig{Transport: transport, Seeds: []string{"10.0.0.1:7947"}},
				Logger: slog.New(slog.DiscardHandler),
			}, counters.NewTable(counters.Config{Origin: gossip.NewOrigin(fmt.Sprint("n", i), uint64(i+1)),
				Region: name, Memory: counters.MinMemory}))
			if err != nil {
				t.Fatal(err)
			}
			running.Go(func() { _ = c.Run(ctx) })
			if first == nil {
				first = c
			}
		}
		var log testkit.Log
		alarm := newReachAlarm(log.Logger())
		until := func(most time.Duration, done func() bool) time.Duration {
			for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
				peers := first.Peers()
				alarm.look(reachOf(peers, minSilence), peers, minSilence, time.Now())
				if took := time.Since(start); done() || took > most {
					return took
				}
			}
		}
		until(20*time.Second, func() bool { return len(first.Members()) == 2 })
		if until(10*time.Second, func() bool { return log.String() != "" }); log.String() != "" {
			t.Fatalf("a whole cluster: %s", &log)
		}
		links.Partition("us")
		took := until(time.Minute, func() bool {
			return log.HasLine("a region cannot be reached", "peer_region=us nodes=2")
		})
		if took < 2*time.Second || took > 5*time.Second { // an idle peer's last beacon may be a second old, or lost
			t.Errorf("it took %v to name the region: %s", took, &log)
		}
		if log.HasLine("peers cannot be reached") {
			t.Errorf("nodes of the region are named one by one, too: %s", &log)
		}
		before := log.String()
		if until(5*time.Minute, func() bool { return log.String() != before }); log.String() != before {
			t.Errorf("more is said while nothing changes:\n%s", &log)
		}
		links.Heal()
		if took := until(time.Minute, func() bool {
			return log.HasLine("a region is reachable again", "peer_region=us after=5m")
		}); took > 45*time.Second {
			t.Errorf("it took %v to say that it is back: %s", took, &log)
		}
	})
}

// seen is a peer of which nothing has come for so long; one in brackets is out of the membership.
func seen(name string, age time.Duration) gossip.MemberStatus {
	pool := "wan"
	if bare, out := strings.CutPrefix(name, "!"); out {
		name, pool = bare, ""
	}
	region, id, _ := strings.Cut(name, "/")
	return gossip.MemberStatus{
		Member: gossip.Member{NodeID: id, Region: region}, Pool: pool,
		PeerStatus: gossip.PeerStatus{Age: age, OtherRegion: region != "eu"},
	}
}

// Each change of what can be reached is one line, however long it lasts and however many nodes it is.
func TestReachAlarm(t *testing.T) {
	const quick, lost = 100 * time.Millisecond, 4*time.Second + 1
	log := &testkit.Log{}
	a := newReachAlarm(log.Logger())
	many := []gossip.MemberStatus{}
	for i := range 30 {
		many = append(many, seen(fmt.Sprintf("us/n%02d", i), []time.Duration{quick, lost}[min(i, 1)]))
	}
	for _, step := range []struct {
		after time.Duration
		peers []gossip.MemberStatus
		want  []string // parts of the lines
	}{
		{0, nil, nil},
		{0, []gossip.MemberStatus{seen("eu/b", quick), seen("us/c", quick), seen("us/d", quick)}, nil},
		{time.Second / 2, []gossip.MemberStatus{seen("eu/b", quick), seen("us/c", lost-1), seen("us/d", quick)}, nil},
		// us/d may follow
		{time.Second, []gossip.MemberStatus{seen("eu/b", quick), seen("us/c", lost), seen("us/d", quick)},
			[]string{"peers=us/c count=1 silent_for=4s"}},
		{2 * time.Second, []gossip.MemberStatus{seen("eu/b", quick), seen("us/c", lost), seen("us/d", quick)}, nil},
		{3 * time.Second, []gossip.MemberStatus{seen("eu/b", quick), seen("!us/c", lost+1), seen("us/d", lost)},
			[]string{"WARN|a region cannot be reached|peer_region=us nodes=2 silent_for=4s"}},
		{60 * time.Second, []gossip.MemberStatus{seen("eu/b", quick), seen("!us/c", time.Minute), seen("!us/d",
			time.Minute)}, nil},
		{63 * time.Second, []gossip.MemberStatus{seen("eu/b", quick), seen("!us/c", time.Minute), seen("us/d", quick)},
			[]string{"INFO|a region is reachable again|peer_region=us after=1m4s"}}, // us/c was said before
		{64 * time.Second, []gossip.MemberStatus{seen("eu/b", quick), seen("us/c", quick), seen("us/d", quick)},
			[]string{"peers are reachable again|peers=us/c count=1 after=1m7s"}},
		{70 * time.Second, []gossip.MemberStatus{seen("eu/b", lost), seen("us/c", quick)},
			[]string{"no other node of this region can be reached|peer_region=eu nodes=1"}},
		{80 * time.Second, []gossip.MemberStatus{seen("us/c", quick)},
			[]string{"not waited for any more|peer_region=eu"}},
		{90 * time.Second, many, []string{"peers=\"us/n01, us/n02, us/n03, us/n04, us/n05, us/n06, us/n07, us/n08 " +
			"and 21 more\" count=29"}},
		{95 * time.Second, many[:2], nil},
		{96 * time.Second, []gossip.MemberStatus{seen("us/n00", quick), seen("us/n01", quick)},
			[]string{"reachable again|peers=us/n01 count=1 after=10s"}},
		{97 * time.Second, []gossip.MemberStatus{seen("us/a\nb", lost), seen("us/n00", quick)},
			[]string{`peers="us/\"a\\nb\"" count=1`}},
	} {
		before := log.String()
		a.look(reachOf(step.peers, minSilence), step.peers, minSilence, at(0).Add(step.after))
		lines := strings.TrimPrefix(log.String(), before)
		if strings.Count(lines, "\n") != len(step.want) {
			t.Errorf("at %v it says %q, want %d lines", step.after, lines, len(step.want))
		}
		for _, want := range step.want {
			for part := range strings.SplitSeq(want, "|") {
				if !strings.Contains(lines, part) {
					t.Errorf("at %v it says %q, want %q", step.after, lines, part)
				}
			}
		}
	}
}

func TestReachOf(t *testing.T) {
	r := reachOf([]gossip.MemberStatus{seen("eu/a", time.Hour), seen("eu/b", 0), seen("us/c", 5*time.Second),
		seen("!us/d", 4*time.Second)}, minSilence)
	if r.peers != 3 || r.near != 1 || fmt.Sprint(r.names) != "[eu/a]" ||
		fmt.Sprint(r.byLabel()) != "map[eu:true us:false]" {
		t.Errorf("%+v", r)
	}
	if r := reachOf([]gossip.MemberStatus{seen("!", time.Minute)}, minSilence); r.peers != 1 || !r.regions[0].down {
		t.Errorf("a silent node without a name is reached: %+v", r)
	}
	stranger := seen("!", 50*time.Millisecond)
	stranger.Known = time.Minute
	if r := reachOf([]gossip.MemberStatus{stranger}, minSilence); r.peers != 1 || !r.regions[0].down {
		t.Errorf("a node that never becomes a member is reached: %+v", r)
	}
	var many []gossip.MemberStatus
	for i := range 1000 {
		many = append(many, seen(fmt.Sprintf("r%03d/a", i), 0))
	}
	if n := len(reachOf(many, minSilence).byLabel()); n != maxRegionSeries {
		t.Errorf("%d series of regions", n)
	}
}

// Each change is one line, with its reasons.
func TestDegradation(t *testing.T) {
	log := &testkit.Log{}
	d := degradation{log: log.Logger()}
	m := &Monitor{skew: newSkewMonitor(log.Logger(), time.Second)}
	down := reachOf([]gossip.MemberStatus{seen("eu/b", 4*time.Second), seen("us/c", 41*time.Second), seen("us/d",
		50*time.Second)}, minSilence)
	for i, step := range []struct {
		reach    *reachable
		identity []string
		blind    bool
		byStore  bool
		want     string
		line     string
	}{
		{&reachable{}, nil, false, false, "", ""},
		{down, nil, false, false, "region eu cannot be reached: nothing from its 1 node for 4 s; region us cannot be " +
			"reached: nothing from its 2 nodes for 41 s",
			`level=WARN msg="decisions are degraded" because="region eu cannot`},
		{&reachable{names: []string{"us/c"}, silent: 5 * time.Second}, []string{"us/d"}, true, false,
			"us/c cannot be reached: nothing for 5 s or longer; us/d has another identity key and counts apart; " +
				"seeds do not answer: there may be nodes that this one does not know", ""},
		{&reachable{}, nil, false, true, "the regional store does not answer, and this node counts with others by it " +
			"alone", ""},
		{&reachable{}, nil, false, false, "", `level=INFO msg="decisions are no longer degraded" after=3s`},
	} {
		before := log.String()
		reasons := m.reasons(step.reach, step.identity, step.blind, step.byStore)
		d.look(reasons, false, at(0).Add(time.Duration(i)*time.Second))
		line := strings.TrimPrefix(log.String(), before)
		if got := strings.Join(reasons, "; "); got != step.want || d.cluster.Load() != (step.want != "") {
			t.Errorf("step %d: degraded %v because %q, want %q", i, d.cluster.Load(), got, step.want)
		}
		if (line == "") != (step.line == "") || !strings.Contains(line, step.line) {
			t.Errorf("step %d: the log says %q, want %q", i, line, step.line)
		}
	}
}
