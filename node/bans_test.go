package node

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// banned is how many requests of a rule a ban denied.
func banned(n *Node, fullName string) uint64 {
	for r, t := range n.policy.Load().tallies {
		if r.FullName == fullName {
			return t.banned.Load()
		}
	}
	return 0
}

const minute = "window: 10s, requests_per_unit: 3, ban: 60s"

// The first denial begins the ban, and is counted apart from what the ban denies.
func TestBan(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		n := idle(t, single("rate_limit: {"+minute+"}"))
		request := Request{Rule: "test/client", Identity: "x"}
		takeSome(t, n, "test/client", "x", 3)
		for i := range 5 {
			d := take(t, n, request)
			if d.Allowed || d.Banned != (i > 0) || d.RetryAfter != time.Minute-time.Duration(i)*time.Second ||
				d.Rule != "test/client" {
				t.Errorf("denied the %d. time: %+v", i+1, d)
			}
			time.Sleep(time.Second)
		}
		if d := take(t, n, Request{Rule: "test/client", Identity: "y"}); !d.Allowed {
			t.Errorf("another identity: %+v", d)
		}
		time.Sleep(55*time.Second - 1)
		if d := take(t, n, request); d.Allowed || d.RetryAfter != 1 {
			t.Errorf("the last nanosecond: %+v", d)
		}
		time.Sleep(time.Nanosecond)
		if d := take(t, n, request); !d.Allowed || d.Banned {
			t.Errorf("after the ban: %+v", d)
		}
		if got, in := tallied(n, "test/client"), banned(n, "test/client"); got != [3]uint64{5, 1, 0} || in != 5 {
			t.Errorf("tallies are %v, and %d banned", got, in)
		}
	})
}

// What a mode lets pass bans nobody; where it does not, it does. A ban does not outlast the switch that ends all
// denials.
func TestBansAndModes(t *testing.T) {
	for fields, want := range map[string]struct{ denied, banned int }{
		"shadow_mode: true, rate_limit: {" + minute + "}": {0, 0},
		// 6 pass
		"rate_limit: {" + minute + ", mode: soft, soft_percent: 100}":                                     {4, 3},
		"quota_mode: true, rate_limit: {" + minute + "}":                                                  {7, 6},
		"schedule: [{from: \"0:00\", to: \"12:00\", requests_per_unit: 5}], rate_limit: {" + minute + "}": {5, 4},
	} {
		testkit.VirtualTime(t, func(t *testing.T) {
			n := idle(t, single(fields))
			if denied := 10 - takeSome(t, n, "test/client", "x", 10); denied != want.denied ||
				banned(n, "test/client") != uint64(want.banned) {
				t.Errorf("%s: %d are denied, %d by a ban; want %+v", fields, denied, banned(n, "test/client"), want)
			}
			n.Shadow(true)
			if d := take(t, n, Request{Rule: "test/client", Identity: "x"}); !d.Allowed || d.RetryAfter != 0 {
				t.Errorf("%s: in shadow mode %+v", fields, d)
			}
		})
	}
}

// The coarse time may be behind. Who comes back just when there is room is not banned for that, nor counted as denied.
func TestBansUseTheExactTime(t *testing.T) {
	for _, ban := range []string{"ban: 60s", "count_rejected: true"} {
		testkit.VirtualTime(t, func(t *testing.T) {
			n := launch(t,
				quiet(single("rate_limit: {window: 10s, requests_per_unit: 3, algorithm: sliding_log, "+
					ban+"}"))).ready(t)
			takeSome(t, n.Node, "test/client", "x", 3)
			room := n.clock.Now() + int64(10*time.Second)
			time.Sleep(10*time.Second - 3*time.Millisecond/2)
			n.clock.Coarse() // from now on it is kept
			time.Sleep(3 * time.Millisecond / 2)
			if coarse := n.clock.Coarse(); coarse >= room {
				t.Fatal("the coarse time is exact here: that shows nothing")
			}
			for i := range uint64(3) {
				if d := take(t, n.Node, Request{Rule: "test/client", Identity: "x"}); !d.Allowed || d.Remaining != 2-i {
					t.Errorf("%s: after the window: %+v", ban, d)
				}
			}
		})
	}
}

// Who goes on asking stays denied, and is let in once it has calmed down.
func TestCountRejected(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		n := idle(t, single("rate_limit: {window: 10s, requests_per_unit: 10, count_rejected: true}"))
		admitted := 0
		for range 200 { // twice the limit
			admitted += takeSome(t, n, "test/client", "x", 1)
			time.Sleep(500 * time.Millisecond)
		}
		if admitted != 10 {
			t.Errorf("%d are admitted of a client that never calms down", admitted)
		}
		d := take(t, n, Request{Rule: "test/client", Identity: "x"})
		time.Sleep(d.RetryAfter)
		if again := take(t, n, Request{Rule: "test/client", Identity: "x"}); d.Allowed || !again.Allowed {
			t.Errorf("%+v, and after the wait %+v", d, again)
		}
	})
}

