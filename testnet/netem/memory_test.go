package netem

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// open returns an endpoint that is shut down when the test ends.
func open(t *testing.T, n *Network, addr, group string) *Transport {
	t.Helper()
	tr, err := n.NewTransport(addr, group)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Shutdown() })
	return tr
}

func send(t *testing.T, from memberlist.Transport, to, payload string) {
	t.Helper()
	if _, err := from.WriteTo([]byte(payload), to); err != nil {
		t.Fatalf("sending %q to %s: %v", payload, to, err)
	}
}

// received is what waits in a transport's queue now.
func received(tr memberlist.Transport) (payloads []string) {
	for {
		select {
		case p := <-tr.PacketCh():
			payloads = append(payloads, string(p.Buf))
		default:
			return payloads
		}
	}
}

func wantReceived(t *testing.T, tr memberlist.Transport, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := received(tr); strings.Join(got, ",") != strings.Join(want, ",") {
		t.Errorf("received %q, want %q", got, want)
	}
}

func TestAPacketTakesTheLatencyExactly(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		links := NewLinks(1)
		links.SetDefaults(Link{}, Link{Latency: 75 * ms})
		n := NewNetwork(links)
		a, near, far := open(t, n, a1, "a"), open(t, n, a2, "a"), open(t, n, b1, "b")
		start := time.Now()
		buf := []byte("hello")
		for _, to := range []string{a2, b1} {
			if at, err := a.WriteTo(buf, to); err != nil || !at.Equal(start) {
				t.Errorf("WriteTo returned %v, %v", at, err)
			}
		}
		copy(buf, "xxxxx") // the sender may use its buffer again
		for _, test := range []struct {
			tr   *Transport
			want time.Duration
		}{{near, 0}, {far, 75 * ms}} {
			p := <-test.tr.PacketCh()
			if took := time.Since(start); took != test.want || !p.Timestamp.Equal(start.Add(test.want)) {
				t.Errorf("arrived after %v stamped %v, want %v", took, p.Timestamp.Sub(start), test.want)
			}
			if string(p.Buf) != "hello" || p.From.String() != a1 {
				t.Errorf("received %q from %v", p.Buf, p.From)
			}
		}
		synctest.Wait() // a packet may be received before it is counted
		wantCounts(t, links, Counts{Sent: 2, Delivered: 2})
	})
}

func TestDuplicatesHaveBytesOfTheirOwn(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		links := NewLinks(1)
		links.SetDefaults(Link{}, Link{Duplicate: 1})
		n := NewNetwork(links)
		a, b := open(t, n, a1, "a"), open(t, n, b1, "b")
		send(t, a, b1, "twice")
		first, second := <-b.PacketCh(), <-b.PacketCh()
		first.Buf[0] = 'X'
		if string(second.Buf) != "twice" {
			t.Errorf("the copies share their bytes: %q", second.Buf)
		}
		wantCounts(t, links, Counts{Sent: 1, Duplicated: 1, Delivered: 2})
	})
}

func TestReorderingReorders(t *testing.T) {
	for _, test := range []struct {
		name   string
		link   Link
		expect func(overtaken int) bool
	}{
		{"one in five", Link{Latency: 20 * ms, Reorder: 0.2}, func(n int) bool { return n > 150 && n < 250 }},
		{"none", Link{Latency: 20 * ms}, func(n int) bool { return n == 0 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			testkit.VirtualTime(t, func(t *testing.T) {
				const packets = 1000
				links := NewLinks(11)
				links.SetDefaults(Link{}, test.link)
				n := NewNetwork(links)
				a, b := open(t, n, a1, "a"), open(t, n, b1, "b")
				for i := range packets {
					send(t, a, b1, string(rune(i)))
					time.Sleep(100 * time.Microsecond)
				}
				time.Sleep(time.Second)
				overtaken, newest := 0, rune(-1)
				for _, payload := range received(b) {
					i := []rune(payload)[0]
					if i < newest {
						overtaken++
					}
					newest = max(newest, i)
				}
				// The very last packets may be held back with none left to overtake them.
				if held := int(links.Counts().Delayed); overtaken > held || held-overtaken > 5 {
					t.Errorf("%d overtaken of %d held back", overtaken, held)
				}
				if !test.expect(overtaken) {
					t.Errorf("%d of %d packets were overtaken", overtaken, packets)
				}
			})
		})
	}
}

func TestPartitionAndHealInMemory(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		links := NewLinks(1)
		links.SetDefaults(Link{}, Link{Latency: 50 * ms})
		n := NewNetwork(links)
		a, near, b := open(t, n, a1, "a"), open(t, n, a2, "a"), open(t, n, b1, "b")

		send(t, a, b1, "delayed")
		time.Sleep(10 * ms)
		links.Partition("a")
		send(t, a, b1, "there")
		send(t, b, a1, "back")
		send(t, a, a2, "inside")
		time.Sleep(time.Second)
		wantReceived(t, near, "inside")

		links.Heal()
		time.Sleep(time.Second)
		wantReceived(t, b)
		wantReceived(t, a)

		links.PartitionOneWay("a", "b")
		send(t, a, b1, "there")
		send(t, b, a1, "back")
		time.Sleep(time.Second)
		wantReceived(t, b)
		wantReceived(t, a, "back")

		links.Heal()
		send(t, a, b1, "whole again")
		time.Sleep(time.Second)
		wantReceived(t, b, "whole again")
		wantCounts(t, links, Counts{Sent: 7, Delivered: 3, Partitioned: 4})
	})
}

