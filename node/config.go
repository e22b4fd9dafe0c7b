package node

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/httpapi"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/regions"
)

// Config says what a node is and does. DefaultConfig is a working single node on loopback. The YAML names are those of the
// configuration file; SampleConfig shows each with its meaning.
type Config struct {
	// NodeID names the node; unique in its region. Default: the host's name.
	NodeID string `yaml:"node_id"`
	// Region names where the node stands: nodes that name the same one share the limits of scope region, and the region's store. Default
	// "local", so that nodes which name none are of one region.
	Region string `yaml:"region"`
	// Rules are rule files, and directories of them, which are read again when they change. None: the sample rules.
	Rules []string `yaml:"rules"`
	// RulesPoll is how often they are looked at, beside when the file system tells of a change: network mounts never do. 100ms to 1h.
	RulesPoll time.Duration `yaml:"rules_poll"`
	// DefaultAlgorithm is that of rules which name none: sliding_window, or fixed_window to count as envoyproxy/ratelimit does. Empty means
	// sliding_window.
	DefaultAlgorithm string `yaml:"default_algorithm"`
	// IPv6Prefix is how many bits of an IPv6 address tell one client from another, where a rule does not say so itself. 0
	// means 64.
	IPv6Prefix int `yaml:"ipv6_prefix"`
	// MergeDomains lets several rule files give descriptors of one domain.
	MergeDomains bool `yaml:"merge_domains"`
	// Shadow is the kill switch: nothing is denied, and all is counted as before. Node.Shadow turns it while the node runs.
	Shadow bool `yaml:"shadow"`
	// HTTP is the host:port of the HTTP door, or unix:/path; empty: no such door.
	HTTP string `yaml:"http"`
	// RESP is the same for the Redis protocol.
	RESP string `yaml:"resp"`
	// RESPPasswordFile holds the password that clients of the Redis protocol have to give; empty: none.
	RESPPasswordFile string `yaml:"resp_password_file"`
	// GRPC is the same for Envoy's rate limit service.
	GRPC string `yaml:"grpc"`
	// Health is the host:port, or unix:/path, of /livez, /readyz and /metrics; empty: none.
	Health string `yaml:"health"`
	// MaxConnections is how many clients may be connected at a time, to each door but that for health and metrics; 1 to 1,000,000. Where the
	// process may not have as many file descriptors open there are fewer: the doors share what it may have but for 512.
	MaxConnections int `yaml:"max_connections"`
	// IdleTimeout is how long a client may be silent between two requests, at any door: 0, which means 60 s over HTTP and 5 minutes by gRPC and in
	// the Redis protocol, or 1s to 24h.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// Requests says what of a request that /v1/auth is asked about is held against the rules.
	Requests actions.Config `yaml:"requests"`
	// Headers are the families of response headers: draft11, and one of legacy-delta and legacy-epoch; or off.
	Headers []string `yaml:"headers"`
	// Memory is the budget for the counters, in bytes: counters.MinMemory to counters.MaxMemory. It is taken as keys come; when it is
	// used up, the idlest key goes for each that comes, those over their limit last.
	Memory Size `yaml:"memory"`
	// MaxSkew is the budget for clocks that differ: beyond it, by the median of the others, a node says that its clock is off and that its
	// decisions are degraded. A hundredth of the shortest window costs nothing that can be seen; more costs over-admission and fairness in
	// proportion. Less than what the ways between two regions differ in, one way and back, cannot be measured.
	MaxSkew time.Duration `yaml:"max_skew"`
	// PressureFile is a file of Linux' pressure stall information, which is reported as the pressure once a second; empty: only SetPressure
	// reports it.
	PressureFile string `yaml:"pressure_file"`
	// Drain is how long requests in flight may take when the node stops. What comes after them takes 5 s at most.
	Drain time.Duration `yaml:"drain"`
	// Gossip says how the node speaks with its peers.
	Gossip Gossip `yaml:"gossip"`
	// Redis says where the region keeps its counts.
	Redis Redis `yaml:"redis"`

	// What follows is for programs that embed a node.

	// Logger is the node's log; nil: slog.Default.
	Logger *slog.Logger `yaml:"-"`
	// RuleSet is used in place of Rules; nil: Rules are. Node.SetRules puts others in their place.
	RuleSet *rules.Set `yaml:"-"`
	// Store is the memory of the region, shared with other nodes, in place of Redis; nil: Redis is, or counts live in the nodes alone.
	Store regions.Store `yaml:"-"`
	// WrapTransport stands between gossip and its sockets: for injecting faults.
	WrapTransport func(pool string, t memberlist.NodeAwareTransport) memberlist.NodeAwareTransport `yaml:"-"`
}

