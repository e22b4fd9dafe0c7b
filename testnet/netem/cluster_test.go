package netem

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// secrecy is how a cluster protects its gossip.
type secrecy struct {
	name  string
	key   []byte
	label string
}

var secrecies = []secrecy{
	{name: "plain"},
	{name: "label", label: "edgelimit"},
	{name: "key", key: bytes.Repeat([]byte{7}, 32)},
	{name: "key and label", key: bytes.Repeat([]byte{7}, 32), label: "edgelimit"},
}

func (s secrecy) config(name string, tr memberlist.Transport) *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Name = name
	c.Transport = tr
	c.SecretKey = s.key
	c.Label = s.label
	c.EnableCompression = false
	c.Logger = log.New(io.Discard, "", 0)
	return c
}

// cluster is real memberlist on a network in memory: nodes "a0", "a1", "b0", and so on, named after their groups.
type cluster struct {
	t     *testing.T
	net   *Network
	nodes map[string]*memberlist.Memberlist
}

// start makes the nodes of each group; call it inside a synctest bubble. It shuts them down when the test ends and lets
// time pass for memberlist's own probes to run out: the bubble fails if anything is left running after that.
func start(t *testing.T, links *Links, s secrecy, sizes map[string]int) *cluster {
	c := &cluster{t: t, net: NewNetwork(links), nodes: make(map[string]*memberlist.Memberlist)}
	t.Cleanup(func() {
		for _, m := range c.nodes {
			if err := m.Shutdown(); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute)
	})
	for group, size := range sizes {
		for i := range size {
			c.launch(s, group, i)
		}
	}
	return c
}

func (c *cluster) launch(s secrecy, group string, i int) {
	c.t.Helper()
	tr, err := c.net.NewTransport(fmt.Sprintf("10.0.%d.%d:7946", group[0], i+1), group)
	if err != nil {
		c.t.Fatal(err)
	}
	name := fmt.Sprint(group, i)
	if c.nodes[name], err = memberlist.Create(s.config(name, tr)); err != nil {
		c.t.Fatal(err)
	}
}

// join makes one node join the others by their addresses, and returns how many it reached.
func (c *cluster) join(name string, others ...string) (int, error) {
	var seeds []string
	for _, other := range others {
		seeds = append(seeds, c.nodes[other].LocalNode().Address())
	}
	return c.nodes[name].Join(seeds)
}

func (c *cluster) mustJoin(name string, others ...string) {
	c.t.Helper()
	if n, err := c.join(name, others...); err != nil || n != len(others) {
		c.t.Fatalf("%s joined %d of %v: %v", name, n, others, err)
	}
}

