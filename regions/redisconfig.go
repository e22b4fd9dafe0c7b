package regions

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
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
	// SentinelUsername and SentinelPassword are for the Sentinels themselves.
	SentinelUsername string
	SentinelPassword string `json:"-"`
	// TLS, unless nil, is spoken with every server, the Sentinels too.
	TLS *RedisTLS
	// DialTimeout bounds the making of a connection. Default 250 ms.
	DialTimeout time.Duration
	// CallTimeout bounds the writing of a call and the reading of its answer, each. Nothing that timed out is sent
	// again by itself. Default 100 ms.
	CallTimeout time.Duration
	// PoolTimeout is how long to wait for a connection when all are in use. Default 50 ms.
	PoolTimeout time.Duration
}

// RedisTLS says how to trust the server and how to be trusted by it. The zero value trusts the system's authorities.
type RedisTLS struct {
	CAFile     string // PEM of the authorities to trust instead of the system's
	CertFile   string // PEM of the client's certificate, with KeyFile; empty: none
	KeyFile    string
	ServerName string // name in the server's certificate; empty: the host that was dialled
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
	wrong(c.TLS != nil && (c.TLS.CertFile == "") != (c.TLS.KeyFile == ""),
		"a client certificate needs both its file and its key's")
	wrong(c.DialTimeout <= 0, "the time to dial is %v, it has to be positive", c.DialTimeout)
	wrong(c.CallTimeout <= 0, "the time for a call is %v, it has to be positive", c.CallTimeout)
	wrong(c.PoolTimeout <= 0, "the time to wait for a connection is %v, it has to be positive", c.PoolTimeout)
	return errors.Join(problems...)
}

func validAddr(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	n, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && host != "" && bad == nil && n > 0
}

// String is the configuration as the URL that ParseRedisURL takes, with *** for passwords.
func (c RedisConfig) String() string {
	scheme := "redis"
	if c.TLS != nil {
		scheme = "rediss"
	}
	path := ""
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
	user := c.Username
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

// client makes the client of the kind that is configured. It dials nobody yet.
func (c RedisConfig) client(onConnect func()) (redis.UniversalClient, error) {
	options, err := c.options()
	if err != nil {
		return nil, err
	}
	options.OnConnect = func(context.Context, *redis.Conn) error {
		onConnect()
		return nil
	}
	switch {
	case c.MasterName != "":
		return redis.NewFailoverClient(options.Failover()), nil
	case c.Cluster:
		cluster := options.Cluster()
		cluster.DisableRoutingPolicies = true // they ask the server for its COMMANDs
		return redis.NewClusterClient(cluster), nil
	}
	return redis.NewClient(options.Simple()), nil
}

func (c RedisConfig) options() (*redis.UniversalOptions, error) {
	secure, err := c.TLS.config()
	if err != nil {
		return nil, err
	}
	return &redis.UniversalOptions{
		Addrs:            c.Addrs,
		MasterName:       c.MasterName,
		DB:               c.DB,
		Username:         c.Username,
		Password:         c.Password,
		SentinelUsername: c.SentinelUsername,
		SentinelPassword: c.SentinelPassword,
		TLSConfig:        secure,

		DialTimeout:           c.DialTimeout,
		ReadTimeout:           c.CallTimeout,
		WriteTimeout:          c.CallTimeout,
		PoolTimeout:           c.PoolTimeout,
		PoolSize:              8, // a reconciler uses one at a time
		PipelinePoolSize:      -1,
		ContextTimeoutEnabled: true,

		// The reconciler repeats what failed when its breaker lets it. Of the client's own repetitions only redirects
		// stay: one for a slot that moved, and one for a slot that is moving. 0 would mean the client's defaults.
		MaxRetries:    -1,
		DialerRetries: 1,
		MaxRedirects:  2,

		// Whatever a connection would say about itself beyond the need takes a right in the ACL and a round trip.
		Protocol:                 2,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}, nil
}

func (t *RedisTLS) config() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	c := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("redis: read the certificate authorities: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("redis: %s holds no certificate in PEM", t.CAFile)
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("redis: read the client's certificate and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
