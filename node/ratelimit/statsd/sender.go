package statsd

import (
	"net"
	"time"
)

const (
	// packetSize is what fits an Ethernet frame with an IPv6 and a UDP header, and options.
	packetSize   = 1432
	dialTimeout  = 1500 * time.Millisecond
	writeTimeout = time.Second
)

// sender packs lines into packets. Each sending has a connection of its own, made when it is needed, so that a server
// that has started again is not written to over the connection of the one before.
type sender struct {
	cfg    Config
	conn   net.Conn // nil: none
	packet []byte   // complete lines
	onSent []func() // to be called when the packet is sent
}

// Send implements the Sender of the client: it adds a line.
func (s *sender) Send(line []byte) (int, error) {
	if len(s.packet) > 0 && len(s.packet)+len(line)+1 > packetSize {
		if err := s.flush(); err != nil {
			return 0, err
		}
	}
	s.packet = append(append(s.packet, line...), '\n')
	return len(line), nil
}

// then has f called once the last line is sent.
func (s *sender) then(f func()) { s.onSent = append(s.onSent, f) }

// flush sends the packet, which is dropped if it cannot be sent.
func (s *sender) flush() error {
	packet, sent := s.packet, s.onSent
	s.packet, s.onSent = s.packet[:0], nil
	if len(packet) == 0 {
		return nil
	}
	if s.cfg.Network == "udp" {
		packet = packet[:len(packet)-1]
	}
	if err := s.write(packet); err != nil {
		return err
	}
	for _, f := range sent {
		f()
	}
	return nil
}

func (s *sender) write(packet []byte) (err error) {
	if s.conn == nil {
		if s.conn, err = net.DialTimeout(s.cfg.Network, s.cfg.Address, dialTimeout); err != nil {
			s.conn = nil
			return err
		}
	}
	if err = s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err == nil {
		_, err = s.conn.Write(packet)
	}
	return err
}

// Close implements the Sender of the client, which is never closed.
func (s *sender) Close() error { return nil }

// drop ends a sending, and drops what is not sent.
func (s *sender) drop() {
	s.packet, s.onSent = s.packet[:0], nil
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}