func TestWhatReachesNobodyIsDroppedAndCounted(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		links := NewLinks(1)
		links.Set("a", "b", Link{Latency: 50 * ms})
		n := NewNetwork(links)
		a, near, b := open(t, n, a1, "a"), open(t, n, a2, "a"), open(t, n, b1, "b")

		send(t, a, "10.9.9.9:1", "no endpoint")
		send(t, a, "not an address", "nowhere")
		for range packetQueue + 10 {
			send(t, a, a2, "flood")
		}
		if got := len(received(near)); got != packetQueue {
			t.Errorf("the queue held %d, want %d", got, packetQueue)
		}
		send(t, a, b1, "too late")
		if err := b.Shutdown(); err != nil {
			t.Fatal(err)
		}
		send(t, a, b1, "gone")
		time.Sleep(time.Second)
		wantReceived(t, b)
		wantCounts(t, links, Counts{Sent: packetQueue + 14, Delivered: packetQueue, Dropped: 14})
	})
}

func TestWhatWasSentOutlivesItsSender(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		links := NewLinks(1)
		links.Set("a", "b", Link{Latency: 50 * ms})
		n := NewNetwork(links)
		a, b := open(t, n, a1, "a"), open(t, n, b1, "b")
		send(t, a, b1, "farewell")
		for range 2 {
			if err := a.Shutdown(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := a.WriteTo([]byte("nobody"), b1); !errors.Is(err, net.ErrClosed) {
			t.Errorf("sending after Shutdown: %v", err)
		}
		time.Sleep(50 * ms)
		wantReceived(t, b, "farewell")

		again := open(t, n, a1, "a")
		send(t, b, a1, "welcome back")
		wantReceived(t, again, "welcome back")
		wantReceived(t, a)
	})
}

func TestDialTakesARoundTrip(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		links := NewLinks(1)
		links.Set("a", "b", Link{Latency: 50 * ms})
		links.Set("b", "a", Link{Latency: 30 * ms})
		n := NewNetwork(links)
		a, b := open(t, n, a1, "a"), open(t, n, b1, "b")
		start := time.Now()
		c, err := a.DialTimeout(b1, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 80*ms {
			t.Errorf("dialing took %v, want 80ms", took)
		}
		accepted := <-b.StreamCh()
		if c.RemoteAddr().String() != b1 || c.LocalAddr().String() != a1 || accepted.RemoteAddr().String() != a1 {
			t.Errorf("the ends are %v-%v and %v", c.LocalAddr(), c.RemoteAddr(), accepted.RemoteAddr())
		}
		write(t, c, "hi")
		got := make([]byte, 2)
		if _, err := io.ReadFull(accepted, got); err != nil || string(got) != "hi" || time.Since(start) != 130*ms {
			t.Errorf("read %q after %v: %v", got, time.Since(start), err)
		}
		// Closed streams are forgotten by all who held them.
		_, _ = c.Close(), accepted.Close()
		if len(a.conns)+len(b.conns)+len(links.open) != 0 {
			t.Errorf("still held: %d, %d, %d", len(a.conns), len(b.conns), len(links.open))
		}
	})
}

