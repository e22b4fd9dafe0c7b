package netem

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// pair returns both ends of a stream from group "a" to group "b" that no transport holds.
func pair(links *Links) (dialer, acceptor *conn) {
	s := newStream(links, tcpAddr(a1), tcpAddr(b1))
	s.ended = func() {}
	for _, c := range s.ends {
		c.forget = func(*conn) {}
	}
	return s.ends[0], s.ends[1]
}

func tcpAddr(s string) *net.TCPAddr {
	addr, err := net.ResolveTCPAddr("tcp", s)
	if err != nil {
		panic(err)
	}
	return addr
}

// TestStreamsBehaveAsConnections holds streams against the Go project's own idea of a net.Conn: data, deadlines,
// closing, races.
func TestStreamsBehaveAsConnections(t *testing.T) {
	for name, link := range map[string]Link{
		"perfect": {},
		"slow":    {Latency: 100 * time.Microsecond, Jitter: 100 * time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				links := threeGroups(1)
				links.SetDefaults(link, link)
				a, b := pair(links)
				return a, b, a.stream.close, nil
			})
		})
	}
}

func TestEveryByteIsAsLateAsTheLinkIsLong(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		links := threeGroups(1)
		links.Set("a", "b", Link{Latency: 70 * ms})
		links.Set("b", "a", Link{Latency: 30 * ms})
		a, b := pair(links)
		start := time.Now()
		expect := func(c net.Conn, want string, at time.Duration) {
			t.Helper()
			got := make([]byte, len(want))
			if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
				t.Errorf("read %q (%v), want %q", got, err, want)
			}
			if took := time.Since(start); took != at {
				t.Errorf("%q arrived after %v, want %v", want, took, at)
			}
		}
		write(t, a, "ping")
		time.Sleep(5 * ms)
		write(t, a, "!")
		expect(b, "ping", 70*ms)
		expect(b, "!", 75*ms)
		write(t, b, "pong")
		expect(a, "pong", 105*ms)
		write(t, a, "bye")
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		expect(b, "bye", 175*ms)
		for range 2 {
			if n, err := b.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("after the end: %d, %v, want EOF", n, err)
			}
		}
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("reading from what one has closed: %v", err)
		}
		if _, err := b.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("writing to a peer that closed: %v", err)
		}
		if err := a.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closing again: %v", err)
		}
	})
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if n, err := c.Write([]byte(s)); n != len(s) || err != nil {
		t.Fatalf("writing %q: %d, %v", s, n, err)
	}
}

func TestJitterKeepsAStreamInOrder(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		links := threeGroups(5)
		links.SetDefaults(Link{}, Link{Latency: 10 * ms, Jitter: 100 * ms, Reorder: 1, Loss: 1})
		a, b := pair(links)
		var sent []byte
		for i := range 500 {
			sent = append(sent, byte(i), byte(i>>8))
			write(t, a, string(sent[2*i:]))
			time.Sleep(ms)
		}
		_ = a.Close()
		got, err := io.ReadAll(b)
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("read %d bytes (%v) in another order than the %d written", len(got), err, len(sent))
		}
	})
}

// TestBothEndsMayWriteFirst is what a pipe without a buffer cannot do: memberlist answers some requests before it has
// read them to the end.
func TestBothEndsMayWriteFirst(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		a, b := pair(threeGroups(1))
		block := bytes.Repeat([]byte("0123456789abcdef"), pipeSize/16)
		write(t, a, string(block))
		write(t, b, string(block))
		for _, c := range []net.Conn{a, b} {
			got := make([]byte, len(block))
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, block) {
				t.Errorf("what was written first did not arrive: %v", err)
			}
		}
	})
}

func TestAFullStreamHoldsItsWriterUp(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		a, b := pair(threeGroups(1))
		if err := a.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		n, err := a.Write(make([]byte, pipeSize+1))
		if n != pipeSize || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("wrote %d after %v: %v, want %d, 1s and a timeout", n, time.Since(start), err, pipeSize)
		}
		if nerr, ok := errors.AsType[net.Error](err); !ok || !nerr.Timeout() {
			t.Errorf("%v is not a timeout to those who ask", err)
		}

		_ = a.SetWriteDeadline(time.Time{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if n, err := a.Write(make([]byte, 3*pipeSize)); n != 3*pipeSize || err != nil {
				t.Errorf("wrote %d: %v", n, err)
			}
			_ = a.Close()
		})
		got, err := io.ReadAll(b)
		if len(got) != 4*pipeSize || err != nil {
			t.Errorf("read %d bytes (%v), want %d", len(got), err, 4*pipeSize)
		}
		wg.Wait()
	})
}

func TestResetWakesEverybody(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		a, b := pair(threeGroups(1))
		write(t, a, "under way")
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := a.Read(make([]byte, 1)); !errors.Is(err, ErrPartitioned) {
				t.Errorf("the waiting reader: %v, want ErrPartitioned", err)
			}
		})
		wg.Go(func() {
			if _, err := a.Write(make([]byte, 2*pipeSize)); !errors.Is(err, ErrPartitioned) {
				t.Errorf("the waiting writer: %v, want ErrPartitioned", err)
			}
		})
		synctest.Wait()
		a.stream.reset()
		wg.Wait()
		if n, err := b.Read(make([]byte, 1)); n != 0 || !errors.Is(err, ErrPartitioned) {
			t.Errorf("the peer read %d, %v: what was under way must be gone", n, err)
		}
		if _, err := b.Write([]byte("x")); !errors.Is(err, ErrPartitioned) {
			t.Errorf("the peer's write: %v, want ErrPartitioned", err)
		}
		_, err := b.Read(make([]byte, 1))
		// memberlist asks for the type without unwrapping.
		if op, ok := err.(*net.OpError); !ok || op.Net != "tcp" || op.Op != "read" {
			t.Errorf("the error is not shaped as TCP's: %#v", err)
		}
	})
}

func TestADeadlineMayMoveWhileOneWaits(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		a, _ := pair(threeGroups(1))
		start := time.Now()
		_ = a.SetDeadline(start.Add(time.Hour))
		time.AfterFunc(time.Minute, func() { _ = a.SetReadDeadline(time.Now().Add(time.Second)) })
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want a timeout", err)
		}
		if took := time.Since(start); took != time.Minute+time.Second {
			t.Errorf("timed out after %v, want 1m1s", took)
		}
	})
}

func TestADeadlineMayComeBeforeTheBytes(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		links := threeGroups(1)
		links.Set("a", "b", Link{Latency: time.Second})
		a, b := pair(links)
		write(t, a, "x")
		start := time.Now()
		_ = b.SetReadDeadline(start.Add(100 * ms))
		n, err := b.Read(make([]byte, 1))
		if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 100*ms {
			t.Errorf("read %d after %v: %v, want a timeout after 100ms", n, time.Since(start), err)
		}
		_ = b.SetReadDeadline(time.Time{})
		if n, err = b.Read(make([]byte, 1)); n != 1 || err != nil || time.Since(start) != time.Second {
			t.Errorf("read %d after %v: %v, want the byte after 1s", n, time.Since(start), err)
		}
	})
}
