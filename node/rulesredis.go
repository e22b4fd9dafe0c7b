package node

import (
	"fmt"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/node/rulestore"
	"github.com/edgelimit/edgelimit/node/telemetry"
	"github.com/edgelimit/edgelimit/node/text"
)

// RulesRedis says how a node follows the Redis that Config.Rules name. node/rules/REDIS.md has what it holds.
type RulesRedis struct {
	// PasswordFile, CAFile, CertFile, KeyFile and ServerName are as of Redis.
	PasswordFile string `yaml:"password_file"`
	CAFile       string `yaml:"ca_file"`
	CertFile     string `yaml:"cert_file"`
	KeyFile      string `yaml:"key_file"`
	ServerName   string `yaml:"server_name"`
	// Poll is how often the Redis is asked for its versions, beside the messages that it sends. 50ms to 1m.
	Poll time.Duration `yaml:"poll"`
	// Dir is where the node keeps the last good rules and overrides, to start from while the Redis is away; empty:
	// nowhere. Each node needs a directory of its own.
	Dir string `yaml:"dir"`
}

// RuleServer returns the Redis that Rules name; its URL is empty where they name files, or RuleSet is
// in place of them.
func (c *Config) RuleServer() Redis {
	if c.RuleSet != nil || len(c.Rules) == 0 || !IsRedisURL(c.Rules[0]) {
		return Redis{}
	}
	r := &c.RulesRedis
	// The hosts of a URL are separated by commas, as are the values of a flag.
	return Redis{URL: strings.Join(c.Rules, ","), PasswordFile: r.PasswordFile, CAFile: r.CAFile, CertFile: r.CertFile,
		KeyFile: r.KeyFile, ServerName: r.ServerName}
}

// IsRedisURL reports whether a place of rules is meant to be a Redis, not a file.
func IsRedisURL(place string) bool {
	scheme, _, ok := strings.Cut(place, "://")
	return ok && strings.HasPrefix(scheme, "redis")
}

func (c *Config) validateRulesRedis(check func(ok bool, format string, args ...any)) {
	r := &c.RulesRedis
	check(r.Poll >= 50*time.Millisecond && r.Poll <= time.Minute, "rules_redis.poll: %v, want 50ms to 1m",
		text.Setting(r.Poll))
	server := c.RuleServer()
	if server.URL == "" {
		with := RulesRedis{Poll: r.Poll}
		check(*r == with, "rules_redis: settings for a Redis, but rules name none: write rules: [redis://host:6379]")
		for _, place := range c.Rules {
			check(!IsRedisURL(place), "rules: they come from one Redis or from files, not from both")
		}
		return
	}
	for _, place := range c.Rules[1:] {
		if strings.HasPrefix(place, "/") || strings.HasPrefix(place, ".") || IsRedisURL(place) {
			check(false, "rules: they come from one Redis or from files, not from both or several")
			return
		}
	}
	server.validateServer("rules_redis", "rules", check)
}

// openRuleStore returns the source of rules of the Redis that the configuration names; nil if it names none. The Redis
// itself may be down.
func (c *Config) openRuleStore(keys *Keys) (*rulestore.Source, error) {
	server := c.RuleServer()
	if server.URL == "" {
		return nil, nil
	}
	cfg, err := server.Server("rules_redis.")
	if err != nil {
		return nil, err
	}
	store, err := rulestore.Open(cfg)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return rulestore.NewSource(store, rulestore.SourceOptions{Rules: c.ruleOptions(), Identity: keys.Fingerprint(),
		Poll: c.RulesRedis.Poll, Dir: c.RulesRedis.Dir, Logger: c.Logger}), nil
}

// staleRules says why the rules in force may not be those that they should be; nothing where they come from elsewhere
// than a Redis.
func (n *Node) staleRules() []string {
	if n.ruleStore == nil {
		return nil
	}
	var reasons []string
	for _, p := range n.ruleStore.Status().Problems {
		reasons = append(reasons, "rules: "+p)
	}
	return reasons
}

// otherKeyOverrides is how many overrides were made with another key file than this node's.
func (n *Node) otherKeyOverrides() int {
	if n.ruleStore == nil {
		return 0
	}
	return n.ruleStore.Status().OtherKey
}

// writeRuleStore writes what the node knows of the Redis that its rules come from: zeros where they come from
// elsewhere.
func (n *Node) writeRuleStore(w telemetry.Writer) {
	var s rulestore.Status
	if n.ruleStore != nil {
		s = n.ruleStore.Status()
	}
	age := 0.0
	if !s.Contact.IsZero() {
		age = time.Since(s.Contact).Seconds()
	}
	inForce := w.GaugeVec("rules_version", "Version in force of what comes from Redis: rules, or limits (overrides); 0"+
		": none.", "of")
	stored := w.GaugeVec("rules_stored_version", "Version that Redis held when it answered last; where it is another "+
		"than rules_version, the log says why.", "of")
	for k := range s.InForce {
		name := rulestore.Kind(k).String()
		inForce(float64(s.InForce[k]), name)
		stored(float64(s.Stored[k]), name)
	}
	w.Gauge("rules_redis_age_seconds", "Time since the Redis with the rules answered last; 0: it never did, or rules "+
		"come from elsewhere.", age)
	w.Bool("rules_redis_subscribed", "1 while messages of that Redis arrive; 0: new rules are found by polling.",
		s.Subscribed)
	w.Bool("rules_from_copy", "1 while rules are in force from the copy on disk, which Redis has not confirmed.",
		s.FromCopy)
	w.Gauge("rules_problems", "Reasons why the rules in force may not be those that Redis should hold, see the log.",
		float64(len(s.Problems)))
	w.Gauge("overrides", "Overrides in force, ended ones included.", float64(s.Overrides))
	w.Gauge("overrides_unused", "Overrides without effect: their rule is gone or cannot have them, or they were made "+
		"with another key file.", float64(s.Unused))
}
