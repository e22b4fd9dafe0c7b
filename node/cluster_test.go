package node

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/status"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/testnet/netem"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestTwoNodesShareCounts(t *testing.T) {
	t.Parallel()
	first := launch(t, gossiping("a", "eu")).ready(t)
	second := launch(t, gossiping("b", "eu", first.Addr("lan"))).ready(t)
	allMembers(t, first, second)
	if got := takeSome(t, first.Node, "per_client", "x", 600); got != 600 {
		t.Fatalf("%d of 600 admitted", got)
	}
	testkit.Eventually(t, "what was admitted at one counts at the other", func() bool {
		return spent(t, second.Node, "per_client", "x") == 600
	})
	got := takeSome(t, second.Node, "per_client", "x", 600)
	if got < 350 || got > 400 {
		t.Errorf("the other admits %d of what is left, want 400, but for some of the last twentieth of the limit", got)
	}
	testkit.Eventually(t, "and back", func() bool { return spent(t, first.Node, "per_client", "x") == uint64(600+got) })
	if more := takeSome(t, first.Node, "per_client", "x", 600); got+more > 400 {
		t.Errorf("%d and %d admitted beside 600 of 1000", got, more)
	}
	if spent(t, first.Node, "per_client", "y") != 0 {
		t.Error("another identity was charged")
	}
	for _, n := range []*running{first, second} {
		if len(n.Slots()) == 0 || degraded(t, n.Node) || n.Staleness() > testkit.Patience {
			t.Errorf("%s: %d slots, degraded %v, staleness %v", n.cfg.NodeID, len(n.Slots()), degraded(t, n.Node),
				n.Staleness())
		}
	}
	if m := first.Members(); m[0].NodeID != "b" || m[0].Region != "eu" || m[0].Addr != second.Addr("lan") {
		t.Errorf("member %+v", m[0])
	}
}

// Two nodes of one region and one of another, which is reached over the WAN only.
func TestCountsCrossRegions(t *testing.T) {
	t.Parallel()
	eu1 := launch(t, gossiping("1", "eu")).ready(t)
	eu2 := launch(t, gossiping("2", "eu", eu1.Addr("lan"), "wan:"+eu1.Addr("wan"))).ready(t)
	us := launch(t, gossiping("1", "us", "wan:"+eu2.Addr("wan"))).ready(t) // of the same id as another region's
	nodes := []*running{eu1, eu2, us}
	allMembers(t, nodes...)
	for i, n := range nodes {
		takeSome(t, n.Node, "per_client", "x", 100*(i+1))
	}
	for _, n := range nodes {
		testkit.Eventually(t, "all counts at "+n.cfg.Region+n.cfg.NodeID, func() bool {
			return spent(t, n.Node, "per_client", "x") == 600
		})
	}
	for _, m := range eu1.Members() {
		if want := map[string]string{"eu": "lan", "us": "wan"}[m.Region]; m.Pool != want {
			t.Errorf("%s in %s is reached over the %s, want %s", m.NodeID, m.Region, m.Pool, want)
		}
	}
}

// Two nodes of a region with one id: the status of each says so and names the other, and takes nothing for blocked.
func TestStatusNamesTwins(t *testing.T) {
	t.Parallel()
	withHealth := func(cfg Config) Config {
		cfg.Health = "127.0.0.1:0"
		return cfg
	}
	first := launch(t, withHealth(gossiping("a", "eu"))).ready(t)
	second := launch(t, withHealth(gossiping("a", "eu", first.Addr("lan")))).ready(t)
	for n, other := range map[*running]*running{first: second, second: first} {
		testkit.EventuallyWithin(t, 2*testkit.Patience, "the metric counts the other", func() bool {
			_, series := scrape(t, n.Addr("health"))
			return series["edgelimit_gossip_twin_nodes"] > 0
		})
		testkit.EventuallyWithin(t, 2*testkit.Patience, "the id is said to be taken twice", func() bool {
			s := n.Status()
			return slices.ContainsFunc(s.Summary, func(f status.Finding) bool {
				return f.Level == "error" && strings.Contains(f.Do, "--node-id") && strings.Contains(f.Text,
					"several nodes have the id a of region eu: this node and those at "+other.Addr("lan"))
			}) && s.Health == status.Degraded
		})
	}
	testkit.Eventually(t, "nothing is blocked", func() bool { return len(first.monitor.Blocked()) == 0 })
}

// The exported bound rises where a node admits while peers admit unseen, and the node shows it on its listener.
func TestBoundShowsUnderTraffic(t *testing.T) {
	t.Parallel()
	first := launch(t, gossiping("a", "eu")).ready(t)
	cfg := gossiping("b", "eu", first.Addr("lan"))
	cfg.Health = "127.0.0.1:0"
	second := launch(t, cfg).ready(t)
	allMembers(t, first, second)
	client := 0
	testkit.Eventually(t, "a bound at a node that admits much, while another does", func() bool {
		client++
		takeSome(t, second.Node, "per_client", strconv.Itoa(client), 600)
		takeSome(t, first.Node, "per_client", strconv.Itoa(client), 500)
		return second.Bound("test/client") > 0
	})
	if b := second.Bound("test/client"); b > 1 {
		t.Errorf("the bound is %v: one peer can exceed the limit by no more than the limit", b)
	}
	if _, series := scrape(t,
		second.Addr("health")); series["edgelimit_over_admission_bound_ratio rule=per_client"] <= 0 ||
		series["edgelimit_members region=eu"] != 1 ||
		series["edgelimit_gossip_frames_received_total"] == 0 {
		t.Errorf("metrics %v", series)
	}
}

