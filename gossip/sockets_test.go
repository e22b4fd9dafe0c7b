package gossip

import (
	"bytes"
	"io"
	"log"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// Shutdown ends a stream that waits for its answer, and no stream is opened after it.
func TestSocketsShutdown(t *testing.T) {
	peer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	s, err := listen(net.IPv4(127, 0, 0, 1), 0, log.New(io.Discard, "", 0), new(inspector))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := s.DialTimeout(peer.Addr().String(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		// without a deadline: it ends with Shutdown, or not before the test binary does
		_, err := conn.Read(make([]byte, 1))
		ended <- err
	}()
	if err := s.Shutdown(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("something was read from a peer that says nothing")
	}
	if conn, err := s.DialTimeout(peer.Addr().String(), time.Minute); err == nil {
		conn.Close()
		t.Error("a stream was opened after Shutdown")
	}
	if err := conn.Close(); err == nil {
		t.Error("Shutdown left the stream open")
	}
}

func listening(t *testing.T, ip net.IP) *sockets {
	t.Helper()
	s, err := listen(ip, 0, log.New(io.Discard, "", 0), new(inspector))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Packets arrive as they were sent, from whom they were sent, one by one, and none shares memory with the next.
func TestSocketsPackets(t *testing.T) {
	for _, bound := range []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4zero} {
		from, to := listening(t, net.IPv4(127, 0, 0, 1)), listening(t, bound)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(to.GetAutoBindPort()))
		sent := [][]byte{{1}, {}, bytes.Repeat([]byte{2}, 1400), bytes.Repeat([]byte{3}, maxInboundPacket), {4, 5}}
		for _, b := range sent {
			if _, err := from.WriteTo(b, addr); err != nil {
				t.Fatal(err)
			}
		}
		var came []*memberlist.Packet
		for range len(sent) - 1 { // an empty one says nothing to memberlist
			came = append(came, <-to.PacketCh())
		}
		for i, b := range slices.Delete(sent, 1, 2) {
			if p := came[i]; !bytes.Equal(p.Buf, b) || p.From.String() != from.udp.LocalAddr().String() ||
				p.Timestamp.IsZero() {
				t.Errorf("packet %d: %d bytes from %v, want %d from %v", i, len(p.Buf), p.From, len(b),
					from.udp.LocalAddr())
			}
		}
	}
}

func TestSocketsBadAddress(t *testing.T) {
	s := listening(t, net.IPv4(127, 0, 0, 1))
	for _, addr := range []string{"", "127.0.0.1", "127.0.0.1:70000", "name:1", "[::1:7"} {
		if _, err := s.WriteTo([]byte{1}, addr); err == nil {
			t.Errorf("a packet to %q was sent", addr)
		}
	}
	if second, err := listen(net.IPv4(127, 0, 0, 1), s.GetAutoBindPort(), s.log, new(inspector)); err == nil {
		_ = second.Shutdown()
		t.Error("two sockets at one address")
	}
}

func TestSocketsAdvertise(t *testing.T) {
	local, anywhere := listening(t, net.IPv4(127, 0, 0, 1)), listening(t, net.IPv4zero)
	for _, test := range []struct {
		sockets *sockets
		given   string
		port    int
		want    string
	}{
		{local, "", 0, net.JoinHostPort("127.0.0.1", strconv.Itoa(local.GetAutoBindPort()))},
		{local, "203.0.113.9", 7, "203.0.113.9:7"},
		{anywhere, "203.0.113.9", 7, "203.0.113.9:7"},
		{anywhere, "2001:db8::1", 7, "[2001:db8::1]:7"},
	} {
		ip, port, err := test.sockets.FinalAdvertiseAddr(test.given, test.port)
		if got := net.JoinHostPort(ip.String(), strconv.Itoa(port)); err != nil || got != test.want {
			t.Errorf("%q is advertised as %s, %v, want %s", test.given, got, err, test.want)
		}
	}
	if _, _, err := local.FinalAdvertiseAddr("nowhere", 7); err == nil {
		t.Error("an address that is none is advertised")
	}
	// Machines without a private address say so.
	if ip, port, err := anywhere.FinalAdvertiseAddr("", 0); err == nil &&
		(!ip.IsPrivate() || port != anywhere.GetAutoBindPort()) {
		t.Errorf("all addresses of the machine are advertised as %v and port %d", ip, port)
	}
}
