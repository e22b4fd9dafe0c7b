package gossip

import (
	"context"
	"net"
	"time"

	"github.com/hashicorp/memberlist"
)

// sockets are memberlist's own, but for that Shutdown ends what was dialled as well: a stop would wait for whoever does not answer,
// for streamTimeout to connect and as long again for the answer.
type sockets struct {
	*memberlist.NetTransport
	open  context.Context
	close context.CancelFunc
}

func newSockets(t *memberlist.NetTransport) *sockets {
	s := &sockets{NetTransport: t}
	s.open, s.close = context.WithCancel(context.Background())
	return s
}

// DialTimeout opens a stream.
func (s *sockets) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return s.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout opens a stream, which Shutdown closes.
func (s *sockets) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	dialer := net.Dialer{Timeout: timeout}
	conn, err := dialer.DialContext(s.open, "tcp", a.Addr)
	if err != nil {
		return nil, err
	}
	return &dialled{conn.(*net.TCPConn), context.AfterFunc(s.open, func() { _ = conn.Close() })}, nil
}

// Shutdown closes everything.
func (s *sockets) Shutdown() error {
	s.close()
	return s.NetTransport.Shutdown()
}

// dialled is a stream that sockets know of until it is closed.
type dialled struct {
	*net.TCPConn
	forget func() bool
}

// Close implements net.Conn.
func (d *dialled) Close() error {
	d.forget()
	return d.TCPConn.Close()
}