// Decisions say so while a peer cannot be heard, and cease to once it can.
func TestDegradedWhileAPeerIsSilent(t *testing.T) {
	t.Parallel()
	links := netem.NewLinks(1)
	first := launch(t, through(links, "a", gossiping("a", "eu"))).ready(t)
	second := launch(t, through(links, "b", gossiping("b", "eu", first.Addr("lan")))).ready(t)
	allMembers(t, first, second)
	testkit.Eventually(t, "nothing is degraded",
		func() bool { return !degraded(t, first.Node) && !degraded(t, second.Node) })
	links.Partition("b")
	testkit.EventuallyWithin(t, 2*testkit.Patience, "both notice the silence",
		func() bool { return degraded(t, first.Node) && degraded(t, second.Node) })
	if takeSome(t, first.Node, "per_client", "x", 300) != 300 ||
		takeSome(t, second.Node, "per_client", "x", 200) != 200 {
		t.Error("a degraded node does not decide by itself")
	}
	links.Heal()
	testkit.EventuallyWithin(t, 3*testkit.Patience, "counts cross again", func() bool {
		return spent(t, first.Node, "per_client", "x") == 500 && spent(t, second.Node, "per_client", "x") == 500
	})
	// A node that was degraded at its start as well stays so for a minute: it comes and goes.
	testkit.EventuallyWithin(t, 2*testkit.Patience, "nothing is degraded after the heal",
		func() bool { return !degraded(t, first.Node) && !degraded(t, second.Node) })
}

// A node that stops tells what it had not told yet: here nothing at all, its first interval has not passed.
func TestGracefulStopHandsOver(t *testing.T) {
	t.Parallel()
	first := launch(t, gossiping("a", "eu")).ready(t)
	cfg := gossiping("b", "eu", first.Addr("lan"))
	second := launch(t, cfg).ready(t)
	allMembers(t, first, second)
	testkit.Eventually(t, "the stopping node has been heard",
		func() bool { return first.Members()[0].CompleteThrough != 0 })
	takeSome(t, second.Node, "per_client", "x", 321)
	testkit.Must(t, second.stop())
	if got := spent(t, first.Node, "per_client", "x"); got != 321 {
		t.Errorf("when it had stopped, its peer counted %d of its 321", got)
	}
	testkit.Eventually(t, "it has left", func() bool { return len(first.Members()) == 0 })
}

// A node that is ready knows what its peers know.
func TestReadyMeansWarm(t *testing.T) {
	t.Parallel()
	first := launch(t, gossiping("a", "eu")).ready(t)
	takeSome(t, first.Node, "per_client", "x", 250)
	second := launch(t, gossiping("b", "eu", first.Addr("lan"))).ready(t)
	if got := spent(t, second.Node, "per_client", "x"); got != 250 {
		t.Errorf("a node that is ready counts %d of 250", got)
	}
}

// A node that said goodbye is not missed: decisions are not degraded, and it is not in the bound.
func TestGoodbyeIsNotSilence(t *testing.T) {
	t.Parallel()
	first := launch(t, gossiping("a", "eu")).ready(t)
	second := launch(t, gossiping("b", "eu", first.Addr("lan"))).ready(t)
	allMembers(t, first, second)
	testkit.Eventually(t, "the stopping node has been heard",
		func() bool { return first.Members()[0].CompleteThrough != 0 })
	testkit.Must(t, second.stop())
	testkit.Eventually(t, "it has left", func() bool { return len(first.Members()) == 0 })
	testkit.Eventually(t, "nobody is missed", func() bool { return !degraded(t, first.Node) && first.Staleness() == 0 })
}

// The same through the store of the region: a node that has no peer leaves its counts there.
func TestGracefulStopTellsTheStore(t *testing.T) {
	store := regions.NewEmbedded(0, time.Now)
	cfg := quiet(perClient)
	cfg.Store = store
	n := launch(t, cfg).ready(t)
	takeSome(t, n.Node, "per_client", "x", 77)
	testkit.Must(t, n.stop())
	cfg.NodeID = "b"
	if got := spent(t, launch(t, cfg).ready(t).Node, "per_client", "x"); got != 77 {
		t.Errorf("the store was told of %d of 77", got)
	}
}