// Gossip says how a node speaks with its peers.
type Gossip struct {
	// LAN is the host:port, UDP and TCP, for the nodes of the region; empty: the node is alone.
	LAN string `yaml:"lan"`
	// WAN is the same for the nodes of all regions; empty: the region is alone.
	WAN string `yaml:"wan"`
	// AdvertiseLAN and AdvertiseWAN are the host:port under which others reach this node, where that differs.
	AdvertiseLAN string `yaml:"advertise_lan"`
	AdvertiseWAN string `yaml:"advertise_wan"`
	// Join are nodes to join through: host[:port] of the same region, wan:host[:port] of any.
	Join []string `yaml:"join"`
	// Interval is T: how often the node tells its peers what it admitted.
	Interval time.Duration `yaml:"interval"`
	// KeyFile holds the gossip keys and the identity secret (edgelimit keygen makes one). Needed beyond loopback.
	KeyFile string `yaml:"key_file"`
	// Label separates clusters that can reach each other.
	Label string `yaml:"label"`
}

// The ports that nodes listen on unless told otherwise.
const (
	DefaultHTTP   = "127.0.0.1:8080"
	DefaultHealth = "127.0.0.1:9100"
	lanPort       = "7946"
	wanPort       = "7947"
)

// DefaultMaxConnections is how many clients may be connected to a door at a time, as in Redis.
const DefaultMaxConnections = 10_000

// DefaultConfig returns a single node on loopback with the sample rules.
func DefaultConfig() Config {
	host, err := os.Hostname()
	if err != nil || len(host) > gossip.MaxNodeID {
		host = "node"
	}
	return Config{
		NodeID:           host,
		Region:           "local",
		RulesPoll:        10 * time.Second,
		DefaultAlgorithm: counters.SlidingWindow.String(),
		IPv6Prefix:       rules.DefaultIPv6Prefix,
		HTTP:             DefaultHTTP,
		Health:           DefaultHealth,
		MaxConnections:   DefaultMaxConnections,
		Requests:         actions.DefaultConfig(),
		Headers:          httpapi.DefaultHeaders(),
		Memory:           counters.DefaultMemory,
		MaxSkew:          DefaultMaxSkew,
		Drain:            4 * time.Second,
		Gossip:           Gossip{Interval: gossip.DefaultInterval, Label: gossip.DefaultLabel},
		Redis:            Redis{MinFill: DefaultMinFill, MinWindow: regions.DefaultConfig().MinWindow},
	}
}

