package netem

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// packetQueue is the receive buffer of a UDP socket, in packets of 1400 bytes.
	packetQueue = 1024
	// streamQueue is the usual backlog of a listening socket.
	streamQueue = 128
)

// Network is a network in memory with Links. It uses no socket, goroutine or global state, so that it works inside a
// testing/synctest bubble, and outside one in real time. It is safe for concurrent use.
type Network struct {
	links *Links

	mu        sync.Mutex
	endpoints map[string]*Transport
}

// NewNetwork returns a network without endpoints. Under testing/synctest, call it inside the bubble.
func NewNetwork(links *Links) *Network {
	return &Network{links: links, endpoints: make(map[string]*Transport)}
}

// NewTransport opens an endpoint and registers it in a group of the network's Links. The address is an IP and a port;
// Shutdown frees it for a node that restarts.
func (n *Network) NewTransport(addr, group string) (*Transport, error) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("opening an endpoint in memory: %w, give it as IP:port", err)
	}
	if ap.Port() == 0 {
		return nil, fmt.Errorf("opening an endpoint in memory: %s has port 0, choose one", addr)
	}
	// As memberlist and net.IP write it.
	ap = netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	t := &Transport{
		network: n,
		addr:    ap,
		self:    ap.String(),
		packets: make(chan *memberlist.Packet, packetQueue),
		streams: make(chan net.Conn, streamQueue),
		conns:   make(map[*conn]struct{}),
		done:    make(chan struct{}),
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.endpoints[t.self] != nil {
		return nil, fmt.Errorf("opening an endpoint in memory: %s is in use, choose another address", t.self)
	}
	n.endpoints[t.self] = t
	n.links.Register(t.self, group)
	return t, nil
}

// endpoint returns the endpoint at the address, or nil.
func (n *Network) endpoint(addr string) *Transport {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.endpoints[addr]
}

// Transport is one endpoint of a Network, for memberlist.Config.Transport. It is safe for concurrent use.
type Transport struct {
	network *Network
	addr    netip.AddrPort
	self    string
	packets chan *memberlist.Packet
	streams chan net.Conn
	// delayed are the packets to this endpoint: they arrive even if the sender has shut down.
	delayed delayedPackets

	mu    sync.Mutex
	conns map[*conn]struct{} // the open ends of streams on this side
	done  chan struct{}      // closed by Shutdown, under mu
}

var _ memberlist.NodeAwareTransport = (*Transport)(nil)

// FinalAdvertiseAddr returns the endpoint's own address, whatever memberlist is configured with.
func (t *Transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.addr.Addr().AsSlice(), int(t.addr.Port()), nil
}

// WriteTo sends a packet to an address. As with UDP, the sender does not learn whether it arrives: the error is
// net.ErrClosed after Shutdown, otherwise nil. The bytes are copied.
func (t *Transport) WriteTo(b []byte, addr string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress is WriteTo. It ignores the name in the address.
func (t *Transport) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	now := time.Now()
	if t.isClosed() {
		return now, &net.OpError{Op: "write", Net: "udp", Addr: t.udpAddr(), Err: net.ErrClosed}
	}
	var queue *delayedPackets
	receiver := t.network.endpoint(to.Addr)
	if receiver != nil {
		queue = &receiver.delayed
	}
	_ = t.network.links.carry(t.self, to.Addr, b, queue, func(b []byte) error {
		return enqueue(receiver.packets, &memberlist.Packet{Buf: b, From: t.udpAddr(), Timestamp: time.Now()})
	})
	return now, nil
}

var errQueueFull = errors.New("the queue is full, read from the transport's channels")

func enqueue[T any](queue chan T, v T) error {
	select {
	case queue <- v:
		return nil
	default:
		return errQueueFull
	}
}

// PacketCh is where packets arrive. It is never closed.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh is where streams arrive that others dialed. It is never closed.
func (t *Transport) StreamCh() <-chan net.Conn { return t.streams }

// DialTimeout opens a stream to an address, which takes a round trip. A timeout of 0 is none. Across a partition it
// waits for the timeout, as where packets are lost; without one it fails at once with ErrPartitioned.
func (t *Transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout is DialTimeout. It ignores the name in the address.
func (t *Transport) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	c, err := t.dial(to.Addr, timeout)
	if err != nil {
		return nil, dialError(to, err)
	}
	return c, nil
}

func (t *Transport) dial(to string, timeout time.Duration) (*conn, error) {
	links := t.network.links
	roundTrip, err := links.dialDelay(t.self, to)
	if err != nil {
		if timeout != 0 {
			err = pause(forever, timeout, t.done)
		}
		return nil, err
	}
	if err := pause(roundTrip, timeout, t.done); err != nil {
		return nil, err
	}
	acceptor := t.network.endpoint(to)
	if acceptor == nil {
		return nil, syscall.ECONNREFUSED
	}
	s := newStream(links, net.TCPAddrFromAddrPort(t.addr), net.TCPAddrFromAddrPort(acceptor.addr))
	s.ends[0].forget, s.ends[1].forget = t.forget, acceptor.forget
	if s.ended, err = links.track(t.self, to, s.reset); err != nil {
		return nil, err
	}
	err = t.hold(s.ends[0])
	if err == nil && (acceptor.hold(s.ends[1]) != nil || enqueue[net.Conn](acceptor.streams, s.ends[1]) != nil) {
		err = syscall.ECONNREFUSED
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s.ends[0], nil
}

// hold keeps an end of a stream for Shutdown to close.
func (t *Transport) hold(c *conn) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isClosed() {
		return net.ErrClosed
	}
	t.conns[c] = struct{}{}
	return nil
}

func (t *Transport) forget(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
}

// Shutdown frees the address, drops the packets on their way here, closes every stream and ends every dial. What was
// sent from here goes on its way. Calling it again does nothing.
func (t *Transport) Shutdown() error {
	t.mu.Lock()
	if t.isClosed() {
		t.mu.Unlock()
		return nil
	}
	close(t.done)
	conns := slices.Collect(maps.Keys(t.conns))
	t.mu.Unlock()

	t.network.mu.Lock()
	delete(t.network.endpoints, t.self)
	t.network.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
	t.network.links.countDropped(t.delayed.cancel())
	return nil
}

func (t *Transport) isClosed() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

func (t *Transport) udpAddr() net.Addr { return net.UDPAddrFromAddrPort(t.addr) }
