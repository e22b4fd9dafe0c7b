package gossip

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/netem"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func withKeys(keys ...byte) change {
	return func(c *Config) {
		c.Keys = nil
		for _, k := range keys {
			c.Keys = append(c.Keys, bytes.Repeat([]byte{k}, 32))
		}
	}
}

// A node without the key is no member, and nobody believes what it says.
func TestClusterKeys(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.start("east/n1", withKeys(1))
		l.start("east/n2", withKeys(1))
		l.start("west/n4", withKeys(1))
		members := l.all()
		l.within(wholeWithin, "the cluster", l.sees(members...))
		l.take("east/n1", 10)
		l.within(counted, "a count", l.counts(10, members...))

		l.start("east/n8", withKeys(2))
		l.start("west/n9")
		time.Sleep(2 * time.Minute)
		l.take("east/n1", 10)
		l.take("east/n8", 1000)
		l.take("west/n9", 1000)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			if m := l.sees(members...)(); m != "" {
				t.Fatal(m)
			}
		}
		if m := l.counts(10, members...)(); m != "" {
			t.Error(m)
		}
		if m := l.sees("east/n8")() + l.sees("west/n9")() + l.counts(1000, "east/n8", "west/n9")(); m != "" {
			t.Error("nodes without the key: ", m)
		}
		if len(l.nodes["east/n8"].logs.about("seed does not answer")) == 0 {
			t.Error("a node with a wrong key does not say that it reaches nobody")
		}
	})
}

// forgery is a packet that says the victim's peer admitted 1000, as memberlist would send it without a key.
func (l *testCluster) forgery(origin counters.Origin, label string) []byte {
	l.t.Helper()
	m := l.limit.Meter()
	now := time.Now().UnixNano()
	f := frame{kind: data, origin: origin, tick: 1, sent: now}
	g := group{
		origin: origin,
		meter:  &m,
		slots:  []counters.Slot{{Meter: &m, Key: testKey, Index: m.Index(now), Origin: origin, Count: 1000}},
	}
	const userMessage = 8
	packet, err := memberlist.AddLabelHeaderToPacket(
		f.encode([]byte{userMessage}, pack([]group{g}, origin, now, maxBody)[0]), label)
	if err != nil {
		l.t.Fatal(err)
	}
	return packet
}

// ingest sends a packet to a transport from an endpoint that is no member.
func (l *testCluster) ingest(to *netem.Transport, packet []byte) {
	l.t.Helper()
	stranger := l.transport("203.0.113.9:9", "stranger")
	defer stranger.Shutdown()
	if _, err := stranger.WriteTo(packet, addressOf(to)); err != nil {
		l.t.Fatal(err)
	}
}

func addressOf(tr *netem.Transport) string {
	ip, port, _ := tr.FinalAdvertiseAddr("", 0)
	return net.JoinHostPort(ip.String(), strconv.Itoa(port))
}

// Forged and replayed packets change no count where there is a key. Without one, whoever reaches the port may speak.
func TestClusterForgery(t *testing.T) {
	for name, test := range map[string]struct {
		change change
		label  string
		want   uint64
	}{
		"no key":                {withKeys(), DefaultLabel + "/lan/east", 1000},
		"no key, other label":   {withKeys(), DefaultLabel + "/lan/west", 0},
		"no key, no label":      {withKeys(), "", 0},
		"a key":                 {withKeys(1), DefaultLabel + "/lan/east", 0},
		"a key, and no label":   {withKeys(1), "", 0},
		"a key that has a twin": {withKeys(1, 2), DefaultLabel + "/lan/east", 0},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.VirtualTime(t, func(t *testing.T) {
				l := newTestCluster(t)
				a, b := l.start("east/n1", test.change), l.start("east/n2", test.change)
				l.within(wholeWithin, "the cluster", l.sees(l.all()...))
				l.ingest(a.lan, l.forgery(b.Self().Origin(), test.label))
				time.Sleep(time.Second)
				if got := l.view("east/n1"); got != test.want {
					t.Errorf("a forged packet makes it count %d, want %d", got, test.want)
				}
			})
		})
	}
}

