package node

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/certs"
	"github.com/edgelimit/edgelimit/node/listen"
	"github.com/edgelimit/edgelimit/node/text"
	"github.com/edgelimit/edgelimit/regions"
)

// Redis says where the region keeps its counts, so that they outlive its nodes. Decisions never wait for it.
type Redis struct {
	// URL is redis://[user:password@]host[:port][/db], redis+sentinel://host,host/master or redis+cluster://host,host;
	// rediss uses TLS. Empty: the region has no Redis. Each region has a Redis of its own.
	URL string `yaml:"url"`
	// PasswordFile holds the password, in place of the URL. It is read for each connection that is made.
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
	check(r.MinWindow >= 0, "redis.min_window: %v, want at least 0", text.Setting(r.MinWindow))
	if r.URL == "" {
		check(r.PasswordFile == "" && !r.hasTLS(), "redis: settings without redis.url (--redis)")
		return
	}
	r.validateServer("redis", "redis.url", check)
}

// validateServer checks how the Redis is reached: the settings of a section of the configuration, and its URL.
func (r *Redis) validateServer(section, url string, check func(ok bool, format string, args ...any)) {
	cfg, err := regions.ParseRedisURL(r.URL)
	check(err == nil, url+": %w", err)
	check(err != nil || cfg.TLS != nil || !r.hasTLS(),
		section+": settings for TLS, but the URL does not ask for it: it begins with rediss then")
	files := r.tlsFiles()
	err = files.Validate()
	check(err == nil, section+".%w", err)
	check(cfg.Username == "" || cfg.Password != "" || r.PasswordFile != "", // not quoted: the user may be the password
		section+": the URL has a user without a password: add it, or set "+section+".password_file; a password alone "+
			"is :password@host")
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

// Server returns how to reach the Redis, with the content of the files. Errors call these by the names of their
// settings, after a prefix.
func (r *Redis) Server(prefix string) (cfg regions.RedisConfig, err error) {
	if cfg, err = regions.ParseRedisURL(r.URL); err != nil {
		return cfg, err
	}
	if r.PasswordFile != "" {
		file := r.PasswordFile
		cfg.ReadPassword = func() (string, error) {
			password, err := ReadPassword(file)
			if err != nil {
				err = fmt.Errorf("%spassword_file: %w", prefix, err)
			}
			return password, err
		}
		if cfg.Password, err = cfg.ReadPassword(); err != nil {
			return cfg, err
		}
	}
	if cfg.TLS != nil {
		files := r.tlsFiles()
		if cfg.TLS, err = files.Config(); err != nil {
			return cfg, fmt.Errorf("%s%w", prefix, err)
		}
	}
	return cfg, nil
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
		client, err := n.cfg.Redis.Server("redis.")
		if err != nil {
			return err
		}
		redis, err := regions.OpenRedis(client) // it may be down
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
	cfg.Alone = n.cfg.Gossip.LAN == "" && n.cfg.Gossip.WAN == ""
	n.reconciler, err = regions.NewReconciler(cfg, store, n.table)
	return err
}

func (n *Node) closeStore() {
	if n.redis != nil {
		_ = n.redis.Close() // all is written, or reported as lost
	}
}

// fillsEnough reports whether a key has reached Redis.MinFill of its limit. From then on all that rises is written;
// what rose before in other sub-windows is not, and is at most that part of the limit. What strict rules count is in
// their own store.
func (n *Node) fillsEnough(s *counters.Slot) bool {
	l := (*n.limits.Load())[s.Meter.Rule]
	if l == nil || l.Meter() != *s.Meter {
		return true
	}
	if n.policy.Load().strict[s.Meter.Rule] {
		return false
	}
	enough := n.cfg.Redis.MinFill * float64(l.Max())
	return float64(s.Count) >= enough || float64(n.table.View(l, s.Key, n.clock.Coarse())) >= enough
}
