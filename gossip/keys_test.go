package gossip

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func keysOf(ids ...byte) (keys [][]byte) {
	for _, id := range ids {
		keys = append(keys, bytes.Repeat([]byte{id}, keySize))
	}
	return keys
}

// A fingerprint is another function of the key than all that is derived from keys elsewhere, and stays what it is:
// operators compare those of nodes of different versions.
func TestKeyFingerprint(t *testing.T) {
	one, two := KeyFingerprint(keysOf(1)[0]), KeyFingerprint(keysOf(2)[0])
	if one != 0x456184c3b19827c6 || one == two || two == 0 {
		t.Errorf("%#x and %#x", one, two)
	}
}

// Whatever keys a ring had, it has those that were set, the first to encrypt with. memberlist reads it meanwhile, which
// the race detector sees; what stays first is there at every moment.
func TestSetRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.SliceOfNDistinct(rapid.ByteRange(1, 6), 1, MaxKeys, rapid.ID)
		had, now := keysOf(draw.Draw(t, "had")...), keysOf(draw.Draw(t, "now")...)
		ring, err := memberlist.NewKeyring(had, had[0])
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		var reading sync.WaitGroup
		reading.Go(func() {
			for {
				keys := ring.GetKeys()
				if !bytes.Equal(keys[0], had[0]) && !bytes.Equal(keys[0], now[0]) {
					t.Errorf("it sends by %d for a moment", keys[0][0])
				}
				for _, k := range keys {
					_ = k[0]
				}
				select {
				case <-ended:
					return
				default:
				}
			}
		})
		err = setRing(ring, now)
		close(ended)
		reading.Wait()
		got := ring.GetKeys()
		if err != nil || !bytes.Equal(got[0], now[0]) {
			t.Fatalf("%v, it sends by %d", err, got[0][0])
		}
		slices.SortFunc(got, bytes.Compare)
		slices.SortFunc(now, bytes.Compare)
		if !slices.EqualFunc(got, now, bytes.Equal) {
			t.Fatalf("%v, want %v", got, now)
		}
	})
}

func TestSetKeysRefuses(t *testing.T) {
	open, sealed := realNode(t, "open", nil), realNode(t, "sealed", keysOf(1))
	for _, test := range []struct {
		node *Cluster
		keys [][]byte
		says string
	}{
		{open, keysOf(1), "began without keys"}, {sealed, nil, "0 gossip keys, want 1 to 3"},
		{sealed, keysOf(1, 2, 3, 4), "4 gossip keys"}, {sealed, [][]byte{{1}}, "key 1 has 1 bytes"},
	} {
		before := test.node.Self()
		if err := test.node.SetKeys(test.keys); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%d keys: %v, want %q", len(test.keys), err, test.says)
		}
		if test.node.Self() != before {
			t.Errorf("%d keys: now it sends %+v", len(test.keys), test.node.Self())
		}
	}
}

// holds says which of the nodes does not know by which keys the others send, and which they accept.
func (l *testCluster) holds(ids ...byte) func() string {
	want := *fingerprintsOf(keysOf(ids...))
	return func() string {
		for name, n := range l.nodes {
			for _, m := range n.Members() {
				if m.Keys != want {
					return fmt.Sprintf("%s knows of %s/%s: %x, want %x", name, m.Region, m.NodeID, m.Keys, want)
				}
			}
		}
		return ""
	}
}

func (l *testCluster) setKeys(name string, ids ...byte) {
	l.t.Helper()
	if err := l.nodes[name].SetKeys(keysOf(ids...)); err != nil {
		l.t.Fatal(err)
	}
}

// Keys are rotated node by node on a lossy network, with a step back between: nobody leaves the membership, and no
// count is lost, in either pool.
func TestKeyRotationUnderLoss(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.loss(0.05)
		hour, err := counters.NewLimit(counters.NewMeter("edge/lab", counters.SlidingWindow, time.Hour), 1_000_000)
		if err != nil {
			t.Fatal(err)
		}
		l.limit = hour
		for _, name := range []string{"east/n1", "east/n2", "west/n4", "west/n5"} {
			l.start(name, withKeys(1))
		}
		l.within(wholeWithin, "the cluster", l.sees(l.all()...))
		counts := uint64(0)
		for _, step := range [][]byte{{1, 2}, {2, 1}, {1, 2}, {2, 1}, {2}, {2, 3}, {3, 2}, {3}} {
			for _, name := range l.all() {
				l.setKeys(name, step...)
				for _, at := range l.all() {
					l.take(at, 1)
					counts++
				}
				for range 30 {
					time.Sleep(100 * time.Millisecond)
					if m := l.sees(l.all()...)(); m != "" {
						t.Fatalf("while the keys become %v: %s", step, m)
					}
				}
			}
			l.within(10*time.Second, "everybody knows who has which keys", l.holds(step...))
		}
		l.within(counted, "counts", l.counts(counts, l.all()...))
		for name, n := range l.nodes {
			if lines := n.logs.about("ecrypt"); len(lines) > 0 {
				t.Errorf("%s could not read %d messages: %s", name, len(lines), lines[0])
			}
		}
	})
}

