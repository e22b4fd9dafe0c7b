package gossip

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/netem"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// The round trip to a member is that of the network: no gossip interval is in it.
func TestRoundTripsOfTheNetwork(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.links.SetDefaults(netem.Link{Latency: 3 * time.Millisecond}, netem.Link{Latency: 40 * time.Millisecond})
		for _, name := range []string{"east/n1", "east/n2", "west/n3"} {
			l.start(name)
		}
		l.within(wholeWithin, "the cluster", l.sees(l.all()...))
		for range 3 {
			time.Sleep(askMembers)
			for name, n := range l.nodes {
				for _, m := range n.Members() {
					want := 6 * time.Millisecond
					if m.OtherRegion {
						want = 80 * time.Millisecond
					}
					if m.RTT < want || m.RTT > want+time.Millisecond {
						t.Errorf("from %s to %s/%s it takes %v, want %v", name, m.Region, m.NodeID, m.RTT, want)
					}
				}
			}
		}
	})
}

// Where no packets pass from the start, questions and answers go over streams, and all become members.
func TestCandidatesAnswerOverStreams(t *testing.T) {
	for _, ways := range [][2]bool{{true, false}, {false, true}, {true, true}} {
		t.Run(fmt.Sprint(ways), func(t *testing.T) {
			testkit.VirtualTime(t, func(t *testing.T) {
				l := newTestCluster(t)
				l.blocks("east", "west", ways[0])
				l.blocks("west", "east", ways[1])
				for _, name := range []string{"east/n1", "east/n2", "west/n1", "west/n2"} {
					l.start(name)
				}
				t.Log("whole after", l.within(wholeWithin, "the cluster", l.sees(l.all()...)))
			})
		})
	}
}

// candidateOf returns a cluster that does not run, and a node that was reported to it.
func candidateOf(t *testing.T) (c *Cluster, m Member) {
	t.Helper()
	l := newTestCluster(t)
	table := counters.NewTable(counters.Config{Origin: NewOrigin("n1", 1), Memory: counters.MinMemory})
	c, err := NewCluster(Config{NodeID: "n1", Region: "east", Incarnation: 1, Interval: DefaultInterval,
		LAN: &PoolConfig{Transport: l.transport("10.1.1.1:7946", "east")}}, table)
	testkit.Must(t, err)
	t.Cleanup(c.Close)
	m = Member{NodeID: "n2", Region: "east", Incarnation: 1, MinVersion: protocolVersion, MaxVersion: protocolVersion}
	c.arrived(&route{member: m, pool: c.pools[0], addr: "10.1.1.2:7946"})
	return c, m
}

// An answer counts once, with the number of a question that this node has asked since the candidate came, and soon.
func TestAnswersAreToQuestions(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		c, m := candidateOf(t)
		o := m.Origin()
		ask := func() uint64 {
			asked := c.toAsk(time.Now())
			if len(asked) != 1 {
				t.Fatalf("%d questions, want one", len(asked))
			}
			return asked[0].number
		}
		answer := func(number uint64) bool {
			from := &Cluster{self: m, cfg: c.cfg}
			testkit.Must(t, c.receiveQuestion(from.encodeQuestion(c.self.Origin(), number, questionAnswer)))
			return c.isMember(o)
		}
		if answer(0) {
			t.Fatal("a number that was never sent is an answer")
		}
		before := ask()
		c.gone(m, c.pools[0])
		c.arrived(&route{member: m, pool: c.pools[0], addr: "10.1.1.2:7946"})
		if answer(before) {
			t.Fatal("an answer to a question of before it came makes it a member")
		}
		late := ask()
		time.Sleep(answerWithin + time.Millisecond)
		if answer(late) {
			t.Fatal("an answer that is late makes it a member")
		}
		number := ask()
		if answer(number+1) || !answer(number) {
			t.Fatal("the answer does not make it a member")
		}
		c.gone(m, c.pools[0])
		c.arrived(&route{member: m, pool: c.pools[0], addr: "10.1.1.2:7946"})
		if answer(number) {
			t.Fatal("an answer counts twice")
		}
	})
}

// A node that is no member has no part in anything, whatever it sends.
func TestACandidateHasNoPart(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		c, m := candidateOf(t)
		now := time.Now().UnixNano()
		f := frame{kind: beacon, origin: m.Origin(), tick: 7, sent: now}
		c.receive(lan, f.encode(nil, emptyBody))
		if len(c.Members()) != 0 || len(c.Peers()) != 0 || c.pools[0].hasMet() || c.AddsUp() {
			t.Errorf("members %v, peers %v", c.Members(), c.Peers())
		}
		if age, complete := c.Staleness(); !complete || age != 0 {
			t.Errorf("what the node knows is %v old, of all: %v", age, complete)
		}
		if len(c.regionNodes(func(Member) bool { return true })) != 0 {
			t.Error("it is asked for rosters")
		}
	})
}

// A node that has said goodbye answers nothing, and nobody takes bytes of another length for a question.
func TestWhoAnswers(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.loss(0)
		n1, n2 := l.start("east/n1"), l.start("east/n2")
		l.within(wholeWithin, "the cluster", l.sees(l.all()...))
		n1.quiet.Store(true)
		n2.mu.Lock()
		r := n2.routes[n1.Self().Origin()]
		n2.questions[n1.Self().Origin()] = &questions{}
		q := n2.questions[n1.Self().Origin()]
		number := q.next(time.Now(), time.Minute)
		n2.mu.Unlock()
		n2.sendQuestion(r, n2.encodeQuestion(r.member.Origin(), number, 0), false)
		time.Sleep(time.Second)
		n2.mu.Lock()
		if q.asked != 1 {
			t.Error("a node that said goodbye answers")
		}
		n2.mu.Unlock()
		n1.quiet.Store(false)
		for _, b := range [][]byte{{questionMessage}, bytes.Repeat([]byte{questionMessage}, questionLength+1)} {
			if err := n1.receiveQuestion(b); err == nil {
				t.Errorf("%d bytes are a question", len(b))
			}
		}
	})
}
