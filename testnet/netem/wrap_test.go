package netem

import (
	"errors"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// wrapInMemory wraps endpoints "a", a1, and "b", b1, of a network in memory without faults, so that all faults are
// that of the links returned.
func wrapInMemory(t *testing.T) (a, b memberlist.NodeAwareTransport, links *Links) {
	t.Helper()
	links = threeGroups(1)
	n := NewNetwork(NewLinks(1))
	a, b = Wrap(open(t, n, a1, ""), a1, links), Wrap(open(t, n, b1, ""), b1, links)
	t.Cleanup(func() {
		if err := errors.Join(a.Shutdown(), b.Shutdown()); err != nil {
			t.Error(err)
		}
	})
	return a, b, links
}

func TestWrappedPacketsMeetTheLink(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		a, b, links := wrapInMemory(t)
		links.Set("a", "b", Link{Latency: 40 * ms, Duplicate: 1})
		start := time.Now()
		buf := []byte("hello")
		if _, err := a.WriteTo(buf, b1); err != nil {
			t.Fatal(err)
		}
		copy(buf, "xxxxx")
		for range 2 {
			p := <-b.PacketCh()
			if took := time.Since(start); took != 40*ms || string(p.Buf) != "hello" || p.From.String() != a1 {
				t.Errorf("%q from %v after %v, want hello from %s after 40ms", p.Buf, p.From, took, a1)
			}
		}
		links.Set("a", "b", Link{Loss: 1})
		send(t, a, b1, "lost")
		send(t, b, a1, "untouched")
		wantReceived(t, a, "untouched")
		wantReceived(t, b)
		wantCounts(t, links, Counts{Sent: 3, Duplicated: 1, Delivered: 3, Lost: 1})
	})
}

func TestWrappedPacketsAreOvertaken(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		a, b, links := wrapInMemory(t)
		links.Set("a", "b", Link{Reorder: 1})
		send(t, a, b1, "first")
		links.Set("a", "b", Link{})
		send(t, a, b1, "second")
		time.Sleep(time.Second)
		wantReceived(t, b, "second", "first")
		wantCounts(t, links, Counts{Sent: 2, Delivered: 2, Delayed: 1})
	})
}

func TestWrappedPacketsMeetThePartition(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		a, b, links := wrapInMemory(t)
		links.Set("a", "b", Link{Latency: 40 * ms})
		send(t, a, b1, "delayed")
		links.PartitionOneWay("a", "b")
		send(t, a, b1, "cut")
		send(t, b, a1, "back")
		time.Sleep(time.Second)
		links.Heal()
		time.Sleep(time.Second)
		wantReceived(t, b)
		wantReceived(t, a, "back")
		send(t, a, b1, "healed")
		time.Sleep(time.Second)
		wantReceived(t, b, "healed")
		wantCounts(t, links, Counts{Sent: 4, Partitioned: 2, Delivered: 2})
	})
}

func TestWrappedShutdownLetsPacketsLeave(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		a, b, links := wrapInMemory(t)
		links.Set("a", "b", Link{Latency: 40 * ms})
		send(t, a, b1, "farewell")
		start := time.Now()
		if err := a.Shutdown(); err != nil || time.Since(start) != 40*ms {
			t.Errorf("Shutdown returned %v after %v, want after 40ms", err, time.Since(start))
		}
		wantReceived(t, b, "farewell")
		if _, err := a.WriteTo([]byte("nobody"), b1); !errors.Is(err, net.ErrClosed) {
			t.Errorf("sending after Shutdown: %v", err)
		}
		if _, err := a.DialTimeout(b1, time.Second); !errors.Is(err, net.ErrClosed) {
			t.Errorf("dialing after Shutdown: %v", err)
		}
		if _, err := b.DialTimeout(a1, time.Second); err == nil {
			t.Error("the inner transport still answers")
		}
		wantCounts(t, links, Counts{Sent: 2, Delivered: 1, Dropped: 1})
	})
}

// broken is a transport whose socket refuses everything.
type broken struct{ memberlist.NodeAwareTransport }

var errBroken = &net.OpError{Op: "write", Net: "udp", Err: errors.New("message too long")}

func (broken) WriteToAddress([]byte, memberlist.Address) (time.Time, error) {
	return time.Time{}, errBroken
}
func (broken) Shutdown() error { return errBroken }

func TestErrorsOfTheInnerTransportComeThroughAsTheyAre(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		links := threeGroups(1)
		w := Wrap(broken{}, a1, links)
		// memberlist asks for the type without unwrapping.
		if _, err := w.WriteTo([]byte("x"), b1); err != error(errBroken) {
			t.Errorf("got %v, want the inner error itself", err)
		}
		links.Set("a", "b", Link{Latency: ms})
		if _, err := w.WriteTo([]byte("x"), b1); err != nil {
			t.Errorf("a delayed packet already knows its fate: %v", err)
		}
		for range 2 {
			if err := w.Shutdown(); err != error(errBroken) {
				t.Errorf("Shutdown: %v, want the inner error", err)
			}
		}
		wantCounts(t, links, Counts{Sent: 2, Dropped: 2})
	})
}

