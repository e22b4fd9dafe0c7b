package node

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/certs"
	"github.com/edgelimit/edgelimit/node/listen"
	"github.com/edgelimit/edgelimit/regions"
)

// Redis says where the region keeps its counts, so that they outlive its nodes. Decisions never wait for it.
type Redis struct {
	// URL is redis://[user:password@]host[:port][/db], redis+sentinel://host,host/master or redis+cluster://host,host;
	// rediss uses TLS. Empty: the region has no Redis. Each region has a Redis of its own.
	URL string `yaml:"url"`
	// PasswordFile holds the password, in place of the URL.
	PasswordFile string `yaml:"password_file"`
	// CAFile, CertFile, KeyFile and ServerName are for TLS: PEM files, and the name in the server's certificate if it
	// differs.
	CAFile     string `yaml:"ca_file"`
	CertFile   string `yaml:"cert_file"`
	KeyFile    string `yaml:"key_file"`
	ServerName string `yaml:"server_name"`
	// MinFill is the part of its limit that a key has to reach before its counts are written; 0: all counts. To lose
	// counts below it costs less than the writes.
	MinFill float64 `yaml:"min_fill"`
	// MinWindow is the shortest window whose counts are written.
	MinWindow time.Duration `yaml:"min_window"`
}

func (r *Redis) tlsFiles() certs.Client {
	return certs.Client{CAFile: r.CAFile, CertFile: r.CertFile, KeyFile: r.KeyFile, ServerName: r.ServerName}
}

func (r *Redis) hasTLS() bool { return r.tlsFiles() != certs.Client{} }

func (r *Redis) validate(check func(ok bool, format string, args ...any)) {
	check(r.MinFill >= 0 && r.MinFill < 1, "redis.min_fill: %v, want at least 0 and less than 1", r.MinFill)
	check(r.MinWindow >= 0, "redis.min_window: %v, want at least 0", r.MinWindow)
	if r.URL == "" {
		check(r.PasswordFile == "" && !r.hasTLS(), "redis: settings without redis.url (--redis)")
		return
	}
	cfg, err := regions.ParseRedisURL(r.URL)
	check(err == nil, "redis.url: %w", err)
	check(err != nil || cfg.TLS != nil || !r.hasTLS(),
		"redis: settings for TLS, but the URL does not ask for it: it begins with rediss then")
	files := r.tlsFiles()
	err = files.Validate()
	check(err == nil, "redis.%w", err)
	check(cfg.Username == "" || cfg.Password != "" || r.PasswordFile != "", // not quoted: the user may be the password
		"redis: the URL has a user without a password: add it, or set redis.password_file; a password alone is "+
			":password@host")
}

// BeyondLoopback reports whether the Redis, or a Sentinel of it, is on another machine, as far as its name shows.
func (r *Redis) BeyondLoopback() bool {
	cfg, err := regions.ParseRedisURL(r.URL)
	return err == nil && slices.ContainsFunc(cfg.Addrs, func(addr string) bool { return !listen.IsLocal(addr) })
}

// String returns the URL with *** for its password.
func (r Redis) String() string {
	if r.URL == "" {
		return "none"
	}
	cfg, err := regions.ParseRedisURL(r.URL)
	if err != nil {
		return "***" // its password cannot be found
	}
	return cfg.String()
}

// GoString keeps the password out of %#v.
func (r Redis) GoString() string { return "node.Redis(" + r.String() + ")" }

// LogValue implements slog.LogValuer.
func (r Redis) LogValue() slog.Value { return slog.StringValue(r.String()) }

// open returns the store that the settings name. The Redis itself may be down.
func (r *Redis) open() (*regions.Redis, error) {
	cfg, err := regions.ParseRedisURL(r.URL)
	if err != nil {
		return nil, err
	}
	if r.PasswordFile != "" {
		if cfg.Password, err = readPassword(r.PasswordFile); err != nil {
			return nil, fmt.Errorf("redis.password_file: %w", err)
		}
	}
	if cfg.TLS != nil {
		files := r.tlsFiles()
		if cfg.TLS, err = files.Config(); err != nil {
			return nil, fmt.Errorf("redis.%w", err)
		}
	}
	return regions.OpenRedis(cfg)
}

// LogRedisClient sends the log of the Redis client library to a logger, for the whole process: a program calls it once.
func LogRedisClient(log *slog.Logger) { regions.LogRedisClient(log) }

// openStore opens the region's store, if there is one, and its reconciler.
func (n *Node) openStore() error {
	store := n.cfg.Store
	if store == nil {
		if n.cfg.Redis.URL == "" {
			return nil
		}
		redis, err := n.cfg.Redis.open()
		if err != nil {
			return err
		}
		n.redis, store = redis, redis
	}
	cfg := regions.DefaultConfig()
	cfg.Log, cfg.Worth, cfg.MinWindow = n.log, n.fillsEnough, n.cfg.Redis.MinWindow
	cfg.Now = func() time.Time { return time.Unix(0, n.clock.Now()) }
	cfg.OnCall = n.monitor.Latencies.StoreCall
	var err error
	n.reconciler, err = regions.NewReconciler(cfg, store, n.table)
	return err
}

func (n *Node) closeStore() {
	if n.redis != nil {
		_ = n.redis.Close() // all is written, or reported as lost
	}
}

// fillsEnough reports whether a key has reached Redis.MinFill of its limit. From then on all that rises is written;
// what rose before in other sub-windows is not, and is at most that part of the limit.
func (n *Node) fillsEnough(s *counters.Slot) bool {
	l := (*n.limits.Load())[s.Meter.Rule]
	if l == nil || l.Meter() != *s.Meter {
		return true
	}
	enough := n.cfg.Redis.MinFill * float64(l.Max())
	return float64(s.Count) >= enough || float64(n.table.View(l, s.Key, n.clock.Coarse())) >= enough
}
