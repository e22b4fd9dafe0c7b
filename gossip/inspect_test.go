package gossip

import (
	"bytes"
	"compress/lzw"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/edgelimit/edgelimit/counters"
)

// realNode runs a node on sockets of loopback until the test ends.
func realNode(t *testing.T, id string, keys [][]byte, seeds ...string) *Cluster {
	t.Helper()
	boot := uint64(time.Now().UnixNano())
	table := counters.NewTable(counters.Config{Origin: NewOrigin(id, boot), Region: "east", Memory: counters.MinMemory})
	c, err := NewCluster(Config{NodeID: id, Region: "east", Incarnation: boot, Interval: DefaultInterval,
		Label: DefaultLabel, Keys: keys, LAN: &PoolConfig{Bind: "127.0.0.1:0", Seeds: seeds},
		Logger: slog.New(slog.DiscardHandler)}, table)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

// awaitMembers waits until a node has so many others.
func awaitMembers(t *testing.T, c *Cluster, want int) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.After(30 * time.Second); len(c.Members()) != want; {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("%d members, want %d", len(c.Members()), want)
		}
	}
}

// labelled puts the label of the nodes' pool before a message.
func labelled(message []byte) []byte {
	label := DefaultLabel + "/lan/east"
	return append(append([]byte{msgLabel, byte(len(label))}, label...), message...)
}