// view is whom a node sees alive.
func (c *cluster) view(name string) string {
	var names []string
	for _, m := range c.nodes[name].Members() {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// converged is long enough for memberlist to agree even when its few random rounds of gossip about a change missed
// somebody, who then has to wait for push/pull (every 30 s, with a random peer).
const converged = 3 * time.Minute

// settle waits until every node of a side sees exactly that side, and fails if it takes longer than the limit.
func (c *cluster) settle(limit time.Duration, sides ...string) {
	c.t.Helper()
	begin := time.Now()
	for {
		var wrong []string
		for _, side := range sides {
			for name := range strings.FieldsSeq(side) {
				if v := c.view(name); v != side {
					wrong = append(wrong, fmt.Sprintf("%s sees %q, want %q", name, v, side))
				}
			}
		}
		if len(wrong) == 0 {
			return
		}
		if time.Since(begin) >= limit {
			c.t.Fatalf("not settled after %v:\n%s", limit, strings.Join(wrong, "\n"))
		}
		time.Sleep(100 * ms)
	}
}

const (
	everybody = "a0 a1 b0 b1 b2"
	sideA     = "a0 a1"
	sideB     = "b0 b1 b2"
)

var twoAndThree = map[string]int{"a": 2, "b": 3}

// wan is a fair day between two regions.
func wan(seed uint64) *Links {
	links := NewLinks(seed)
	links.SetDefaults(Link{Latency: ms}, Link{Latency: 40 * ms, Jitter: 5 * ms})
	return links
}

func TestMemberlistSplitsAndHeals(t *testing.T) {
	for _, s := range secrecies {
		t.Run(s.name, func(t *testing.T) {
			testkit.VirtualTime(t, func(t *testing.T) {
				links := wan(1)
				c := start(t, links, s, twoAndThree)
				for _, name := range []string{"a1", "b0", "b1", "b2"} {
					c.mustJoin(name, "a0")
				}
				c.settle(converged, everybody)

				links.Partition("a")
				c.settle(converged, sideA, sideB)
				if n, err := c.join("b0", "a0"); n != 0 || err == nil {
					t.Errorf("joined %d nodes across the partition: %v", n, err)
				}
				// Past the dead-node timeout (GossipToTheDeadTime, 30 s) no node contacts the other side any more:
				// what is healed does not come together by itself.
				time.Sleep(2 * time.Minute)
				links.Heal()
				time.Sleep(2 * time.Minute)
				c.settle(0, sideA, sideB)

				c.mustJoin("b0", "a0")
				c.settle(converged, everybody)
				// And it stays so.
				time.Sleep(5 * time.Minute)
				c.settle(0, everybody)
			})
		})
	}
}

func TestMemberlistAcrossAOneWayPartition(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		links := wan(2)
		c := start(t, links, secrecies[3], twoAndThree)
		c.mustJoin("a0", "a1", "b0", "b1", "b2")
		c.settle(converged, everybody)
		links.PartitionOneWay("a", "b")
		// What b hears nothing of dies there, and b keeps telling a so.
		c.settle(converged, sideB)
		links.Heal()
		c.mustJoin("a0", "b0")
		c.settle(converged, everybody)
	})
}

func TestMemberlistOnABadNetwork(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		links := NewLinks(3)
		foul := Link{Latency: 30 * ms, Jitter: 20 * ms, Loss: 0.1, Duplicate: 0.2, Reorder: 0.1}
		links.SetDefaults(foul, foul)
		c := start(t, links, secrecies[3], twoAndThree)
		for _, name := range []string{"a1", "b0", "b1", "b2"} {
			c.mustJoin(name, "a0")
		}
		c.settle(converged, everybody)
		time.Sleep(5 * time.Minute)
		c.settle(converged, everybody)
		for _, m := range c.nodes {
			_ = m.Shutdown()
		}
		time.Sleep(time.Minute)
		counts := links.Counts()
		if counts.Sent+counts.Duplicated != counts.Delivered+counts.Lost+counts.Dropped {
			t.Errorf("the books do not balance: %+v", counts)
		}
		for what, n := range map[string]uint64{"lost": counts.Lost, "duplicated": counts.Duplicated,
			"delayed": counts.Delayed} {
			if n == 0 {
				t.Errorf("nothing was %s: %+v", what, counts)
			}
		}
		if counts.Partitioned+counts.Refused+counts.Reset != 0 {
			t.Errorf("partitioned packets without a partition: %+v", counts)
		}
	})
}

// TestALeaveArrivesAfterItsSenderIsGone holds Shutdown to what a kernel does with packets already on the wire.
func TestALeaveArrivesAfterItsSenderIsGone(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		links := wan(4)
		c := start(t, links, secrecies[0], map[string]int{"a": 1, "b": 1})
		c.mustJoin("a0", "b0")
		c.settle(converged, "a0 b0")
		if err := c.nodes["a0"].Leave(10 * time.Second); err != nil {
			t.Fatal(err)
		}
		_ = c.nodes["a0"].Shutdown()
		c.settle(100*ms, "b0")

		delete(c.nodes, "a0")
		c.launch(secrecies[0], "a", 0)
		c.mustJoin("a0", "b0")
		c.settle(converged, "a0 b0")
	})
}