// A ban that begins at one node holds at the others, and ends for all at the same time; a node that restarts learns of
// it.
func TestBansAreShared(t *testing.T) {
	t.Parallel()
	set := ruleSet(single("rate_limit: {window: 10s, requests_per_unit: 3, ban: 1h}"))
	sharingBans := func(id string, join ...string) Config {
		cfg := gossiping(id, "eu", join...)
		cfg.RuleSet = set
		return cfg
	}
	first := launch(t, sharingBans("a")).ready(t)
	second := launch(t, sharingBans("b", first.Addr("lan"))).ready(t)
	allMembers(t, first, second)
	takeSome(t, first.Node, "test/client", "x", 4)
	peek := Request{Rule: "test/client", Identity: "x", Peek: true}
	testkit.Eventually(t, "the ban at the other node", func() bool { return take(t, second.Node, peek).Banned })
	third := launch(t, sharingBans("c", second.Addr("lan"))).ready(t)
	if !take(t, third.Node, peek).Banned {
		t.Error("a node that is ready does not know the ban")
	}
	var ends []uint64
	for _, n := range []*running{first, second, third} {
		for _, s := range n.Slots() {
			if s.Meter.Algorithm == counters.Ban {
				ends = append(ends, s.Count)
			}
		}
	}
	if len(ends) != 3 || ends[0] != ends[1] || ends[0] != ends[2] {
		t.Errorf("the ban ends at %v", ends)
	}
}

// A ban outlives the node that began it in the Redis of its region, however small the limit is.
func TestBansOutliveTheNode(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	set := ruleSet(single("rate_limit: {window: 10s, requests_per_unit: 3, ban: 1h}"))
	first := sharing(redis, "a")
	first.RuleSet = set
	n := launch(t, first).ready(t)
	takeSome(t, n.Node, "test/client", "x", 4)
	testkit.Must(t, n.stop())
	second := sharing(redis, "b")
	second.RuleSet = set
	d := take(t, launch(t, second).ready(t).Node, Request{Rule: "test/client", Identity: "x"})
	if !d.Banned || d.RetryAfter > time.Hour || d.RetryAfter < time.Hour-testkit.Patience {
		t.Errorf("at the next node: %+v", d)
	}
}

// Bans are a series of the rules that have them.
func TestMetricsOfBans(t *testing.T) {
	n := launch(t, withListeners(quiet(single("rate_limit: {"+minute+"}")+
		"---\n- {rule_id: plain, limit: 3, window_seconds: 10}\n"))).ready(t)
	takeSome(t, n.Node, "test/client", "x", 6)
	takeSome(t, n.Node, "plain", "x", 6)
	_, series := scrape(t, n.Addr("health"))
	for id, want := range map[string]float64{
		"edgelimit_decisions_total outcome=allowed rule=test/client": 3,
		"edgelimit_decisions_total outcome=denied rule=test/client":  1,
		"edgelimit_decisions_total outcome=banned rule=test/client":  2,
		"edgelimit_decisions_total outcome=denied rule=plain":        3,
	} {
		if series[id] != want {
			t.Errorf("%s is %v, want %v", id, series[id], want)
		}
	}
	if _, there := series["edgelimit_decisions_total outcome=banned rule=plain"]; there {
		t.Error("a rule without a ban has the series of bans")
	}
}

func TestBansAllocateNothing(t *testing.T) {
	n := idle(t, single("rate_limit: {window: 10s, requests_per_unit: 3, ban: 1h, count_rejected: true}"))
	var room [4]Decision
	req := ask(by("client", "x"))
	decide := func() {
		if _, err := n.Decide(t.Context(), &req, room[:0]); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		decide()
	}
	if allocs := testing.AllocsPerRun(500, decide); allocs != 0 {
		t.Errorf("a decision on who is banned allocates %v times", allocs)
	}
}

func unban(t *testing.T, n *Node, req BanRequest) RemovedBans {
	t.Helper()
	done, err := n.RemoveBans(req, Operator{Name: "alice"})
	testkit.Must(t, err)
	return done
}