func TestDialsThatFail(t *testing.T) {
	for _, test := range []struct {
		name    string
		prepare func(links *Links, a, b *Transport)
		to      string
		timeout time.Duration
		took    time.Duration
		err     error
	}{
		{"no endpoint", nil, "10.9.9.9:1", time.Second, 100 * ms, syscall.ECONNREFUSED},
		{"shut down", func(_ *Links, _, b *Transport) { _ = b.Shutdown() }, b1, time.Second, 100 * ms,
			syscall.ECONNREFUSED},
		{"shut down meanwhile", func(_ *Links, _, b *Transport) {
			time.AfterFunc(50*ms, func() { _ = b.Shutdown() })
		}, b1, 0, 100 * ms, syscall.ECONNREFUSED},
		{"backlog full", func(_ *Links, _, b *Transport) {
			for range streamQueue {
				one, _ := net.Pipe()
				b.streams <- one
			}
		}, b1, time.Second, 100 * ms, syscall.ECONNREFUSED},
		{"too far", nil, b1, 99 * ms, 99 * ms, os.ErrDeadlineExceeded},
		{"too late", nil, b1, -1, 0, os.ErrDeadlineExceeded},
		{"partitioned", func(l *Links, _, _ *Transport) {
			l.Partition("a")
		}, b1, 10 * time.Second, 10 * time.Second, os.ErrDeadlineExceeded},
		{"partitioned on the way there", func(l *Links, _, _ *Transport) {
			l.PartitionOneWay("a", "b")
		}, b1, time.Second, time.Second, os.ErrDeadlineExceeded},
		{"partitioned on the way back", func(l *Links, _, _ *Transport) {
			l.PartitionOneWay("b", "a")
		}, b1, time.Second, time.Second, os.ErrDeadlineExceeded},
		{"partitioned, no timeout", func(l *Links, _, _ *Transport) { l.PartitionOneWay("a", "b") }, b1, 0, 0,
			ErrPartitioned},
		{"partitioned meanwhile", func(l *Links, _, _ *Transport) {
			time.AfterFunc(50*ms, func() { l.Partition("a") })
		}, b1, time.Second, 100 * ms, ErrPartitioned},
		{"own shutdown", func(_ *Links, a, _ *Transport) {
			time.AfterFunc(50*ms, func() { _ = a.Shutdown() })
		}, b1, time.Second, 50 * ms, net.ErrClosed},
		{"own shutdown across a partition", func(l *Links, a, _ *Transport) {
			l.Partition("a")
			time.AfterFunc(50*ms, func() { _ = a.Shutdown() })
		}, b1, time.Hour, 50 * ms, net.ErrClosed},
	} {
		t.Run(test.name, func(t *testing.T) {
			testkit.VirtualTime(t, func(t *testing.T) {
				links := NewLinks(1)
				links.SetDefaults(Link{}, Link{Latency: 50 * ms})
				n := NewNetwork(links)
				a, b := open(t, n, a1, "a"), open(t, n, b1, "b")
				if test.prepare != nil {
					test.prepare(links, a, b)
				}
				start := time.Now()
				c, err := a.DialTimeout(test.to, test.timeout)
				if took := time.Since(start); c != nil || !errors.Is(err, test.err) || took != test.took {
					t.Errorf("%v after %v, want %v after %v", err, took, test.err, test.took)
				}
				if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != "dial" || op.Net != "tcp" {
					t.Errorf("the error is not shaped as TCP's: %#v", err)
				}
				if len(a.conns)+len(b.conns)+len(links.open) != 0 {
					t.Errorf("a failed dial is still held: %d, %d, %d", len(a.conns), len(b.conns), len(links.open))
				}
			})
		})
	}
	t.Run("no address", func(t *testing.T) {
		n := NewNetwork(NewLinks(1))
		if _, err := open(t, n, a1, "a").DialTimeout("nonsense", time.Second); err == nil {
			t.Error("dialed nonsense")
		}
	})
}

func TestAPartitionBreaksStreamsInMemory(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		links := NewLinks(1)
		n := NewNetwork(links)
		a, near, b := open(t, n, a1, "a"), open(t, n, a2, "a"), open(t, n, b1, "b")
		across, err := a.DialTimeout(b1, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		inside, err := a.DialTimeout(a2, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		acrossEnd, insideEnd := <-b.StreamCh(), <-near.StreamCh()
		links.Partition("b")
		for _, c := range []net.Conn{across, acrossEnd} {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, ErrPartitioned) {
				t.Errorf("across the partition: %v, want ErrPartitioned", err)
			}
		}
		write(t, inside, "x")
		if _, err := insideEnd.Read(make([]byte, 1)); err != nil {
			t.Errorf("inside the group: %v", err)
		}
		links.Heal()
		if _, err := across.Write([]byte("x")); !errors.Is(err, ErrPartitioned) {
			t.Errorf("a broken stream came back: %v", err)
		}
		if _, err := a.DialTimeout(b1, time.Second); err != nil {
			t.Errorf("dialing after the heal: %v", err)
		}
		wantCounts(t, links, Counts{Reset: 1})
	})
}

func TestShutdownClosesItsStreams(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		n := NewNetwork(NewLinks(1))
		a, b := open(t, n, a1, "a"), open(t, n, b1, "b")
		out, err := a.DialTimeout(b1, 0)
		if err != nil {
			t.Fatal(err)
		}
		in, err := b.DialTimeout(a1, 0) // stays in a's queue, never accepted
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := out.Read(make([]byte, 1))
			ended <- err
		}()
		synctest.Wait()
		_ = a.Shutdown()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the reader here: %v, want ErrClosed", err)
		}
		if _, err := in.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the reader there: %v, want EOF", err)
		}
	})
}

func TestNewTransportRefusesNonsense(t *testing.T) {
	n := NewNetwork(NewLinks(1))
	open(t, n, a1, "a")
	for addr, reason := range map[string]string{
		"": "IP:port", "localhost:1": "IP:port", "10.0.0.1": "IP:port", "10.0.0.1:0": "port 0", a1: "in use",
		"[::ffff:10.0.1.1]:7946": "in use",
	} {
		if _, err := n.NewTransport(addr, "a"); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: %v, want it to say %q", addr, err, reason)
		}
	}
	six := open(t, n, "[fd00::1]:7946", "a")
	ip, port, err := six.FinalAdvertiseAddr("192.0.2.1", 1)
	if err != nil || net.JoinHostPort(ip.String(), "7946") != six.self || port != 7946 {
		t.Errorf("advertises %v:%d (%v), want its own address", ip, port, err)
	}
}