func TestMemberlistKeepsStrangersOut(t *testing.T) {
	for name, stranger := range map[string]secrecy{
		"without the key":   {label: "edgelimit"},
		"without the label": {key: secrecies[3].key},
		"another key":       {key: bytes.Repeat([]byte{8}, 32), label: "edgelimit"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.VirtualTime(t, func(t *testing.T) {
				c := start(t, wan(5), secrecies[3], map[string]int{"a": 2})
				c.mustJoin("a0", "a1")
				c.launch(stranger, "x", 0)
				begin := time.Now()
				if n, err := c.join("x0", "a0", "a1"); n != 0 || err == nil {
					t.Errorf("the stranger joined %d nodes: %v", n, err)
				}
				// Refused by an answer or a closed stream, not by a timeout of 10 s: no two ends wait for each other.
				if took := time.Since(begin); took > time.Second {
					t.Errorf("the refusal took %v", took)
				}
				time.Sleep(time.Minute)
				c.settle(0, "a0 a1", "x0")
			})
		})
	}
}

// TestMemberlistOnSockets runs two nodes on real sockets, wrapped.
func TestMemberlistOnSockets(t *testing.T) {
	for _, s := range []secrecy{secrecies[0], secrecies[3]} {
		t.Run(s.name, func(t *testing.T) {
			links := NewLinks(6)
			links.SetDefaults(Link{}, Link{Latency: 2 * ms, Jitter: ms, Duplicate: 0.1})
			// Events only wake those who look; what they look at is the member list itself.
			changed := make(chan struct{}, 1)
			var nodes [2]*memberlist.Memberlist
			var addrs [2]string
			for i := range nodes {
				var tr memberlist.NodeAwareTransport
				tr, addrs[i] = listen(t, fmt.Sprint("group", i), links)
				nodes[i] = socketNode(t, s, fmt.Sprint("node", i), tr, addrs[i], changed)
			}
			see := func(count int, when string) {
				t.Helper()
				deadline := time.After(patience)
				for nodes[0].NumMembers() != count || nodes[1].NumMembers() != count {
					select {
					case <-changed:
					case <-deadline:
						t.Fatalf("%s: %d and %d members, want %d each", when, nodes[0].NumMembers(),
							nodes[1].NumMembers(), count)
					}
				}
			}
			if _, err := nodes[0].Join(addrs[1:]); err != nil {
				t.Fatal(err)
			}
			see(2, "joined")
			links.Partition("group0")
			see(1, "partitioned")
			if n, err := nodes[0].Join(addrs[1:]); n != 0 || err == nil {
				t.Errorf("joined %d nodes across the partition: %v", n, err)
			}
			links.Heal()
			if _, err := nodes[0].Join(addrs[1:]); err != nil {
				t.Fatalf("joining after the heal: %v", err)
			}
			see(2, "healed")
			if c := links.Counts(); c.Partitioned == 0 || c.Refused == 0 || c.Delivered == 0 {
				t.Errorf("the link had no faults: %+v", c)
			}
		})
	}
}

// socketNode is a node in a hurry: it declares the dead within a second.
func socketNode(
	t *testing.T, s secrecy, name string, tr memberlist.Transport, addr string, changed chan<- struct{},
) *memberlist.Memberlist {
	t.Helper()
	c := s.config(name, tr)
	host, port, _ := net.SplitHostPort(addr)
	c.BindAddr = host
	c.BindPort, _ = strconv.Atoi(port)
	c.ProbeInterval, c.ProbeTimeout = 200*ms, 100*ms
	c.SuspicionMult, c.GossipInterval = 2, 50*ms
	c.TCPTimeout = 2 * time.Second
	c.Events = wake(changed)
	m, err := memberlist.Create(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// wake is a memberlist.EventDelegate that never blocks memberlist.
type wake chan<- struct{}

func (w wake) NotifyJoin(*memberlist.Node)   { w.signal() }
func (w wake) NotifyLeave(*memberlist.Node)  { w.signal() }
func (w wake) NotifyUpdate(*memberlist.Node) { w.signal() }

func (w wake) signal() {
	select {
	case w <- struct{}{}:
	default:
	}
}
