package netem

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Wrap applies the links in front of a real transport, to what it sends and not to what it receives: wrap every
// endpoint, and use equal Links in every process. self is the address by which the others know this endpoint. Register
// it, and theirs.
//
// Packets are lost, duplicated, delayed and partitioned before they reach the inner transport. A dial takes the link's
// round trip, or fails at once with ErrPartitioned. An open stream is as fast as the inner transport until a partition
// resets it (a TCP connection drops what it has buffered).
//
// The wrapper owns the inner transport. Shutdown waits until delayed packets are sent, aborts the dials, and shuts the
// inner transport down.
func Wrap(inner memberlist.NodeAwareTransport, self string, links *Links) memberlist.NodeAwareTransport {
	w := &wrapped{NodeAwareTransport: inner, self: self, links: links, done: make(chan struct{})}
	w.shutdown = sync.OnceValue(func() error {
		close(w.done)
		w.delayed.drain()
		return inner.Shutdown()
	})
	return w
}

// wrapped leaves the address and both channels to the inner transport.
type wrapped struct {
	memberlist.NodeAwareTransport
	self     string
	links    *Links
	delayed  delayedPackets
	done     chan struct{}
	shutdown func() error
}

// WriteTo sends a packet. The error is that of the inner transport, or net.ErrClosed after Shutdown. Packets that are
// delayed, lost or partitioned return none. The bytes are copied.
func (w *wrapped) WriteTo(b []byte, addr string) (time.Time, error) {
	return w.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (w *wrapped) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	sent := time.Now()
	err := w.links.carry(w.self, to.Addr, b, &w.delayed, func(b []byte) error {
		_, err := w.NodeAwareTransport.WriteToAddress(b, to)
		return err // unwrapped: memberlist takes its type for a failed peer
	})
	if err == net.ErrClosed {
		err = &net.OpError{Op: "write", Net: "udp", Err: err}
	}
	return sent, err
}

// DialTimeout opens a stream. A timeout of 0 is none.
func (w *wrapped) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return w.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

func (w *wrapped) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	start := time.Now()
	roundTrip, err := w.links.dialDelay(w.self, to.Addr)
	if err == nil {
		err = pause(roundTrip, timeout, w.done)
	}
	if err != nil {
		return nil, dialError(to, err)
	}
	if timeout != 0 {
		// Not 0, which is no timeout.
		timeout = max(timeout-time.Since(start), 1)
	}
	inner, err := w.NodeAwareTransport.DialAddressTimeout(to, timeout)
	if err != nil {
		return nil, err
	}
	ended, err := w.links.track(w.self, to.Addr, func() { reset(inner) })
	if err != nil {
		reset(inner)
		return nil, dialError(to, err)
	}
	return &watched{Conn: inner, ended: ended}, nil
}

// dialError returns an error like that of TCP.
func dialError(to memberlist.Address, err error) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s: %w", to.Addr, err)}
}

// reset closes a stream without delivering what is still buffered, if the transport knows how.
func reset(c net.Conn) {
	if tcp, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// watched is a stream that a partition resets.
type watched struct {
	net.Conn
	ended func()
}

func (c *watched) Close() error {
	c.ended()
	return c.Conn.Close()
}

// Shutdown waits for delayed packets and shuts the inner transport down. Later calls return the same.
func (w *wrapped) Shutdown() error { return w.shutdown() }

// OnWAN returns a wrapper for node.Config.WrapTransport that applies the link to all that a node sends over the WAN
// pool, with random draws from the seed. It panics on a link that does not Validate.
func (k Link) OnWAN(seed uint64) func(pool string, t memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
	const self = "self"
	links := NewLinks(seed)
	links.Register(self, self) // all other addresses are unknown to links, and so in a group of their own
	links.SetDefaults(Link{}, k)
	return func(pool string, t memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
		if pool != "wan" {
			return t
		}
		return Wrap(t, self, links)
	}
}
