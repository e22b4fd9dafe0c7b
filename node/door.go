package node

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/node/httpapi"
)

// server is who serves a door: net/http's, or that of the Redis protocol.
type server interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
	Close() error
}

// door is a listener with what it serves.
type door struct {
	listener net.Listener
	server   server

	mu      sync.Mutex
	open    int           // connections
	leaving chan struct{} // closed when the door is about to close
	empty   chan struct{} // closed when it is, and no connection is open any more
}

// openedDoor returns a door that nobody serves yet.
func openedDoor(l net.Listener) *door {
	return &door{listener: l, leaving: make(chan struct{}), empty: make(chan struct{})}
}

func newDoor(l net.Listener, h http.Handler, log *slog.Logger) *door {
	d := openedDoor(l)
	s := httpapi.Server(d.untilLeaving(h), log)
	s.ConnState = d.track
	d.server = s
	return d
}

// untilLeaving has each answer end its connection once the door is about to close, so that the client makes the next one elsewhere.
func (d *door) untilLeaving(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-d.leaving:
			w.Header().Set("Connection", "close")
		default:
		}
		h.ServeHTTP(w, r)
	})
}

// track counts the connections. The server calls it at the begin and the end of every request as well, when there is nothing to do.
func (d *door) track(_ net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		d.count(1)
	case http.StateHijacked, http.StateClosed:
		d.count(-1)
	}
}

// count notes that connections were opened, or have ended.
func (d *door) count(change int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open += change
	d.checkEmpty()
}

// checkEmpty tells whoever waits that no connection is left. The lock is held.
func (d *door) checkEmpty() {
	select {
	case <-d.leaving:
	default:
		return
	}
	select {
	case <-d.empty:
	default:
		if d.open == 0 {
			close(d.empty)
		}
	}
}

// linger goes on serving for a while, so that a request which a client has just sent on an idle connection is answered: closing such a
// connection at once would lose it. It returns early when there is no connection left.
func (d *door) linger(most time.Duration) {
	d.mu.Lock()
	close(d.leaving)
	d.checkEmpty()
	d.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-d.empty:
	case <-timer.C:
	}
}

// serving is a door that is open.
type serving struct {
	*door
	done sync.WaitGroup
}

func (n *Node) serve(d *door, name string, fail func(string, error)) *serving {
	s := &serving{door: d}
	if d != nil {
		s.done.Go(func() { fail(name, d.server.Serve(d.listener)) })
	}
	return s
}

// stop lets the requests in flight end, for at most the time given, after lingering.
func (s *serving) stop(lingering, drain time.Duration) {
	if s.door == nil {
		return
	}
	s.linger(lingering)
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
	s.done.Wait()
}
