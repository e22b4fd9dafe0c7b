package regions

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/edgelimit/edgelimit/node/text"
)

// RedisConfig says which Redis a region shares and how to reach it. DefaultRedisConfig and ParseRedisURL are good
// starts; the zero value is invalid. It shows its passwords nowhere but in the fields themselves.
type RedisConfig struct {
	// Addrs are host:port: of the server; with MasterName of the Sentinels; with Cluster of some of its nodes.
	Addrs []string
	// MasterName is what the Sentinels call the master. Empty: no Sentinel.
	MasterName string
	// Cluster says that it is a Redis Cluster.
	Cluster bool
	// DB is the number of the database, 0 in a cluster.
	DB int
	// Username and Password are an ACL user's; without a user name the default user's. DESIGN.md has the rights that
	// are needed.
	Username string
	Password string `json:"-"`
	// ReadPassword, unless nil, returns the password for each connection that is made, in place of Password.
	ReadPassword func() (string, error) `json:"-"`
	// SentinelUsername and SentinelPassword are for the Sentinels themselves.
	SentinelUsername string
	SentinelPassword string `json:"-"`
	// TLS, unless nil, is spoken with every server, the Sentinels too.
	TLS *tls.Config `json:"-"`
	// DialTimeout bounds the making of a connection. Default 250 ms.
	DialTimeout time.Duration
	// CallTimeout bounds the writing of a call and the reading of its answer, each. Nothing that timed out is sent
	// again by itself. Default 100 ms.
	CallTimeout time.Duration
	// PoolTimeout is how long to wait for a connection when all are in use. Default 50 ms.
	PoolTimeout time.Duration
	// MaxReply bounds a reply of the server in bytes, of which each element of an array counts 64. A connection with a
	// larger one is closed before memory is allocated for it. 0: 64 MiB.
	MaxReply int
}

// DefaultRedisConfig returns the defaults for a single server without a password.
func DefaultRedisConfig(addrs ...string) RedisConfig {
	return RedisConfig{
		Addrs: addrs, DialTimeout: 250 * time.Millisecond, CallTimeout: 100 * time.Millisecond,
		PoolTimeout: 50 * time.Millisecond,
	}
}

// Validate reports all that is wrong with the configuration, or nil. It reads no file and dials nobody.
func (c RedisConfig) Validate() error {
	var problems []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			problems = append(problems, fmt.Errorf("redis: "+format, args...))
		}
	}
	wrong(len(c.Addrs) == 0, "no address is given, want host:port")
	for _, addr := range c.Addrs {
		wrong(!validAddr(addr), "the address %q is not host:port", addr)
	}
	single := c.MasterName == "" && !c.Cluster
	wrong(single && len(c.Addrs) > 1, "%d addresses, but neither a master's name (Sentinel) nor a cluster",
		len(c.Addrs))
	wrong(c.MasterName != "" && c.Cluster, "both a master's name (Sentinel) and a cluster, want one of them")
	wrong(c.DB < 0, "the database is %d, it must not be negative", c.DB)
	wrong(c.Cluster && c.DB > 0, "the database is %d, but a cluster has database 0 only", c.DB)
	wrong(c.Username != "" && c.Password == "", "the user %q has no password", c.Username)
	wrong(c.SentinelUsername != "" && c.SentinelPassword == "", "the Sentinels' user %q has no password",
		c.SentinelUsername)
	wrong(c.MasterName == "" && c.SentinelPassword != "", "a password for Sentinels, but no master's name")
	wrong(c.DialTimeout <= 0, "the time to dial is %s, it has to be positive", text.Duration(c.DialTimeout))
	wrong(c.CallTimeout <= 0, "the time for a call is %s, it has to be positive", text.Duration(c.CallTimeout))
	wrong(c.PoolTimeout <= 0, "the time to wait for a connection is %s, it has to be positive",
		text.Duration(c.PoolTimeout))
	return errors.Join(problems...)
}

func validAddr(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	n, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && host != "" && bad == nil && n > 0
}

// String is the configuration as the URL that ParseRedisURL takes, with *** for passwords.
func (c RedisConfig) String() string {
	scheme, user, path := "redis", c.Username, ""
	if c.TLS != nil {
		scheme += "s"
	}
	switch {
	case c.MasterName != "":
		scheme += "+sentinel"
		path = "/" + c.MasterName
	case c.Cluster:
		scheme += "+cluster"
	}
	if c.DB > 0 {
		path += "/" + strconv.Itoa(c.DB)
	}
	if c.Password != "" {
		user += ":***"
	}
	if user != "" {
		user += "@"
	}
	return scheme + "://" + user + strings.Join(c.Addrs, ",") + path
}

// GoString keeps passwords out of %#v.
func (c RedisConfig) GoString() string { return "regions.RedisConfig(" + c.String() + ")" }