// Whoever speaks memberlist and knows the label, but does not say who it is, stays out of the membership.
func TestClusterRefusesStrangers(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		n1 := l.start("east/n1")
		l.start("east/n2")
		l.within(wholeWithin, "the cluster", l.sees(l.all()...))

		conf := memberlist.DefaultLANConfig()
		conf.Name, conf.Label = "stranger", DefaultLabel+"/lan/east"
		conf.Transport = l.transport("10.99.1.1:7946", "east")
		conf.Logger = bridgeLog(slog.New(slog.DiscardHandler), "lan")
		stranger, err := memberlist.Create(conf)
		if err != nil {
			t.Fatal(err)
		}
		defer stranger.Shutdown()
		_, _ = stranger.Join([]string{n1.Addr("lan")})
		time.Sleep(time.Minute)
		for _, name := range l.all() {
			n := l.nodes[name]
			if got := n.pools[0].ml().NumMembers(); got != 2 {
				t.Errorf("%s has %d members in its pool, want 2", name, got)
			}
		}
		if len(n1.logs.about("refused a member")) == 0 {
			t.Error("nobody says that a stranger was refused")
		}
	})
}

// Packets and streams of random bytes, and of bytes that are nearly right: the node goes on.
func TestClusterRandomBytes(t *testing.T) {
	for name, keys := range map[string]change{"no key": withKeys(), "a key": withKeys(1)} {
		t.Run(name, func(t *testing.T) {
			testkit.VirtualTime(t, func(t *testing.T) {
				l := newTestCluster(t)
				l.loss(0)
				victim, peer := l.start("east/n1", keys), l.start("east/n2", keys)
				l.start("west/n4", keys)
				l.within(wholeWithin, "the cluster", l.sees(l.all()...))
				r := rand.New(rand.NewPCG(1, 2))
				right := l.forgery(peer.Self().Origin(), DefaultLabel+"/lan/east")
				for range 3000 {
					packet := nearly(r, right)
					l.ingest(victim.lan, packet)
					l.ingest(victim.wan, packet)
					if r.IntN(20) == 0 {
						l.stream(victim.lan, packet)
					}
					if r.IntN(30) == 0 {
						time.Sleep(10 * time.Millisecond)
					}
				}
				time.Sleep(30 * time.Second)
				if m := l.sees(l.all()...)(); m != "" {
					t.Error(m)
				}
				if name == "a key" {
					l.within(time.Second, "nothing of it", l.counts(0, l.all()...))
				} else if victim.Stats().Malformed == 0 {
					t.Error("no packet got as far as the decoder")
				}
				l.take("east/n1", 12)
				l.within(counted, "a count of the victim", l.knows("east/n1", 12, "east/n2", "west/n4"))
				l.take("west/n4", 34)
				l.within(counted, "a count of another", l.knows("west/n4", 34, "east/n1", "east/n2"))
			})
		})
	}
}

// knows says which of the nodes does not know yet that another one admitted so much, whatever else they believe.
func (l *testCluster) knows(of string, count uint64, names ...string) func() string {
	origin := l.nodes[of].Self().Origin()
	return func() string {
		for _, name := range names {
			slots := l.nodes[name].table.Snapshot(time.Now().UnixNano(), math.MaxInt)
			if !slices.ContainsFunc(slots, func(s counters.Slot) bool {
				return s.Origin == origin && s.Key == testKey && s.Count == count
			}) {
				return fmt.Sprintf("%s knows no count of %d by %s", name, count, of)
			}
		}
		return ""
	}
}

// nearly returns random bytes, or a packet that was right until something happened to it.
func nearly(r *rand.Rand, right []byte) []byte {
	noise := make([]byte, 1+r.IntN(1300))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	const label = 2 + len(DefaultLabel+"/lan/east")
	b := bytes.Clone(right)
	switch r.IntN(5) {
	case 0:
		return noise
	case 1: // a label, a message of any type, noise
		return append(append(b[:label], byte(r.IntN(16))), noise...)
	case 2: // cut short
		return b[:1+r.IntN(len(b)-1)]
	case 3: // some bytes of the frame changed, but not the origin, which would be a peer for ever
		for range 1 + r.IntN(3) {
			b[label+1+3+9+r.IntN(len(b)-label-1-3-9)] = byte(r.Uint32())
		}
		return b
	default: // a label and a user message of noise
		return append(b[:label+1], noise...)
	}
}

// stream opens a stream to a transport from an endpoint that is no member, writes the bytes and hangs up.
func (l *testCluster) stream(to *netem.Transport, b []byte) {
	l.t.Helper()
	stranger := l.transport("203.0.113.9:9", "stranger")
	defer stranger.Shutdown() // closes the stream; what was written arrives
	c, err := stranger.DialTimeout(addressOf(to), time.Second)
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := c.Write(slices.Concat(b[:min(len(b), 40)], b)); err != nil {
		l.t.Fatal(err)
	}
}