// Validate reports everything that is wrong with the configuration, without opening anything.
func (c *Config) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, door := range c.doors() {
		if _, _, err := splitDoor(door.addr); door.addr != "" && err != nil {
			wrong("%s: %w", door.name, err)
		}
	}
	if c.RESPPasswordFile != "" && c.RESP == "" {
		wrong("resp_password_file: a password without a door: set resp (--resp)")
	}
	if c.MaxConnections < 1 || c.MaxConnections > 1_000_000 {
		wrong("max_connections: %d, want 1 to 1000000", c.MaxConnections)
	}
	if c.IdleTimeout != 0 && (c.IdleTimeout < time.Second || c.IdleTimeout > 24*time.Hour) {
		wrong("idle_timeout: %v, want 1s to 24h, or 0s", c.IdleTimeout)
	}
	for _, a := range []named{
		{"gossip.advertise_lan", c.Gossip.AdvertiseLAN}, {"gossip.advertise_wan", c.Gossip.AdvertiseWAN},
	} {
		if _, _, err := net.SplitHostPort(a.addr); a.addr != "" && err != nil {
			wrong("%s: address %q: want host:port", a.name, a.addr)
		}
	}
	if c.Memory < counters.MinMemory || c.Memory > counters.MaxMemory {
		wrong("memory: %v, want %v to %v", c.Memory, Size(counters.MinMemory), Size(counters.MaxMemory))
	}
	if err := c.ruleOptions().Validate(); err != nil {
		errs = append(errs, err)
	}
	if c.RulesPoll < 100*time.Millisecond || c.RulesPoll > time.Hour {
		wrong("rules_poll: %v, want 100ms to 1h", c.RulesPoll)
	}
	if c.Drain <= 0 || c.Drain > time.Minute {
		wrong("drain: %v, want more than 0 and at most 1m", c.Drain)
	}
	if c.MaxSkew < time.Millisecond || c.MaxSkew > time.Hour {
		wrong("max_skew: %v, want 1ms to 1h", c.MaxSkew)
	}
	if err := (httpapi.Options{Headers: c.Headers}).Validate(); err != nil {
		wrong("headers: %w", err)
	}
	if _, err := actions.New(c.Requests); err != nil {
		wrong("requests: %w", err)
	}
	for _, seed := range c.Gossip.Join {
		switch wan, _, err := splitSeed(seed); {
		case err != nil:
			wrong("gossip.join: %w", err)
		case wan && c.Gossip.WAN == "":
			wrong("gossip.join: %s is of the WAN, but this node is not on it: set gossip.wan (--gossip-wan)", seed)
		case !wan && c.Gossip.LAN == "":
			wrong("gossip.join: %s is of the region, but this node has no address for it: set gossip.lan (--gossip), or join wan:%s", seed, seed)
		}
	}
	if err := c.Redis.validate(); err != nil {
		errs = append(errs, err)
	}
	var keys Keys
	if c.Gossip.KeyFile != "" { // that it holds keys is seen when it is opened
		keys.Gossip = [][]byte{make([]byte, gossipKeySize)}
	}
	cluster := c.clusterConfig(0, keys)
	return errors.Join(append(errs, cluster.Validate())...)
}

// named is an address of the configuration.
type named struct{ name, addr string }

// doors are the node's doors, open or not.
func (c *Config) doors() []named {
	return []named{{"http", c.HTTP}, {"grpc", c.GRPC}, {"resp", c.RESP}, {"health", c.Health}}
}

// ruleOptions say how the rule files are read.
func (c *Config) ruleOptions() rules.Options {
	return rules.Options{Algorithm: c.DefaultAlgorithm, IPv6Prefix: c.IPv6Prefix, MergeDomains: c.MergeDomains}
}

// splitSeed tells which pool a seed is of and its host:port.
func splitSeed(seed string) (wan bool, addr string, err error) {
	addr, wan = strings.CutPrefix(seed, "wan:")
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host, port = addr, lanPort
		if wan {
			port = wanPort
		}
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			host = ""
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); host == "" || n == 0 || err != nil {
		return false, "", fmt.Errorf("seed %q: want host, host:port, wan:host or wan:host:port", seed)
	}
	return wan, net.JoinHostPort(host, port), nil
}

// clusterConfig is the gossip part of the configuration as the gossip package takes it.
func (c *Config) clusterConfig(incarnation uint64, keys Keys) gossip.Config {
	cfg := gossip.Config{
		NodeID: c.NodeID, Region: c.Region, Incarnation: incarnation,
		Interval: c.Gossip.Interval, Label: cmp.Or(c.Gossip.Label, gossip.DefaultLabel), Keys: keys.Gossip,
		Logger: c.Logger, WrapTransport: c.WrapTransport,
	}
	if c.Gossip.LAN != "" {
		cfg.LAN = &gossip.PoolConfig{Bind: c.Gossip.LAN, Advertise: c.Gossip.AdvertiseLAN}
	}
	if c.Gossip.WAN != "" {
		cfg.WAN = &gossip.PoolConfig{Bind: c.Gossip.WAN, Advertise: c.Gossip.AdvertiseWAN}
	}
	for _, seed := range c.Gossip.Join {
		wan, addr, _ := splitSeed(seed)
		if wan && cfg.WAN != nil {
			cfg.WAN.Seeds = append(cfg.WAN.Seeds, addr)
		} else if !wan && cfg.LAN != nil {
			cfg.LAN.Seeds = append(cfg.LAN.Seeds, addr)
		}
	}
	return cfg
}
