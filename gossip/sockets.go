package gossip

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-sockaddr"
	"github.com/hashicorp/memberlist"
)

// sockets are a pool's UDP and TCP sockets. They differ from memberlist's own: a packet takes as much memory as it has
// bytes, not 64 KiB, which halves the cost of receiving it; packets wait for memberlist in a queue; Shutdown ends
// dialled streams as well, so that a stop does not wait for nodes that do not answer; and packets and streams are
// inspected and bounded, so that senders without a key cannot take the process' file descriptors or memory.
type sockets struct {
	tcp     *net.TCPListener
	udp     *net.UDPConn
	packets chan *memberlist.Packet
	streams chan net.Conn
	log     *log.Logger

	inspector                      *inspector
	limiter                        streamLimiter
	refusedStreams, refusedPackets atomic.Uint64
	otherKeys                      otherKeys

	open    context.Context
	close   context.CancelFunc
	reading sync.WaitGroup
}

const (
	maxPacket    = 1 << 16 // bytes
	packetsQueue = 64      // packets that were read and wait; beyond it they wait in the socket
	socketBuffer = 2 << 20 // bytes of packets that the system keeps, where it allows so many
	retryPause   = 5 * time.Millisecond
	dialTimeout  = 2 * time.Second // to open a stream: who takes longer is taken to be gone, and tried again later
)

// listen opens the sockets at an address of this machine. Port 0 picks one that is free.
func listen(ip net.IP, port int, logger *log.Logger, in *inspector) (*sockets, error) {
	tcp, udp, err := listenBoth(ip, port)
	for tries := 1; err != nil && port == 0 && tries < 10; tries++ { // what is free for TCP may be in use for UDP
		tcp, udp, err = listenBoth(ip, port)
	}
	if err != nil {
		return nil, err
	}
	for size := socketBuffer; udp.SetReadBuffer(size) != nil && size > maxPacket; size /= 2 {
	}
	s := &sockets{tcp: tcp, udp: udp, log: logger, inspector: in,
		packets: make(chan *memberlist.Packet, packetsQueue), streams: make(chan net.Conn)}
	s.open, s.close = context.WithCancel(context.Background())
	s.reading.Go(s.accept)
	s.reading.Go(s.read)
	return s, nil
}

func listenBoth(ip net.IP, port int) (*net.TCPListener, *net.UDPConn, error) {
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip, Port: port})
	if err != nil {
		return nil, nil, err
	}
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: ip, Port: tcp.Addr().(*net.TCPAddr).Port})
	if err != nil {
		return nil, nil, errors.Join(err, tcp.Close())
	}
	return tcp, udp, nil
}

// GetAutoBindPort returns the port, as memberlist.NetTransport does.
func (s *sockets) GetAutoBindPort() int { return s.tcp.Addr().(*net.TCPAddr).Port }

// read takes in packets until the socket is closed.
func (s *sockets) read() {
	buf := make([]byte, maxPacket)
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(buf)
		if err != nil {
			if !s.goOn("reading packets", err) {
				return
			}
			continue
		}
		if n == 0 {
			continue
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		if err := s.inspector.packet(buf[:n]); err != nil {
			s.refusedPackets.Add(1)
			if err == errOtherKey {
				s.otherKeys.note(from.Addr(), time.Now())
				s.log.Printf("[WARN] gossip: refused a packet from %v: %v", from, err)
			}
			continue
		}
		packet := &memberlist.Packet{
			Buf: append([]byte(nil), buf[:n]...), From: net.UDPAddrFromAddrPort(from), Timestamp: time.Now(),
		}
		select {
		case s.packets <- packet:
		case <-s.open.Done():
			return
		}
	}
}

// accept takes in streams until the socket is closed.
func (s *sockets) accept() {
	for {
		conn, err := s.tcp.AcceptTCP()
		if err != nil {
			if !s.goOn("accepting streams", err) {
				return
			}
			continue
		}
		c := &inspectedConn{Conn: conn, sockets: s, inbound: true, source: streamSource(conn.RemoteAddr())}
		if !s.limiter.admit(c) {
			s.refusedStreams.Add(1)
			_ = conn.Close()
			continue
		}
		select {
		case s.streams <- c:
		case <-s.open.Done():
			_ = c.Close()
			return
		}
	}
}

// goOn logs an error, pauses, and reports whether the sockets are still open. File descriptors may be short, say.
func (s *sockets) goOn(doing string, err error) bool {
	if errors.Is(err, net.ErrClosed) {
		return false
	}
	s.log.Printf("[ERR] gossip: %s: %v", doing, err)
	select {
	case <-time.After(retryPause):
		return true
	case <-s.open.Done():
		return false
	}
}

// PacketCh implements memberlist.Transport.
func (s *sockets) PacketCh() <-chan *memberlist.Packet { return s.packets }

// StreamCh implements memberlist.Transport.
func (s *sockets) StreamCh() <-chan net.Conn { return s.streams }

// FinalAdvertiseAddr implements memberlist.Transport: the address given, or else the one of the socket, or if that is
// unspecified a private one of the machine.
func (s *sockets) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	if ip != "" {
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			return nil, 0, err
		}
		return addr.Unmap().AsSlice(), port, nil
	}
	own := s.tcp.Addr().(*net.TCPAddr)
	if !own.IP.IsUnspecified() {
		return own.IP, own.Port, nil
	}
	private, err := sockaddr.GetPrivateIP()
	if err != nil {
		return nil, 0, fmt.Errorf("addresses of this machine: %w", err)
	}
	if private == "" {
		return nil, 0, errors.New("this machine has no private address: say which one others are to use")
	}
	return net.ParseIP(private), own.Port, nil
}

// WriteTo sends a packet.
func (s *sockets) WriteTo(b []byte, addr string) (time.Time, error) {
	return s.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress sends a packet.
func (s *sockets) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	to, err := netip.ParseAddrPort(a.Addr)
	if err != nil {
		return time.Time{}, err
	}
	_, err = s.udp.WriteToUDPAddrPort(b, netip.AddrPortFrom(to.Addr().Unmap(), to.Port()))
	return time.Now(), err
}

// DialTimeout opens a stream.
func (s *sockets) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return s.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout opens a stream, which Shutdown closes.
func (s *sockets) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	dialer := net.Dialer{Timeout: min(timeout, dialTimeout)}
	conn, err := dialer.DialContext(s.open, "tcp", a.Addr)
	if err != nil {
		return nil, err
	}
	d := &dialled{conn.(*net.TCPConn), context.AfterFunc(s.open, func() { _ = conn.Close() })}
	return &inspectedConn{Conn: d, sockets: s}, nil
}

// Shutdown closes everything.
func (s *sockets) Shutdown() error {
	s.close()
	err := errors.Join(s.tcp.Close(), s.udp.Close())
	s.limiter.closeAll()
	s.reading.Wait()
	return err
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
