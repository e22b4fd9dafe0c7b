package node

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/node/httpapi"
)

// server is who serves a door: net/http's, gRPC's, or that of the Redis protocol.
type server interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
	Close() error
}

// door is a listener with what it serves.
type door struct {
	name     string
	listener net.Listener // lets in what there is room for, see entrance
	server   server
	log      *slog.Logger
	most     int    // connections at a time
	refusal  string // what is said to clients beyond that, in the protocol's words; empty: nothing

	partings   sync.WaitGroup // of clients that were refused
	parting    atomic.Int32   // how many these are
	complained time.Time

	mu                sync.Mutex
	open              int // connections
	accepted, refused uint64

	leaving chan struct{} // closed when the door is about to close
	empty   chan struct{} // closed when it is, and no connection is open any more
}

// openedDoor returns a door for so many connections at a time, that nobody serves yet.
func openedDoor(name string, l net.Listener, most int, log *slog.Logger) *door {
	d := &door{name: name, log: log, most: most, leaving: make(chan struct{}), empty: make(chan struct{})}
	d.listener = &entrance{l, d}
	return d
}

// speakHTTP has the door answer HTTP with h. Idle connections end after so long; 0: when httpapi.Server has them end.
func (d *door) speakHTTP(h http.Handler, idle time.Duration) {
	s := httpapi.Server(d.untilLeaving(h), d.log)
	s.IdleTimeout = cmp.Or(idle, s.IdleTimeout)
	d.server, d.refusal = s, httpapi.Full()
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

func (n *Node) serve(d *door, fail func(string, error)) *serving {
	s := &serving{door: d}
	if d != nil {
		s.done.Go(func() { fail(d.name, d.server.Serve(d.listener)) })
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
	s.partings.Wait()
}