// A node whose seed does not answer yet serves, and joins once it does.
func TestSeedComesLater(t *testing.T) {
	t.Parallel()
	var book testkit.Log
	seed := testkit.FreeAddr(t)
	cfg := gossiping("a", "eu", seed, "no-such-host.invalid:7946")
	cfg.Logger = book.Logger()
	first := launch(t, cfg).ready(t)
	takeSome(t, first.Node, "per_client", "x", 10)
	testkit.Eventually(t, "a warning of the seed that does not answer", func() bool {
		return book.HasLine("WARN", "seed does not answer, will try again", seed)
	})
	testkit.Eventually(t, "a warning of the seed that does not resolve", func() bool {
		return book.HasLine("WARN", "seed does not resolve, will try again", "no-such-host.invalid")
	})
	late := gossiping("b", "eu")
	late.Gossip.LAN = seed
	second := launch(t, late).ready(t)
	allMembers(t, first, second)
	testkit.Eventually(t, "the counts from before",
		func() bool { return spent(t, second.Node, "per_client", "x") == 10 })
}

// Nodes of another label, another key or none, and whoever sends rubbish: the log says so, and nothing else happens.
func TestStrangersAreKeptOut(t *testing.T) {
	t.Parallel()
	key := keyFile(t)
	var book testkit.Log
	cfg := gossiping("a", "eu")
	cfg.Gossip.KeyFile, cfg.Logger = key, book.Logger()
	n := launch(t, cfg).ready(t)
	friend := gossiping("b", "eu", n.Addr("lan"))
	friend.Gossip.KeyFile = key
	second := launch(t, friend).ready(t)
	allMembers(t, n, second)

	for name, change := range map[string]func(*Gossip){
		"other key":   func(g *Gossip) { g.KeyFile = keyFile(t) },
		"no key":      func(g *Gossip) { g.KeyFile = "" },
		"other label": func(g *Gossip) { g.KeyFile, g.Label = key, "elsewhere" },
	} {
		var complaint testkit.Log
		stranger := gossiping("c", "eu", n.Addr("lan"))
		stranger.Logger = complaint.Logger()
		change(&stranger.Gossip)
		s := launch(t, stranger).ready(t)
		takeSome(t, s.Node, "per_client", "x", 500)
		testkit.Eventually(t, name+": a warning at the stranger", func() bool {
			return complaint.HasLine("WARN", "seed does not answer", n.Addr("lan"))
		})
		if name == "other key" {
			testkit.Eventually(t, name+": the other nodes say whose", func() bool {
				return strings.Contains(fmt.Sprint(n.Status().Summary),
					"127.0.0.1 sends gossip that is encrypted with another key")
			})
		}
		if len(s.Members()) != 0 || len(n.Members()) != 1 {
			t.Errorf("%s: the stranger has members %v, the cluster %v", name, s.Members(), n.Members())
		}
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	}
	sendRubbish(t, n.Addr("lan"))
	testkit.Eventually(t, "warnings in the log",
		func() bool { return book.HasLine("WARN", "memberlist", "pool=lan", "127.0.0.1") })
	if spent(t, n.Node, "per_client", "x") != 0 {
		t.Error("a stranger's counts are in")
	}
	takeSome(t, second.Node, "per_client", "x", 5)
	testkit.Eventually(t, "the node goes on", func() bool { return spent(t, n.Node, "per_client", "x") == 5 })
}

// Without a key, rubbish gets one step further, and no more.
func TestRubbishWithoutKey(t *testing.T) {
	t.Parallel()
	var book testkit.Log
	cfg := gossiping("a", "eu")
	cfg.Logger = book.Logger()
	n := launch(t, cfg).ready(t)
	second := launch(t, gossiping("b", "eu", n.Addr("lan"))).ready(t)
	allMembers(t, n, second)
	sendRubbish(t, n.Addr("lan"))
	testkit.Eventually(t, "a warning in the log", func() bool { return book.HasLine("WARN", "memberlist", "pool=lan") })
	takeSome(t, second.Node, "per_client", "x", 5)
	testkit.Eventually(t, "the node goes on", func() bool { return spent(t, n.Node, "per_client", "x") == 5 })
	if len(n.Members()) != 1 || n.cluster.Stats().Malformed != 0 {
		t.Errorf("members %v, %d malformed frames: rubbish without the label came through", n.Members(),
			n.cluster.Stats().Malformed)
	}
}

// sendRubbish sends packets and streams that nobody could mean.
func sendRubbish(t *testing.T, addr string) {
	t.Helper()
	rubbish := [][]byte{{}, {0}, {255}, []byte("GET / HTTP/1.1\r\n\r\n"), make([]byte, 1400)}
	for i := range 20 {
		b := make([]byte, 1+i*37)
		for j := range b {
			b[j] = byte((i + 1) * (j + 7) * 2654435761 >> 13)
		}
		rubbish = append(rubbish, b)
	}
	for _, network := range []string{"udp", "tcp"} {
		for _, b := range rubbish {
			conn, err := net.Dial(network, addr)
			testkit.Must(t, err)
			if _, err := conn.Write(b); err != nil {
				t.Error(err)
			}
			_ = conn.Close()
		}
	}
}
