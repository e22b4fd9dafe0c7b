package respapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/node/limits"
)

const (
	wrongPass = "WRONGPASS invalid username-password pair or user is disabled."
	user      = "default" // the only one

	noPassword = "ERR AUTH <password> called without any password configured for the default user. " +
		"Are you sure your configuration is correct?"
	helloNoAuth = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> " +
		"AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at " +
		"the same time"
)

// Password guessing is limited: a connection ends with its tenth failure, and a source that had maxFailures is blocked
// until it gets some back, one each failureRefill. A right password is refused then as well, or its reply would tell it
// from a guess that is not checked. Clients that have logged in before are not concerned.
const (
	maxFailuresOfConnection = 10
	maxFailures             = 30
	failureRefill           = 2 * time.Second
	maxSources              = 4096 // beyond them all other sources count as one
)

// loginLimiter counts failed logins by source. Its zero value is ready to use; it is safe for concurrent use.
type loginLimiter struct {
	mu       sync.Mutex
	sources  map[netip.Addr]time.Time // when a source has all its attempts back
	failures atomic.Uint64
	logged   uint64 // of them
	warning  limits.OncePerMinute
}

// blocked returns for how long a source may not log in.
func (l *loginLimiter) blocked(source netip.Addr, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.sources[l.slot(source)].Add(-(maxFailures-1)*failureRefill).Sub(now))
}

// failed records a failed login, which takes an attempt from a source unless it is blocked. It logs once a minute.
func (l *loginLimiter) failed(source netip.Addr, blocked bool, now time.Time, log *slog.Logger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	failures := l.failures.Add(1)
	if l.warning.Due(now) {
		log.Warn("wrong passwords in the Redis protocol", "source", source.String(), "failures", failures-l.logged,
			"blocked", blocked)
		l.logged = failures
	}
	if blocked {
		return
	}
	if l.sources == nil {
		l.sources = make(map[netip.Addr]time.Time)
	}
	if len(l.sources) >= maxSources {
		maps.DeleteFunc(l.sources, func(_ netip.Addr, full time.Time) bool { return !full.After(now) })
	}
	source = l.slot(source)
	full := l.sources[source]
	if full.Before(now) {
		full = now
	}
	l.sources[source] = full.Add(failureRefill)
}

// slot returns the source itself, or the one that stands for all beyond maxSources. The lock is held.
func (l *loginLimiter) slot(source netip.Addr) netip.Addr {
	if _, ok := l.sources[source]; !ok && len(l.sources) >= maxSources {
		return netip.Addr{}
	}
	return source
}

// SetPassword replaces the password of a server that has one. Clients that are logged in stay so. It is safe for
// concurrent use.
func (s *Server) SetPassword(password string) {
	hash := sha256.Sum256([]byte(password))
	s.password.Store(&hash)
}

// auth is AUTH [user] password.
func (c *session) auth(args [][]byte) outcome {
	name := []byte(user)
	switch {
	case len(args) == 3:
		name = args[1]
	case c.server.opt.Password == "":
		return c.fail(noPassword)
	}
	if refusal := c.login(name, args[len(args)-1]); refusal != "" {
		return c.fail(refusal)
	}
	return c.ok()
}

// login authenticates the client, or returns the error. Without a password set any one is right.
func (c *session) login(name, password []byte) (refusal string) {
	s := c.server
	given, want := sha256.Sum256(password), s.password.Load()
	right := s.opt.Password == "" || subtle.ConstantTimeCompare(given[:], want[:]) == 1
	wait := s.logins.blocked(c.source, c.now)
	if right && string(name) == user && wait == 0 {
		c.authenticated, c.failedLogins = true, 0
		return ""
	}
	if s.opt.Password == "" {
		return wrongPass
	}
	s.logins.failed(c.source, wait > 0, c.now, s.opt.Logger)
	if c.failedLogins++; c.failedLogins >= maxFailuresOfConnection {
		c.quitting = true
	}
	if wait > 0 {
		return fmt.Sprintf("ERR too many wrong passwords from this address, try again in %d seconds", seconds(wait))
	}
	return wrongPass
}

// hello is HELLO [version [AUTH user password] [SETNAME name]]. It takes effect as a whole, or not at all.
func (c *session) hello(args [][]byte) outcome {
	version := int64(c.version)
	if len(args) > 1 {
		var ok bool
		if version, ok = parseInt(args[1]); !ok {
			return c.fail("ERR Protocol version is not an integer or out of range")
		}
		if version != 2 && version != 3 {
			return c.fail("NOPROTO unsupported protocol version")
		}
	}
	var login, name [][]byte
	for rest := args[min(len(args), 2):]; len(rest) > 0; {
		switch option := strings.ToLower(string(rest[0])); {
		case option == "auth" && len(rest) >= 3:
			login, rest = rest[1:3], rest[3:]
		case option == "setname" && len(rest) >= 2:
			name, rest = rest[1:2], rest[2:]
		default:
			return c.failf("ERR Syntax error in HELLO option '%s'", rest[0])
		}
	}
	if name != nil && (!isPlain(name[0]) || len(name[0]) > maxClientName) {
		return c.setName(name[0]) // it fails, with the reason
	}
	if login != nil {
		if refusal := c.login(login[0], login[1]); refusal != "" {
			return c.fail(refusal)
		}
	}
	if !c.authenticated {
		return c.fail(helloNoAuth)
	}
	if name != nil {
		c.name = string(name[0])
	}
	c.version = int(version)
	c.writeHello()
	return other
}

// writeHello replies to HELLO as a Redis does.
func (c *session) writeHello() {
	c.pairs(7)
	c.bulks("server", "edgelimit", "version", redisVersion, "proto")
	c.integer(int64(c.version))
	c.bulks("id")
	c.integer(c.id)
	c.bulks("mode", "standalone", "role", "master", "modules")
	c.array(0)
}