// Whoever has an old key alone cannot speak with the others, who go on naming it with the keys that it had; once it has
// the new one it is back with its counts.
func TestMemberWithAnOldKeyIsShown(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		for _, name := range []string{"east/n1", "east/n2", "west/n4"} {
			l.start(name, withKeys(1))
		}
		l.within(wholeWithin, "the cluster", l.sees(l.all()...))
		for _, step := range [][]byte{{1, 2}, {2, 1}, {2}} { // without west/n4, as with --force
			l.setKeys("east/n1", step...)
			l.setKeys("east/n2", step...)
			time.Sleep(3 * time.Second)
		}
		l.within(5*time.Minute, "the others without it", l.sees("east/n1", "east/n2"))
		l.take("west/n4", 5)
		time.Sleep(5 * time.Second)
		if m := l.counts(0, "east/n1", "east/n2")(); m != "" {
			t.Error("frames by a removed key are believed: ", m)
		}
		found := false
		for _, p := range l.nodes["east/n1"].Peers() {
			if p.NodeID == "n4" {
				found = p.Pool == "" && p.Keys == *fingerprintsOf(keysOf(1))
			}
		}
		if !found {
			t.Errorf("it is not shown with its key: %+v", l.nodes["east/n1"].Peers())
		}
		l.setKeys("west/n4", 2)
		l.within(wholeWithin, "the cluster", l.sees(l.all()...))
		l.within(counted, "its counts", l.counts(5, l.all()...))
	})
}

// On real sockets packets and streams by a removed key are refused before memberlist sees them, and counted.
func TestARemovedKeyIsRefused(t *testing.T) {
	n := realNode(t, "a", keysOf(1, 2))
	conn, err := net.Dial("udp", n.Addr(lan))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	await := func(what string, want uint64) {
		t.Helper()
		testkit.Eventually(t, what, func() bool {
			_, packets := n.Refused()
			return packets == want
		})
	}
	send := func(packet []byte) {
		if _, err := conn.Write(packet); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range keysOf(1, 2) {
		send(sealedPacket(t, key, []byte{msgUser, 0}))
	}
	send([]byte{0}) // nobody's: it is refused after the others were read
	await("both keys are accepted", 1)
	if err := n.SetKeys(keysOf(2)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		send(sealedPacket(t, keysOf(1)[0], []byte{msgUser, 0}))
		send(sealedPacket(t, keysOf(2)[0], []byte{msgUser, 0}))
	}
	await("the removed one is not", 4)
	dismissed(t, n.Addr(lan), labelled(sealed(t, keysOf(1)[0], []byte{msgPushPull}, cipherVersion)))
	if streams, _ := n.Refused(); streams != 1 {
		t.Errorf("%d streams refused, want 1", streams)
	}
}

// sealedPacket is a packet of the LAN pool as whoever has the key encrypts it.
func sealedPacket(t testing.TB, key, plain []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	aead, _ := cipher.NewGCM(block)
	nonce := make([]byte, nonceSize)
	b := append([]byte{cipherVersion}, nonce...)
	return labelled(aead.Seal(b, nonce, plain, []byte(DefaultLabel+"/lan/east")))
}

// BenchmarkInspectPacket measures what it costs to decrypt each packet before memberlist does so again: 0.3 to 0.7 us,
// of about 200 us of CPU that a frame costs a node all told (12 nodes, an interval of 50 ms, few requests).
func BenchmarkInspectPacket(b *testing.B) {
	keys := keysOf(1)
	in, err := newInspector(DefaultLabel+"/lan/east", keys)
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{100, 1300} {
		packet := sealedPacket(b, keys[0], append([]byte{msgUser}, make([]byte, size)...))
		b.Run(fmt.Sprint("bytes=", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := in.packet(packet); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