// bomb is a compressed message of so many zeros.
func bomb(t *testing.T, size int) []byte {
	t.Helper()
	var packed bytes.Buffer
	w := lzw.NewWriter(&packed, lzw.LSB, 8)
	if _, err := io.CopyN(w, zeros{}, int64(size)); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	b, err := msgpack.Marshal(map[string]any{"Algo": 0, "Buf": packed.Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte{msgCompress}, b...)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// sealed is a message of a stream as whoever has the key encrypts it.
func sealed(t *testing.T, key, plain []byte, version byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	aead, _ := cipher.NewGCM(block)
	head := binary.BigEndian.AppendUint32([]byte{msgEncrypted}, uint32(len(plain)+cipherOverhead))
	nonce := make([]byte, nonceSize)
	body := append(append(bytes.Clone(head), version), nonce...)
	return aead.Seal(body, nonce, plain, append(head, DefaultLabel+"/lan/east"...))
}

// claim is a message whose header announces what does not follow.
func claim(t *testing.T, kind byte, header map[string]any) []byte {
	t.Helper()
	b, err := msgpack.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte{kind}, b...)
}

// What strangers, and peers with a key, say in few bytes takes little memory, and the nodes go on.
func TestMessagesTakeNoMoreThanTheyHold(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	for name, keys := range map[string][][]byte{"no key": nil, "a key": {key}} {
		t.Run(name, func(t *testing.T) {
			victim := realNode(t, "n1", keys)
			realNode(t, "n2", keys, victim.Addr("lan"))
			awaitMembers(t, victim, 1)
			for what, message := range map[string][]byte{
				"a bomb": bomb(t, 39<<20),
				"a million members": claim(t, msgPushPull, map[string]any{"Nodes": 1 << 20, "UserStateLen": 0,
					"Join": true}),
				"a large state": claim(t, msgPushPull, map[string]any{"Nodes": 0, "UserStateLen": 20 << 20,
					"Join": true}),
				"a large message":    claim(t, msgUser, map[string]any{"UserMsgLen": 20 << 20}),
				"nothing":            {},
				"a list as a header": {msgPushPull, 0x93, 0xce, 0, 0x0f, 0xff, 0xff, 0, 0xc2},
			} {
				switch {
				case keys == nil && len(message) == 0:
					continue // the node waits for more
				case keys != nil:
					message = sealed(t, key, message, cipherVersion)
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range 10 {
					dismissed(t, victim.Addr("lan"), labelled(message))
				}
				runtime.ReadMemStats(&after)
				if took := after.TotalAlloc - before.TotalAlloc; took > 10<<20 {
					t.Errorf("%s: ten messages of %d bytes take %d MiB", what, len(message), took>>20)
				}
			}
			if keys != nil {
				dismissed(t, victim.Addr("lan"), labelled(sealed(t, key, bytes.Repeat([]byte{0}, 32), 0)))
			}
			packets, err := net.Dial("udp", victim.Addr("lan"))
			if err != nil {
				t.Fatal(err)
			}
			defer packets.Close()
			small := bomb(t, 100<<10)
			parts := append([]byte{msgCompound, 1, byte(len(small) >> 8), byte(len(small))}, small...)
			for _, b := range [][]byte{small, parts, bomb(t, 39<<20)} {
				_, _ = packets.Write(labelled(b))
			}
			realNode(t, "n3", keys, victim.Addr("lan"))
			awaitMembers(t, victim, 2)
			if streams, dropped := victim.Refused(); streams < 10 || dropped < 2 {
				t.Errorf("%d streams and %d packets are counted as refused", streams, dropped)
			}
		})
	}
}

// dismissed sends a stream and waits until the node has hung up.
func dismissed(t *testing.T, addr string, b []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = conn.Write(b)
	if _, err := io.Copy(io.Discard, conn); err != nil && isTimeout(err) {
		t.Fatal("the node keeps the stream")
	}
}

func isTimeout(err error) bool {
	n, ok := err.(net.Error)
	return ok && n.Timeout()
}

// Streams without the key take no more than their share of file descriptors, and nodes still join.
func TestStreamsOfStrangers(t *testing.T) {
	keys := [][]byte{bytes.Repeat([]byte{7}, 32)}
	victim := realNode(t, "n1", keys)
	for i := range 3 * maxStreams {
		conn, err := net.Dial("tcp", victim.Addr("lan"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i%2 == 0 {
			_, _ = conn.Write(labelled([]byte{msgEncrypted, 0, 0x80, 0, 0, 1})[:4+i%40])
		}
	}
	sockets := victim.pools[0].sockets
	sockets.limiter.mu.Lock()
	open := len(sockets.limiter.open)
	sockets.limiter.mu.Unlock()
	if open > maxStreams {
		t.Errorf("%d streams are open", open)
	}
	begun := time.Now()
	realNode(t, "n2", keys, victim.Addr("lan"))
	awaitMembers(t, victim, 1)
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("another node joins after %v", took)
	}
}

// One source has its share of streams: its oldest one that has not shown to be a peer's goes for another one. So it
// is in all, and with the largest where messages take too much memory.
func TestStreamLimiter(t *testing.T) {
	var sockets sockets
	l := &sockets.limiter
	stream := func(host string) *inspectedConn {
		here, there := net.Pipe()
		t.Cleanup(func() { _ = there.Close() })
		return &inspectedConn{Conn: here, sockets: &sockets, source: streamSource(&net.TCPAddr{IP: net.ParseIP(host)})}
	}
	var ofOne []*inspectedConn
	for range maxSourceStreams {
		c := stream("2001:db8::1")
		if ofOne = append(ofOne, c); !l.admit(c) {
			t.Fatal("refused")
		}
	}
	l.accept(ofOne[0])
	if !l.admit(stream("2001:db8::2")) || ofOne[0].ended || !ofOne[1].ended || len(l.open) != maxSourceStreams {
		t.Errorf("%d are open", len(l.open))
	}
	for i := range maxStreams {
		if !l.admit(stream(fmt.Sprintf("192.0.2.%d", i))) {
			t.Fatal("refused")
		}
	}
	if len(l.open) != maxStreams || ofOne[0].ended || !ofOne[3].ended {
		t.Errorf("%d are open", len(l.open))
	}
	for _, c := range l.open {
		l.accept(c)
	}
	if l.admit(stream("127.0.0.1")) {
		t.Error("one of a peer was closed, or there are too many")
	}
	l.closeAll()

	large, small := stream("127.0.0.1"), stream("127.0.0.1")
	if !l.admit(large) || !l.admit(small) {
		t.Fatal("refused")
	}
	if l.grow(small, 1<<20) != nil || l.grow(large, maxStreamBytes-1<<20) != nil || l.grow(small, 1) != nil {
		t.Error("there was space")
	}
	if !large.ended || small.ended || l.bytes != 1<<20+1 || l.grow(large, 1) == nil {
		t.Errorf("%d bytes", l.bytes)
	}
	if small.Close() != nil || small.Close() == nil || l.bytes != 0 || len(l.open) != 0 {
		t.Errorf("%d bytes of %d streams", l.bytes, len(l.open))
	}
}
