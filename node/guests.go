package node

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

const (
	// mostProbes is how many connections the door for health and metrics has at a time.
	mostProbes = 128
	// mostPartings is how many clients that there was no room for are given the time to read so, at each door.
	mostPartings = 64
	// spareFiles are the file descriptors that are not for clients of the doors: those of probes and partings, of gossip, the store, rules.
	spareFiles = 512
	// partFor is how long a client that is refused may take to read why and to hang up.
	partFor = 500 * time.Millisecond
	// complainEvery is how often the log says that a door is full.
	complainEvery = time.Minute
)

// roomFor is how many connections each of so many doors may have at a time, of the number that is wanted, in a process that may have so many
// file descriptors open. At least it is one.
func roomFor(files, doors, wanted int) int {
	return max(1, min(wanted, max(files-spareFiles, files/4)/max(1, doors)))
}

// room is how many connections a door may have at a time.
func (n *Node) room(door string) int {
	if door == "health" {
		return mostProbes
	}
	doors := 0
	for _, d := range n.cfg.doors() {
		if d.addr != "" && d.name != "health" {
			doors++
		}
	}
	most := roomFor(mostFiles(), doors, n.cfg.MaxConnections)
	if most < n.cfg.MaxConnections {
		n.log.Info("a door has fewer connections than max_connections, by the file descriptors that the process may have: see ulimit -n",
			"door", door, "connections", most, "max_connections", n.cfg.MaxConnections)
	}
	return most
}

// Connections is how many clients are connected to the node's doors now.
func (n *Node) Connections() (open int) {
	for _, d := range n.doors() {
		open += d.guests().open
	}
	return open
}

// guests are the connections of a door: those that are open, and totals since it was opened.
type guests struct {
	open              int
	accepted, refused uint64
}

func (d *door) guests() guests {
	d.mu.Lock()
	defer d.mu.Unlock()
	return guests{d.open, d.accepted, d.refused}
}

// entrance is a door's listener as its server sees it: clients beyond those that the door has room for are not among those that come.
type entrance struct {
	net.Listener
	door *door
}

// Accept implements net.Listener.
func (e *entrance) Accept() (net.Conn, error) {
	for {
		conn, err := e.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if e.door.enter() {
			return &guest{Conn: conn, door: e.door}, nil
		}
		e.door.turnAway(conn)
	}
}

// enter counts a client, and reports whether there is room for it.
func (d *door) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open >= d.most {
		d.refused++
		return false
	}
	d.open++
	d.accepted++
	return true
}

// turnAway says to a client in the protocol's words that there is no room, and hangs up. Where nothing is to be said it does so at once.
func (d *door) turnAway(conn net.Conn) {
	d.complain()
	_ = conn.SetDeadline(time.Now().Add(partFor))
	switch {
	case d.refusal == "":
		_ = conn.Close()
	case d.parting.Add(1) > mostPartings: // the words may not be read
		d.parting.Add(-1)
		_, _ = io.WriteString(conn, d.refusal) // there is room for it in a new connection: it does not block
		_ = conn.Close()
	default:
		d.partings.Go(func() {
			defer d.parting.Add(-1)
			seeOff(conn, d.refusal)
		})
	}
}

// seeOff says the words once the client has said something, as an answer that comes before its question is none to many clients. Then it
// lets the client hang up: to close a connection on which there is something still to be read would take the words from it again.
func seeOff(conn net.Conn, words string) {
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 512)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	_ = conn.SetDeadline(time.Now().Add(partFor))
	if _, err := io.WriteString(conn, words); err != nil {
		return
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, 64<<10))
	}
}

// complain says in the log that the door is full, now and then. Only the server's own goroutine calls it.
func (d *door) complain() {
	if now := time.Now(); d.complained.IsZero() || now.Sub(d.complained) >= complainEvery {
		d.complained = now
		d.log.Warn("a door is full, and refuses clients", "door", d.name, "connections", d.most)
	}
}

// guest is the connection of a client that was let in.
type guest struct {
	net.Conn
	door *door
	gone atomic.Bool
}

// Close implements net.Conn.
func (g *guest) Close() error {
	err := g.Conn.Close()
	if !g.gone.Swap(true) {
		g.door.leave()
	}
	return err
}

// CloseWrite says that nothing more is sent. Servers use it so that their last words are read.
func (g *guest) CloseWrite() error {
	if half, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

// leave notes that a client's connection has ended.
func (d *door) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
	d.checkEmpty()
}
