package respapi

import (
	"log/slog"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Limiter decides; a node is one. It is called concurrently.
type Limiter interface {
	// TakeLimit decides on a request of an identity under an ad-hoc limit, and charges it if it is admitted. A cost of
	// 0 peeks. The identity is only valid during the call.
	TakeLimit(l *counters.Limit, identity []byte, cost uint64) counters.Decision
}

// Options are the server's settings. The zero value is ready to use.
type Options struct {
	// Password is the one of the user "default" in AUTH or HELLO. Empty: clients need none.
	Password string
	// MaxConnections is the listener's limit, as INFO reports it. The server does not enforce it.
	MaxConnections int
	// IdleTimeout is the longest silence of a client between two commands; it may end a quarter early. 0 means 5
	// minutes.
	IdleTimeout time.Duration
	// Leaving, once closed, has each connection end after the next commands that are answered. Nil: never.
	Leaving <-chan struct{}
	// Learn, unless nil, is called with all limits that the server keeps, whenever they change and before they are used
	// first; the slice is the callee's. Calls never overlap.
	Learn func([]*counters.Limit)
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
