package respapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/node/limits"
)

// Server serves clients. New makes it; its methods may be called from anywhere.
type Server struct {
	limiter Limiter
	opt     Options
	secret  secret
	limits  *limits.Keeper[shape]
	totals  totals
	ids     atomic.Int64 // of the last connection
	long    atomic.Int64 // bytes that sessions hold for long commands, see session.makeRoom

	mostLong int64 // bytes that they may hold together

	mu       sync.Mutex
	listener net.Listener
	sessions map[*session]struct{}
	running  sync.WaitGroup
	draining atomic.Bool // set with the lock held; no connection begins then
}

// Stats are totals since the server was made, but for Connections and Limits, which are of now.
type Stats struct {
	Connections int    // open now
	Limits      int    // kept now
	Malformed   uint64 // connections that ended because what came was no command
	Slow        uint64 // connections that ended because a command or its reply took too long

	Allowed, Denied uint64 // answers of CL.THROTTLE
	Failed          uint64 // commands that were answered with an error
	Other           uint64 // commands besides, and peeks
}

type totals struct {
	malformed, slow atomic.Uint64
	outcomes        [outcomes]atomic.Uint64
}

// New returns a server that asks l.
func New(l Limiter, opt Options) *Server {
	opt.IdleTimeout = cmp.Or(opt.IdleTimeout, idleFor)
	opt.Logger = cmp.Or(opt.Logger, slog.Default())
	return &Server{limiter: l, opt: opt, secret: newSecret(opt.Password), limits: newLimits(opt.Learn), mostLong: maxLong, sessions: make(map[*session]struct{})}
}

// Serve accepts connections until Shutdown or Close, and returns nil then. It may be called once.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	s.listener = l
	if s.draining.Load() { // it was ended before it began
		_ = l.Close()
	}
	s.mu.Unlock()
	pause := acceptPause{}
	for {
		conn, err := l.Accept()
		switch {
		case s.draining.Load() || errors.Is(err, net.ErrClosed):
			if err == nil {
				_ = conn.Close()
			}
			_ = l.Close()
			return nil
		case err != nil: // as when the process has no file descriptors left: clients that leave give theirs back
			s.opt.Logger.Warn("a client of the Redis protocol could not connect", "error", err)
			pause.wait()
		default:
			pause = acceptPause{}
			s.admit(conn)
		}
	}
}

// acceptPause doubles with every attempt that fails, from 5 ms to a second.
type acceptPause struct{ last time.Duration }

func (p *acceptPause) wait() {
	p.last = min(max(2*p.last, 5*time.Millisecond), time.Second)
	time.Sleep(p.last)
}

// admit serves a connection, unless it comes too late.
func (s *Server) admit(conn net.Conn) {
	c := newSession(s, conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() {
		_ = conn.Close()
		return
	}
	s.sessions[c] = struct{}{}
	s.running.Go(func() {
		defer s.forget(c)
		c.serve()
	})
}

func (s *Server) forget(c *session) {
	_ = c.conn.Close()
	c.giveBack()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, c)
}

// Shutdown accepts no more connections, lets those that are open end once all that their clients have sent is answered, and waits for
// them, but no longer than ctx: its error says that there are some left, which Close ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.drain(func(c *session) { _ = c.conn.SetReadDeadline(time.Now()) }) // wakes it, see session.wait
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends everything at once.
func (s *Server) Close() error {
	s.drain(func(c *session) { _ = c.conn.Close() })
	s.running.Wait()
	return nil
}

func (s *Server) drain(end func(*session)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining.Store(true)
	if s.listener != nil {
		_ = s.listener.Close()
	}
	for c := range s.sessions {
		end(c)
	}
}

// leaving reports whether the door is about to close.
func (s *Server) leaving() bool {
	select {
	case <-s.opt.Leaving: // a nil one is never closed
		return true
	default:
		return s.draining.Load()
	}
}

// Stats returns the totals.
func (s *Server) Stats() Stats {
	t := &s.totals
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{
		Connections: len(s.sessions), Limits: s.limits.Len(),
		Malformed: t.malformed.Load(), Slow: t.slow.Load(),
		Allowed: t.outcomes[allowed].Load(), Denied: t.outcomes[denied].Load(),
		Failed: t.outcomes[failed].Load(), Other: t.outcomes[other].Load(),
	}
}
