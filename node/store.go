package node

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
)

// Redis says where the region keeps its counts, so that they outlive its nodes. Decisions never wait for it.
type Redis struct {
	// URL is redis://[user:password@]host[:port][/db], redis+sentinel://host,host/master or redis+cluster://host,host; rediss speaks
	// TLS. Empty: the region has no Redis. It has to be the region's own.
	URL string `yaml:"url"`
	// PasswordFile holds the password, in place of the URL.
	PasswordFile string `yaml:"password_file"`
	// CAFile, CertFile, KeyFile and ServerName are for TLS: PEM files, and the name in the server's certificate where it differs.
	CAFile     string `yaml:"ca_file"`
	CertFile   string `yaml:"cert_file"`
	KeyFile    string `yaml:"key_file"`
	ServerName string `yaml:"server_name"`
	// MinFill is the part of its limit that a key has to reach before its counts are told: below it, forgetting them does no harm that
	// would pay for the writes. 0 tells all.
	MinFill float64 `yaml:"min_fill"`
	// MinWindow is the shortest window whose counts are told.
	MinWindow time.Duration `yaml:"min_window"`
}

// DefaultMinFill is what Redis.MinFill is by default.
const DefaultMinFill = 0.05

func (r *Redis) validate() error {
	var errs []error
	if r.MinFill < 0 || r.MinFill >= 1 {
		errs = append(errs, fmt.Errorf("redis.min_fill: %v, want at least 0 and less than 1", r.MinFill))
	}
	if r.MinWindow < 0 {
		errs = append(errs, fmt.Errorf("redis.min_window: %v, want at least 0", r.MinWindow))
	}
	if r.URL == "" {
		if r.PasswordFile != "" || r.CAFile != "" || r.CertFile != "" || r.KeyFile != "" || r.ServerName != "" {
			errs = append(errs, errors.New("redis: settings without redis.url (--redis)"))
		}
		return errors.Join(errs...)
	}
	cfg, err := regions.ParseRedisURL(r.URL)
	if err != nil {
		errs = append(errs, fmt.Errorf("redis.url: %w", err))
	} else if cfg.TLS == nil && (r.CAFile != "" || r.CertFile != "" || r.KeyFile != "" || r.ServerName != "") {
		errs = append(errs, errors.New("redis: settings for TLS, but the URL does not ask for it: it begins with rediss then"))
	}
	if cfg.Username != "" && cfg.Password == "" && r.PasswordFile == "" { // not quoted: it may be a password without its colon
		errs = append(errs, errors.New("redis: the URL has a user without a password: add it, or set redis.password_file; a password alone is :password@host"))
	}
	return errors.Join(errs...)
}

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
		cfg.TLS.CAFile, cfg.TLS.CertFile, cfg.TLS.KeyFile, cfg.TLS.ServerName = r.CAFile, r.CertFile, r.KeyFile, r.ServerName
	}
	return regions.OpenRedis(cfg)
}

// LogRedisClient routes what the Redis client library says by itself into a logger, for the whole process: a program calls it once.
func LogRedisClient(log *slog.Logger) { regions.LogRedisClient(log) }

// openStore opens the region's Redis, if there is one and no other store was given, and the reconciler.
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
	cfg.Log, cfg.Worth, cfg.MinWindow = n.log, n.worth, n.cfg.Redis.MinWindow
	cfg.Now = func() time.Time { return time.Unix(0, n.clock.Now()) }
	cfg.OnCall = func(took time.Duration, err error) { n.latencies.store(took, err) }
	var err error
	n.reconciler, err = regions.NewReconciler(cfg, store, n.table)
	return err
}

func (n *Node) closeStore() {
	if n.redis != nil {
		_ = n.redis.Close() // everything was told, or reported as not
	}
}

// worth says whether a key has come so far that its counts are worth telling the store. Once it has, all that rises is told; what rose
// before in other sub-windows is not, and is at most that part of the limit.
func (n *Node) worth(s *counters.Slot) bool {
	l := n.limit(s.Meter.Rule)
	if l == nil || l.Meter() != *s.Meter {
		return true
	}
	enough := n.cfg.Redis.MinFill * float64(l.Max())
	return float64(s.Count) >= enough || float64(n.table.View(l, s.Key, n.clock.Coarse())) >= enough
}