func TestWrappedDials(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		a, b, links := wrapInMemory(t)
		links.Set("a", "b", Link{Latency: 40 * ms})
		links.Set("b", "a", Link{Latency: 20 * ms})
		start := time.Now()
		c, err := a.DialTimeout(b1, 0)
		if err != nil || time.Since(start) != 60*ms {
			t.Fatalf("dialing took %v (%v), want 60ms", time.Since(start), err)
		}
		accepted := <-b.StreamCh()
		write(t, c, "x")
		if _, err := accepted.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if _, err := a.DialTimeout(b1, 59*ms); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("dialing with too little time: %v", err)
		}
		time.AfterFunc(30*ms, func() { links.PartitionOneWay("b", "a") })
		if _, err := a.DialTimeout(b1, time.Second); !errors.Is(err, ErrPartitioned) {
			t.Errorf("dialing into a partition: %v, want ErrPartitioned", err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the open stream: %v, want it closed", err)
		}
		if _, err := accepted.Read(make([]byte, 1)); err == nil {
			t.Error("the other end is still open")
		}
		start = time.Now()
		_, err = a.DialTimeout(b1, time.Minute)
		if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != "dial" || !errors.Is(err, ErrPartitioned) ||
			time.Since(start) != 0 {
			t.Errorf("dialing across the partition: %v after %v, want ErrPartitioned at once", err, time.Since(start))
		}
		links.Heal()
		if c, err = a.DialTimeout(b1, time.Second); err != nil {
			t.Fatalf("dialing after the heal: %v", err)
		}
		_ = c.Close()
		if len(links.open) != 0 {
			t.Errorf("%d closed streams are still watched", len(links.open))
		}
		wantCounts(t, links, Counts{Reset: 1, Refused: 2})
	})
}

// listen returns a NetTransport on a free port of loopback, wrapped, and its address.
func listen(t *testing.T, group string, links *Links) (memberlist.NodeAwareTransport, string) {
	t.Helper()
	inner, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
		BindAddrs: []string{"127.0.0.1"},
		Logger:    log.New(io.Discard, "", 0),
	})
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(inner.GetAutoBindPort()))
	links.Register(addr, group)
	w := Wrap(inner, addr, links)
	t.Cleanup(func() { shutDown(t, w) })
	return w, addr
}

// shutDown reads what still arrives: NetTransport's queues hold nothing, and its Shutdown waits for what nobody reads.
func shutDown(t *testing.T, w memberlist.Transport) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- w.Shutdown() }()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		case <-w.PacketCh():
		case c := <-w.StreamCh():
			_ = c.Close()
		}
	}
}

const patience = 20 * time.Second

func await[T any](t *testing.T, ch <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatalf("no %s within %v", what, patience)
	}
	return v
}

func TestWrappedSockets(t *testing.T) {
	links := NewLinks(1)
	links.SetDefaults(Link{}, Link{Latency: 5 * ms, Duplicate: 1})
	a, addrA := listen(t, "a", links)
	b, addrB := listen(t, "b", links)

	start := time.Now()
	send(t, a, addrB, "hello")
	for range 2 {
		if p := await(t, b.PacketCh(), "packet"); string(p.Buf) != "hello" || p.From.String() != addrA {
			t.Errorf("received %q from %v", p.Buf, p.From)
		}
	}
	if took := time.Since(start); took < 5*ms {
		t.Errorf("arrived after %v, want 5ms or more", took)
	}

	out, err := a.DialTimeout(addrB, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in := await(t, b.StreamCh(), "stream")
	defer in.Close()
	write(t, out, "x")
	for _, c := range []net.Conn{in, out} {
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	if _, err := in.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	links.Partition("a")
	for _, c := range []net.Conn{in, out} {
		if _, err := c.Read(make([]byte, 1)); err == nil || err == io.EOF || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("an open stream across the partition: %v, want a broken connection", err)
		}
	}
	if _, err := b.DialTimeout(addrA, patience); !errors.Is(err, ErrPartitioned) {
		t.Errorf("dialing across the partition: %v, want ErrPartitioned", err)
	}
	send(t, a, addrB, "cut")

	links.Heal()
	send(t, a, addrB, "healed")
	if p := await(t, b.PacketCh(), "packet"); string(p.Buf) != "healed" {
		t.Errorf("received %q after the heal", p.Buf)
	}
	await(t, b.PacketCh(), "second copy")
	// A copy may be received before its sender has counted it.
	shutDown(t, a)
	wantCounts(t, links, Counts{Sent: 3, Delivered: 4, Duplicated: 2, Partitioned: 1, Refused: 1, Reset: 1})
}
