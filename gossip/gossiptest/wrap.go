package gossiptest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Wrap puts the weather before a real transport. What leaves through the wrapper meets it, what arrives does not: so each
// endpoint of the network needs a wrapper, and if they live in several processes, each process the same Links. self is the
// address under which the others know this endpoint; Register it, and theirs.
//
// Packets are lost, duplicated, held up and cut before they reach the inner transport. A dial takes the link's round trip
// and is refused at once across a cut, with ErrCut; an open stream carries bytes at the speed of the inner transport until
// it ends or a cut closes it (a TCP connection is then reset, so that nothing buffered slips through).
//
// The wrapper takes over the inner transport: its Shutdown lets the packets in the air leave, for as long as their delays
// take, ends the dials that wait for their round trip, and then shuts the inner one down. It implements IngestPacket and
// IngestStream by passing them on.
func Wrap(inner memberlist.NodeAwareTransport, self string, links *Links) memberlist.NodeAwareTransport {
	w := &wrapped{NodeAwareTransport: inner, self: self, links: links, done: make(chan struct{})}
	w.shutdown = sync.OnceValue(func() error {
		close(w.done)
		w.flights.land()
		return inner.Shutdown()
	})
	return w
}

// wrapped leaves to the inner transport what the weather does not touch: the address and both channels.
type wrapped struct {
	memberlist.NodeAwareTransport
	self     string
	links    *Links
	flights  flights
	done     chan struct{}
	shutdown func() error
}

// ingester is what memberlist's own transports offer to whoever brings packets and streams from elsewhere.
type ingester interface {
	IngestPacket(conn net.Conn, addr net.Addr, now time.Time, shouldClose bool) error
	IngestStream(conn net.Conn) error
}

var (
	_ ingester = (*wrapped)(nil)
	_ ingester = (*Transport)(nil)
)

// WriteTo sends a packet. The error is that of the inner transport, or net.ErrClosed after Shutdown; of what was delayed,
// lost or cut nobody hears. The bytes are copied unless they leave at once.
func (w *wrapped) WriteTo(b []byte, addr string) (time.Time, error) {
	return w.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (w *wrapped) WriteToAddress(b []byte, to memberlist.Address) (sent time.Time, err error) {
	sent = time.Now()
	for _, delay := range w.links.depart(w.self, to.Addr) {
		packet := b
		if delay > 0 {
			packet = bytes.Clone(b)
		}
		launched := w.flights.launch(delay, func() {
			failure := w.transmit(packet, to)
			// Only what leaves before launch returns may speak to this caller. The error goes up as it is, because memberlist
			// looks at its type to tell a failed peer.
			if delay <= 0 && failure != nil {
				err = failure
			}
		})
		if !launched {
			w.links.tally.dropped.Add(1)
			err = &net.OpError{Op: "write", Net: "udp", Err: net.ErrClosed}
		}
	}
	return sent, err
}

// transmit is where a packet leaves the weather.
func (w *wrapped) transmit(b []byte, to memberlist.Address) error {
	if !w.links.arrives(w.self, to.Addr) {
		return nil
	}
	if _, err := w.NodeAwareTransport.WriteToAddress(b, to); err != nil {
		w.links.tally.dropped.Add(1)
		return err
	}
	w.links.tally.delivered.Add(1)
	return nil
}

// DialTimeout opens a stream. A time-out of zero is none.
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
		// Never down to zero, which would mean no time-out at all.
		timeout = max(timeout-time.Since(start), 1)
	}
	inner, err := w.NodeAwareTransport.DialAddressTimeout(to, timeout)
	if err != nil {
		return nil, err
	}
	ended, err := w.links.cross(w.self, to.Addr, func() { reset(inner) })
	if err != nil {
		reset(inner)
		return nil, dialError(to, err)
	}
	return &watched{Conn: inner, ended: ended}, nil
}

// dialError has the shape that memberlist knows from TCP.
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

// watched is a stream that Links may close.
type watched struct {
	net.Conn
	ended func()
}

func (c *watched) Close() error {
	c.ended()
	return c.Conn.Close()
}

// Shutdown sends what is in the air and shuts the inner transport down. Calling it again returns the same.
func (w *wrapped) Shutdown() error { return w.shutdown() }

func (w *wrapped) IngestPacket(conn net.Conn, addr net.Addr, now time.Time, shouldClose bool) error {
	if in, ok := w.NodeAwareTransport.(ingester); ok {
		return in.IngestPacket(conn, addr, now, shouldClose)
	}
	if shouldClose {
		_ = conn.Close()
	}
	return fmt.Errorf("ingesting a packet: %T cannot: %w", w.NodeAwareTransport, errors.ErrUnsupported)
}

func (w *wrapped) IngestStream(conn net.Conn) error {
	if in, ok := w.NodeAwareTransport.(ingester); ok {
		return in.IngestStream(conn)
	}
	return fmt.Errorf("ingesting a stream: %T cannot: %w", w.NodeAwareTransport, errors.ErrUnsupported)
}
