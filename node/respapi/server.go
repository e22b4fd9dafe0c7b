package respapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/limits"
)

// Limiter decides; a node is one. It is called concurrently.
type Limiter interface {
	// TakeDebt charges an identity if it then owes no more than the capacity. A charge of 0 peeks. ResetAfter of the
	// decision is what the identity owes then. The charge is 0 or more, the capacity 1 to counters.MaxDebt. The
	// identity is only valid during the call.
	TakeDebt(identity []byte, charge, capacity time.Duration) counters.Decision
	// GiveBack takes an amount off what an identity owes, or all if that is less, unless more than the capacity is left
	// then. It returns what the identity owed, and whether anything changed.
	GiveBack(identity []byte, amount, capacity time.Duration) (owed time.Duration, ok bool)
}

// Options are the server's settings. The zero value is ready to use.
type Options struct {
	// Password is the one of the user "default" in AUTH or HELLO, until Server.SetPassword. Empty: clients need none.
	Password string
	// MaxConnections is the listener's limit, as INFO reports it. The server does not enforce it.
	MaxConnections int
	// IdleTimeout is the longest silence of a client between two commands; it may end a quarter early. 0 means 5
	// minutes.
	IdleTimeout time.Duration
	// Leaving, once closed, has each connection end after the next commands that are answered. Nil: never.
	Leaving <-chan struct{}
	// RedisRate has the scripts of the Go library redis_rate answered. Without, clients get no script run.
	RedisRate bool
	// Budgets has the budget for long commands. Nil: it is neither exported nor logged.
	Budgets *limits.Budgets
	// Logger receives errors that clients are not shown. Nil means slog.Default().
	Logger *slog.Logger
}

// Full is the error that a listener at its connection limit sends before it closes the connection.
const Full = "-ERR max number of clients reached\r\n"

// Timeouts of clients.
const (
	defaultIdleTimeout = 5 * time.Minute
	commandTimeout     = 5 * time.Second       // from the first byte of a command to its last
	writeTimeout       = 5 * time.Second       // to take replies
	closeGrace         = 50 * time.Millisecond // to close the connection after the last reply
	drainGrace         = 5 * time.Millisecond  // for the rest of a pipeline, once the server is leaving
)

// Server serves clients. New makes it; its methods are safe for concurrent use.
type Server struct {
	limiter  Limiter
	opt      Options
	password atomic.Pointer[[sha256.Size]byte] // its hash
	logins   loginLimiter
	totals   totals
	lastID   atomic.Int64   // of a connection
	long     *limits.Budget // bytes that sessions hold for long commands, see session.makeRoom

	mu       sync.Mutex
	listener net.Listener
	sessions map[*session]struct{}
	running  sync.WaitGroup
	draining atomic.Bool // set with the lock held; then no connection starts
}

// Stats are totals since the server was made, but for Connections.
type Stats struct {
	Connections int    // open now
	Malformed   uint64 // connections closed after a protocol error
	Slow        uint64 // connections closed because a command or its reply took too long
	WrongAuth   uint64 // failed logins
	Panics      uint64 // connections closed because a command panicked

	Allowed, Denied uint64 // decisions: replies to CL.THROTTLE, THROTTLE and redis_rate's scripts
	Failed          uint64 // commands with an error
	Other           uint64 // other commands, and peeks
}

type totals struct {
	malformed, slow, panics atomic.Uint64
	outcomes                [outcomes]atomic.Uint64
}

// New returns a server over l.
func New(l Limiter, opt Options) *Server {
	opt.IdleTimeout = cmp.Or(opt.IdleTimeout, defaultIdleTimeout)
	opt.Logger = cmp.Or(opt.Logger, slog.Default())
	s := &Server{limiter: l, opt: opt, long: opt.Budgets.New("resp", "commands", maxLong),
		sessions: make(map[*session]struct{})}
	s.SetPassword(opt.Password)
	return s
}

// Serve accepts connections until Shutdown or Close, and returns nil then. It may be called once.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	s.listener = l
	if s.draining.Load() { // closed before it served
		_ = l.Close()
	}
	s.mu.Unlock()
	pause := time.Duration(0)
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.admit(conn)
		case s.draining.Load() || errors.Is(err, net.ErrClosed):
			_ = l.Close()
			return nil
		default: // such as no file descriptors left, until clients leave
			s.opt.Logger.Warn("a client of the Redis protocol could not connect", "error", err)
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			time.Sleep(pause)
		}
	}
}

// admit serves a connection, unless the server drains.
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
		defer s.remove(c)
		c.serve()
	})
}

func (s *Server) remove(c *session) {
	_ = c.conn.Close()
	c.release()
	c.discardQueue()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, c)
}

// Shutdown accepts no more connections, lets open ones end once all that their clients have sent is answered, and waits
// for them, but no longer than ctx: its error says that some are left, which Close ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.drain(func(c *session) { _ = c.conn.SetReadDeadline(time.Now()) }) // wakes session.fill
	return answer.Within(ctx, s.running.Wait)
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

// leaving reports whether the server is about to close.
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
		Connections: len(s.sessions),
		Malformed:   t.malformed.Load(), Slow: t.slow.Load(), Panics: t.panics.Load(),
		WrongAuth: s.logins.failures.Load(), Allowed: t.outcomes[allowed].Load(), Denied: t.outcomes[denied].Load(),
		Failed: t.outcomes[failed].Load(), Other: t.outcomes[other].Load(),
	}
}