// LogValue implements slog.LogValuer.
func (c RedisConfig) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Client makes a client of the kind that is configured, with up to so many connections for each server. It dials nobody
// yet, repeats nothing that failed, and follows redirects.
func (c RedisConfig) Client(connections int) (redis.UniversalClient, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	options := &redis.UniversalOptions{
		Addrs:            c.Addrs,
		MasterName:       c.MasterName,
		DB:               c.DB,
		Username:         c.Username,
		Password:         c.Password,
		SentinelUsername: c.SentinelUsername,
		SentinelPassword: c.SentinelPassword,
		TLSConfig:        c.TLS,

		DialTimeout:           c.DialTimeout,
		ReadTimeout:           c.CallTimeout,
		WriteTimeout:          c.CallTimeout,
		PoolTimeout:           c.PoolTimeout,
		PoolSize:              connections,
		PipelinePoolSize:      -1,
		ContextTimeoutEnabled: true,

		// Callers repeat calls that failed. The client only follows redirects: one for a slot that moved, and
		// one for a slot that is moving. 0 would mean its defaults.
		MaxRetries:    -1,
		DialerRetries: 1,
		MaxRedirects:  2,

		// These would take further rights in the ACL, and a round trip.
		Protocol:                 2,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	options.Dialer = boundReplies(cmp.Or(c.MaxReply, defaultMaxReply), options)
	if c.ReadPassword != nil {
		options.CredentialsProviderContext = func(context.Context) (string, string, error) {
			password, err := c.ReadPassword()
			return c.Username, password, err
		}
	}
	if c.Cluster {
		cluster := options.Cluster()
		cluster.DisableRoutingPolicies = true // they ask the server for its COMMANDs
		return redis.NewClusterClient(cluster), nil
	}
	return redis.NewUniversalClient(options), nil
}

// ParseRedisURL returns the default configuration for the Redis that a URL names:
//
//	redis://[user:password@]host[:6379][/db]
//	redis+sentinel://[user:password@]host[:26379][,host...]/master[/db]
//	redis+cluster://[user:password@]host[:6379][,host...]
//
// With rediss instead of redis TLS is spoken. Characters that have a meaning in a URL are escaped (%40 for @). A user
// may come without a password, which then has to be set before OpenRedis. Errors name no password.
func ParseRedisURL(raw string) (RedisConfig, error) {
	c, err := parseRedisURL(raw)
	if err != nil {
		return RedisConfig{}, fmt.Errorf("redis URL: %w", err)
	}
	complete := c
	complete.Password = cmp.Or(c.Password, "to come")
	return c, complete.Validate()
}

func parseRedisURL(raw string) (RedisConfig, error) {
	c := DefaultRedisConfig()
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return c, errors.New("it has no scheme, want redis://host:port")
	}
	kind, known := strings.CutPrefix(scheme, "redis")
	if after, secure := strings.CutPrefix(kind, "s"); secure {
		kind, c.TLS = after, &tls.Config{MinVersion: tls.VersionTLS12}
	}
	port := "6379"
	switch {
	case known && kind == "":
	case known && kind == "+cluster":
		c.Cluster = true
	case known && kind == "+sentinel":
		port = "26379"
	default:
		return c, fmt.Errorf("unknown scheme %q, want redis or rediss, with +sentinel or +cluster if it is that",
			scheme)
	}
	if strings.ContainsAny(rest, "?#") {
		return c, errors.New("it takes no ? and no #; escape them in a password as %3F and %23")
	}
	authority, path, _ := strings.Cut(rest, "/")
	if strings.Contains(path, "@") { // part of a password is on both sides: no error may quote either
		return c, errors.New("there is a / before the @; escape it in a password as %2F")
	}
	at := strings.LastIndexByte(authority, '@')
	if at >= 0 {
		user, password, _ := strings.Cut(authority[:at], ":")
		var err1, err2 error
		c.Username, err1 = url.PathUnescape(user)
		c.Password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil { // they would quote what they could not read
			return c, errors.New("the user or the password is not escaped well: % stands before two hexadecimal digits")
		}
	}
	for host := range strings.SplitSeq(authority[at+1:], ",") {
		addr := withPort(host, port)
		if at < 0 && !validAddr(addr) { // where the @ was forgotten, a password stands in the host's place
			return c, errors.New("its host is not host:port; if it begins with a user and a password, an @ comes " +
				"after them")
		}
		c.Addrs = append(c.Addrs, addr)
	}
	if kind == "+sentinel" {
		var err error
		name, db, _ := strings.Cut(path, "/")
		if c.MasterName, err = url.PathUnescape(name); err != nil || name == "" {
			return c, errors.New("it names no master, want redis+sentinel://host:port/master")
		}
		path = db
	}
	if path != "" {
		var err error
		if c.DB, err = strconv.Atoi(path); err != nil {
			return c, errors.New("the database is not a number") // not quoted: it may be part of a password
		}
	}
	return c, nil
}

// withPort adds the port where a host comes without.
func withPort(host, port string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}
