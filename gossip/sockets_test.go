package gossip

import (
	"io"
	"log"
	"net"
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
	opened, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
		BindAddrs: []string{"127.0.0.1"}, Logger: log.New(io.Discard, "", 0)})
	if err != nil {
		t.Fatal(err)
	}
	s := newSockets(opened)
	conn, err := s.DialTimeout(peer.Addr().String(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1)) // without a deadline: it ends with Shutdown, or not before the test binary does
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