// An unban names what it lifted and for how long the counts, which stay, deny yet; and it is logged, without saying who
// was banned.
func TestUnban(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		log := &testkit.Log{}
		cfg := quiet(bansFile)
		cfg.Logger = log.Logger()
		n, err := New(cfg)
		testkit.Must(t, err)
		request, bannedOne := Request{Rule: "login", Identity: "192.0.2.77"},
			BanRequest{Rule: "login", Identity: "192.0.2.77"}
		takeSome(t, n, "login", "192.0.2.77", 4)
		takeSome(t, n, "per_user", "joe", 2)
		time.Sleep(2 * time.Second)
		done := unban(t, n, bannedOne)
		if len(done.Rules) != 1 || done.Interval != n.cfg.Gossip.Interval {
			t.Fatalf("%+v", done)
		}
		r := done.Rules[0]
		if r.Rule != "login" || r.Scope != "global" || r.Left != 58*time.Second || r.RetryAfter < 7*time.Second ||
			r.RetryAfter > 9*time.Second {
			t.Errorf("%+v", r)
		}
		if d := take(t, n, Request{Rule: "login", Identity: "192.0.2.77", Peek: true}); d.Allowed || d.Banned {
			t.Errorf("after the lift its count denies: %+v", d)
		}
		if d := take(t, n, Request{Rule: "per_user", Identity: "joe"}); !d.Banned {
			t.Errorf("somebody else: %+v", d)
		}
		time.Sleep(r.RetryAfter)
		if d := take(t, n, request); !d.Allowed {
			t.Errorf("after its window: %+v", d)
		}
		time.Sleep(10 * time.Second)
		if again := unban(t, n, bannedOne).Rules[0]; again.Left != 0 || again.RetryAfter != 0 {
			t.Errorf("who is not banned: %+v", again)
		}
		layers := unban(
			t,
			n,
			BanRequest{Descriptors: [][]rules.Entry{by("client", "x"), by("plain", "x"), by("user", "joe"),
				by("nobody", "x")}},
		)
		if len(layers.Rules) != 2 || layers.Rules[0].Left != 0 || layers.Rules[1].Left == 0 ||
			layers.Rules[1].Scope != "node" {
			t.Errorf("by descriptors, without a domain: %+v", layers)
		}
		if !log.HasLine("a ban was lifted", "rule=login", "banned=true", "left=58s", "by=\"admin unix socket alice\"",
			"identity_hash=") ||
			strings.Contains(log.String(), "192.0.2.77") {
			t.Errorf("the log says\n%s", log)
		}
		for _, test := range []struct {
			req  BanRequest
			want error
		}{
			{BanRequest{Rule: "nonsense", Identity: "x"}, rules.ErrUnknownRule},
			{BanRequest{Rule: "login"}, rules.ErrInvalidRequest},
			{BanRequest{}, rules.ErrInvalidRequest},
			{BanRequest{Rule: "plain", Identity: "x"}, ErrNoBan},
			{BanRequest{Descriptors: [][]rules.Entry{by("nobody", "x")}}, ErrNoBan},
		} {
			if done, err := n.RemoveBans(test.req, Operator{}); !errors.Is(err, test.want) {
				t.Errorf("%+v: %+v, %v, want %v", test.req, done, err, test.want)
			}
		}
	})
}

// A ban is lifted on all nodes, whichever of them is asked; also on one that joins later, from the others or from the
// region's Redis.
func TestUnbanReachesAllNodes(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	set := ruleSet(single("rate_limit: {window: 10s, requests_per_unit: 3, ban: 1h}"))
	member := func(id string, join ...string) Config {
		cfg := sharing(redis, id)
		cfg.RuleSet, cfg.Gossip.LAN, cfg.Gossip.Join = set, "127.0.0.1:0", join
		return cfg
	}
	first := launch(t, member("a")).ready(t)
	second := launch(t, member("b", first.Addr("lan"))).ready(t)
	allMembers(t, first, second)
	takeSome(t, first.Node, "test/client", "x", 4)
	peek := Request{Rule: "test/client", Identity: "x", Peek: true}
	testkit.Eventually(t, "the ban at the other node", func() bool { return take(t, second.Node, peek).Banned })
	if done := unban(t, second.Node, BanRequest{Rule: "test/client", Identity: "x"}); done.Rules[0].Left == 0 {
		t.Errorf("%+v", done)
	}
	testkit.Eventually(t, "no ban at the node that began it", func() bool { return !take(t, first.Node, peek).Banned })
	third := launch(t, member("c", first.Addr("lan"))).ready(t)
	if take(t, third.Node, peek).Banned {
		t.Error("a node that joins bans it")
	}
	for _, n := range []*running{third, second, first} {
		testkit.Must(t, n.stop())
	}
	if d := take(t, launch(t, member("d")).ready(t).Node, peek); d.Banned {
		t.Errorf("a node that only has the region's Redis bans it: %+v", d)
	}
}
