package respapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Limiter decides; it is all that the door needs of a node. It is called concurrently.
type Limiter interface {
	// TakeLimit decides on a request of an identity under a limit that no rule has, and charges it if it is admitted. A cost of 0
	// peeks. The identity is only valid during the call.
	TakeLimit(l *counters.Limit, identity []byte, cost uint64) counters.Decision
}

// Options are the door's settings. The zero value is ready to use.
type Options struct {
	// Password is what clients have to say in AUTH or HELLO before anything else, as the user "default". Empty: nothing.
	Password string
	// MaxConnections is how many clients the listener lets in at a time: INFO says so. Nothing else depends on it.
	MaxConnections int
	// IdleTimeout is how long a client may be silent between two commands; it may end a quarter early. 0 means 5 minutes.
	IdleTimeout time.Duration
	// Leaving, once it is closed, has each connection end after the next commands that are answered. Nil: never.
	Leaving <-chan struct{}
	// Learn is called with all limits that the door keeps, whenever they change and before they are asked for the first time; the slice
	// is the callee's. It is never called twice at a time. Nil: nobody wants to know.
	Learn func([]*counters.Limit)
	// Logger receives what clients are not told. Nil means slog.Default().
	Logger *slog.Logger
}

// Full is what a listener says to a client that it has no room for, before it closes the connection.
const Full = "-ERR max number of clients reached\r\n"

// How long a client may take.
const (
	idleFor   = 5 * time.Minute       // between two commands, unless Options say otherwise
	slowFor   = 5 * time.Second       // from the first byte of a command to its last
	writeFor  = 5 * time.Second       // to take replies off
	farewell  = 50 * time.Millisecond // to end the connection, once it is told to
	lastWords = 5 * time.Millisecond  // for the rest of a pipeline, once the door is about to close
)

// secret is a password that is compared in constant time.
type secret struct {
	hash [sha256.Size]byte
	set  bool
}

func newSecret(password string) secret {
	return secret{hash: sha256.Sum256([]byte(password)), set: password != ""}
}

func (s *secret) is(password []byte) bool {
	h := sha256.Sum256(password)
	return subtle.ConstantTimeCompare(h[:], s.hash[:]) == 1
}
