package node

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/node/ratelimit"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/bans"
	"github.com/edgelimit/edgelimit/node/decisionlog"
	"github.com/edgelimit/edgelimit/node/listen"
	"github.com/edgelimit/edgelimit/node/proxy"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/text"
	"github.com/edgelimit/edgelimit/regions"
)

// Config configures a node. DefaultConfig is a working single node on loopback. The YAML names are those of the
// configuration file; SampleConfig shows each with its meaning.
type Config struct {
	// NodeID names the node, uniquely in its region. Default: the host's name.
	NodeID string `yaml:"node_id"`
	// Region names where the node stands. Its nodes share the limits of scope region, and a store. Default "local".
	Region string `yaml:"region"`
	// Rules are rule files and directories of them, which are read again when they change, or the URL of one Redis that
	// edgelimit rules push publishes them to, as of Redis.URL. None: the sample rules.
	Rules []string `yaml:"rules"`
	// RulesRedis says how to follow the Redis that Rules name.
	RulesRedis RulesRedis `yaml:"rules_redis"`
	// RulesXDS is a management server that rules come from, in place of Rules.
	RulesXDS XDS `yaml:"rules_xds"`
	// RulesPoll is how often the files, and those of TLS, are checked for changes that the file system does not report.
	// 100ms to 1h.
	RulesPoll time.Duration `yaml:"rules_poll"`
	// DefaultAlgorithm is that of rules without one: sliding_window (also if empty) or fixed_window.
	DefaultAlgorithm string `yaml:"default_algorithm"`
	// IPv6Prefix is how many bits of an IPv6 address identify a client, where a rule does not set it. 0 means 64.
	IPv6Prefix int `yaml:"ipv6_prefix"`
	// MergeDomains lets several rule files have descriptors of one domain.
	MergeDomains bool `yaml:"merge_domains"`
	// IgnoreDotFiles leaves out what a directory of rule files has whose name begins with a dot, such as the versions
	// of a mounted ConfigMap: with Compatibility subdirectories are read as well.
	IgnoreDotFiles bool `yaml:"ignore_dot_files"`
	// Compatibility makes Envoy's rate limit service answer as another server does: "ratelimit", as
	// envoyproxy/ratelimit in all fields; empty: as this package's defaults do. A rule file may set it for its domain.
	Compatibility string `yaml:"compatibility"`
	// Ratelimit configures domains with compatibility "ratelimit".
	Ratelimit ratelimit.Config `yaml:"ratelimit"`
	// OnFailure is what happens to requests that cannot be decided as the rules want, where neither these nor the
	// request, as by its route, have a word: unset or rules.FailLocal, rules.FailOpen, rules.FailClosed.
	OnFailure rules.Failure `yaml:"on_failure"`
	// StartWithoutRules serves although the rule files cannot be used, or the first rules of the management server have
	// not come: OnFailure says what happens to requests until then. Otherwise New fails, or the node waits.
	StartWithoutRules bool `yaml:"start_without_rules"`
	// Shadow denies nothing, and counts as before. Node.Shadow changes it at run time.
	Shadow bool `yaml:"shadow"`
	// HTTP is the address of the HTTP API, host:port or unix:/path; empty: none.
	HTTP string `yaml:"http"`
	// Auth serves /v1/auth at HTTP. Without it nothing warns of rules that no request to /v1/auth meets.
	Auth bool `yaml:"auth"`
	// RESP is the address of the Redis protocol.
	RESP string `yaml:"resp"`
	// RESPPasswordFile holds the password of the Redis protocol's clients; empty: none.
	RESPPasswordFile string `yaml:"resp_password_file"`
	// RESPRedisRate answers the scripts of the Go library redis_rate, which are recognized by their digests.
	RESPRedisRate bool `yaml:"resp_redis_rate"`
	// GRPC is the address of Envoy's rate limit service. It needs Envoy.
	GRPC string `yaml:"grpc"`
	// Proxy configures the reverse proxy.
	Proxy proxy.Config `yaml:"proxy"`
	// Health is the address of /livez, /readyz and /metrics.
	Health string `yaml:"health"`
	// Admin is the address where operators list, begin and lift bans; empty: none. Beyond loopback and unix:/path it
	// needs TLS, with client certificates or AdminTokensFile. If DefaultAdmin is in use, a node starts without it.
	Admin string `yaml:"admin"`
	// Dashboard is the address of the dashboard alone, read only and without identities, for viewers on other machines;
	// empty: none. It shows rules, counts, and the names and addresses of nodes: keep it to a network of your own.
	Dashboard string `yaml:"dashboard"`
	// AdminTokensFile has lines "role token [name]", where the role is read or operate, for operators who connect over
	// TCP: with it these show a token or a certificate, on loopback as well. It is read again when it changes. Empty:
	// there are none.
	AdminTokensFile string `yaml:"admin_tokens_file"`
	// AdminOperators are names in the certificates of operators who may change things, as of ListenerTLS.ClientNames;
	// others may read. None: all may.
	AdminOperators []string `yaml:"admin_operators"`
	// TLS says which of these listeners speak TLS, by their names: http, grpc, resp, proxy, health, admin and
	// prometheus.
	TLS map[string]ListenerTLS `yaml:"tls"`
	// ProxyProtocol says who begins connections with a PROXY header (version 1 or 2), which is believed about the
	// client's address: by the names of listeners for clients, addresses, prefixes, and unix for Unix sockets.
	ProxyProtocol map[string][]string `yaml:"proxy_protocol"`
	// MaxConnections is how many clients each listener except health and admin serves at a time; 1 to 1,000,000. The
	// file descriptors that the process may have, less 512, bound it as well.
	MaxConnections int `yaml:"max_connections"`
	// MaxConnectionsPerSource is how many of them one source may have, an IPv4 address or an IPv6 /64; 0, a quarter,
	// or 1 to 1,000,000. This machine, Unix sockets and trusted proxies (Requests) have no such limit.
	MaxConnectionsPerSource int `yaml:"max_connections_per_source"`
	// IdleTimeout is the longest time between two requests of a connection, over HTTP also until the first: 1s to 24h,
	// or 0, which means 2 minutes over HTTP and 5 over gRPC and the Redis protocol. Over HTTP it should be longer than
	// clients keep idle connections. The reverse proxy has its own.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// Requests says which descriptors /v1/auth and the reverse proxy make of a request.
	Requests actions.Config `yaml:"requests"`
	// Headers are the families of response headers: draft11, and one of legacy-delta and legacy-epoch; or off.
	Headers []string `yaml:"headers"`
	// Memory is the budget for the counters in bytes, counters.MinMemory to counters.MaxMemory, allocated as keys come.
	Memory Size `yaml:"memory"`
	// MaxSkew is how far the node's clock may be from the median of the others; beyond it the node's decisions are
	// degraded. A hundredth of the shortest window has no visible effect; more costs accuracy in proportion.
	MaxSkew time.Duration `yaml:"max_skew"`
	// PressureFile is a file of Linux' pressure stall information to report once a second; empty: none.
	PressureFile string `yaml:"pressure_file"`
	// Queues bounds the requests that wait for their turn.
	Queues Queues `yaml:"queues"`
	// Bans says where the addresses go that are banned by rules with export: address.
	Bans bans.Config `yaml:"bans"`
	// DecisionLog says which decisions are logged, and where.
	DecisionLog decisionlog.Config `yaml:"decision_log"`
	// OTLP says where traces and metrics are sent.
	OTLP OTLP `yaml:"otlp"`
	// Linger is how long a stopping node goes on serving while it answers that it is unready: until the balancers that
	// poll its readiness have noticed. 0 to 5m; Node.EndLinger cuts it short.
	Linger time.Duration `yaml:"linger"`
	// Drain is how long requests in flight may take when the node stops. The rest of the stop takes up to 5 s.
	Drain time.Duration `yaml:"drain"`
	// Gossip configures replication with the peers.
	Gossip Gossip `yaml:"gossip"`
	// Redis configures the region's store.
	Redis Redis `yaml:"redis"`
	// Strict configures the stores of strict rules.
	Strict Strict `yaml:"strict"`

	// The fields below are for programs that embed a node.

	// Layers are what the settings come from, for Node.Settings, in the order in which they were read.
	Layers []Layer `yaml:"-"`
	// Logger is the node's log; nil: slog.Default.
	Logger *slog.Logger `yaml:"-"`
	// RuleSet is used in place of Rules; nil: Rules are. Node.SetRules replaces it.
	RuleSet *rules.Set `yaml:"-"`
	// Store is the region's store, shared with other nodes, in place of Redis; nil: Redis, or none.
	Store regions.Store `yaml:"-"`
	// Envoy makes Envoy's rate limit service: envoy.Service of package node/envoy. Nil: there is no POST /json, and
	// GRPC must be empty.
	Envoy func(EnvoyLimiter, EnvoyOptions) EnvoyService `yaml:"-"`
	// RulesFrom makes the source of rules of RulesXDS: xds.Source of package node/xds. Nil: RulesXDS must be empty.
	RulesFrom func(RuleSourceOptions) RuleSource `yaml:"-"`
	// OTLPExporter makes what sends to the collector of OTLP: otlp.New of package node/otlp. Nil: OTLP.Endpoint must be
	// empty.
	OTLPExporter func(OTLPOptions) (OTLPExporter, error) `yaml:"-"`
	// LogLevel is the level of Logger, which operators may change; nil: they may not.
	LogLevel *slog.LevelVar `yaml:"-"`
	// Listeners are open sockets, by the names of the listeners (http, grpc, resp, proxy, health, admin, prometheus),
	// that take the place of their addresses: listen.Inherit returns those of socket activation. The node closes them.
	Listeners map[string]net.Listener `yaml:"-"`
	// WrapTransport wraps gossip's sockets, to inject faults.
	WrapTransport func(pool string, t memberlist.NodeAwareTransport) memberlist.NodeAwareTransport `yaml:"-"`

	wallClock func() time.Time `yaml:"-"` // the machine's; nil: time.Now
}

// Gossip configures replication with the peers.
type Gossip struct {
	// LAN is the host:port, UDP and TCP, for the nodes of the region; empty: the node is alone.
	LAN string `yaml:"lan"`
	// WAN is the same for the nodes of all regions; empty: the region is alone.
	WAN string `yaml:"wan"`
	// AdvertiseLAN and AdvertiseWAN are the host:port under which others reach this node, if different.
	AdvertiseLAN string `yaml:"advertise_lan"`
	AdvertiseWAN string `yaml:"advertise_wan"`
	// Join are seed nodes: host[:port] of the same region, wan:host[:port] of any.
	Join []string `yaml:"join"`
	// Interval is the gossip interval: how often the node sends its peers what it admitted.
	Interval time.Duration `yaml:"interval"`
	// KeyFile holds the gossip keys and the identity secret (edgelimit keygen makes one). It is needed beyond loopback,
	// and with a Redis beyond loopback.
	KeyFile string `yaml:"key_file"`
	// Label separates clusters that can reach each other.
	Label string `yaml:"label"`
}

// Defaults of Config and Redis.
const (
	DefaultHTTP    = "127.0.0.1:8080"
	DefaultHealth  = "127.0.0.1:7948"
	DefaultAdmin   = "127.0.0.1:7949"
	DefaultMinFill = 0.05
	lanPort        = "7946"
	wanPort        = "7947"
)

// DefaultConfig returns a single node on loopback with the sample rules.
func DefaultConfig() Config {
	host, err := os.Hostname()
	if err != nil || len(host) > gossip.MaxNodeID {
		host = "node"
	}
	return Config{
		NodeID:           host,
		Region:           "local",
		RulesRedis:       RulesRedis{Poll: 500 * time.Millisecond},
		RulesXDS:         DefaultXDS(),
		RulesPoll:        10 * time.Second,
		DefaultAlgorithm: counters.SlidingWindow.String(),
		IPv6Prefix:       rulefile.DefaultIPv6Prefix,
		HTTP:             DefaultHTTP,
		Auth:             true,
		Proxy:            proxy.DefaultConfig(),
		Health:           DefaultHealth,
		Admin:            DefaultAdmin,
		AdminOperators:   []string{},
		TLS:              map[string]ListenerTLS{},
		ProxyProtocol:    map[string][]string{},
		MaxConnections:   10_000,
		Requests:         actions.DefaultConfig(),
		Headers:          answer.DefaultHeaders(),
		Memory:           counters.DefaultMemory,
		MaxSkew:          100 * time.Millisecond,
		Queues:           Queues{MaxRequests: 10_000, MaxHeaderBytes: 64 << 20},
		Bans:             bans.Config{Exports: []bans.Export{}},
		DecisionLog:      decisionlog.DefaultConfig(),
		OTLP:             DefaultOTLP(),
		Drain:            4 * time.Second,
		Ratelimit:        ratelimit.DefaultConfig(),
		Gossip:           Gossip{Interval: gossip.DefaultInterval, Label: gossip.DefaultLabel},
		Redis:            Redis{MinFill: DefaultMinFill, MinWindow: regions.DefaultConfig().MinWindow},
		Strict:           defaultStrict(),
	}
}

// Validate reports everything that is wrong with the configuration, without opening anything.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	c.validateListeners(check)
	check(c.Memory >= counters.MinMemory && c.Memory <= counters.MaxMemory,
		"memory: %v, want %v to %v", c.Memory, Size(counters.MinMemory), Size(counters.MaxMemory))
	err := c.ruleOptions().Validate()
	check(err == nil, "%w", err)
	err = c.Ratelimit.Validate()
	check(err == nil, "ratelimit.%w", err)
	for name, addr := range map[string]string{
		"statsd": c.Ratelimit.Statsd.Address, "prometheus": c.Ratelimit.Prometheus.Address,
	} {
		check(addr == "" || c.Compatibility != "", "ratelimit.%s.address: statistics are kept with compatibility: "+
			"ratelimit only", name)
	}
	err = c.RulesXDS.validate()
	check(err == nil, "rules_xds.%w", err)
	check(c.RulesXDS.Server == "" || len(c.Rules) == 0,
		"rules_xds.server: rules come from there or from files (rules), not from both")
	check(c.RulesXDS.Server == "" || c.RulesFrom != nil, "rules_xds.server: this program was built without xDS: "+
		"import github.com/edgelimit/edgelimit/node/xds and set Config.RulesFrom = xds.Source")
	c.validateRulesRedis(check)
	check(c.RulesPoll >= 100*time.Millisecond && c.RulesPoll <= time.Hour,
		"rules_poll: %v, want 100ms to 1h", text.Setting(c.RulesPoll))
	c.Queues.validate(check)
	err = c.Bans.Validate()
	check(err == nil, "bans.%w", err)
	err = c.DecisionLog.Validate()
	check(err == nil, "decision_log.%w", err)
	err = c.OTLP.validate()
	check(err == nil, "otlp.%w", err)
	check(c.OTLP.Endpoint == "" || c.OTLPExporter != nil, "otlp.endpoint: this program was built without "+
		"OpenTelemetry: import github.com/edgelimit/edgelimit/node/otlp and set Config.OTLPExporter = otlp.New")
	check(c.Linger >= 0 && c.Linger <= 5*time.Minute, "linger: %v, want 0s to 5m", text.Setting(c.Linger))
	check(c.Drain > 0 && c.Drain <= time.Minute, "drain: %v, want more than 0 and at most 1m", text.Setting(c.Drain))
	check(c.MaxSkew >= time.Millisecond && c.MaxSkew <= time.Hour, "max_skew: %v, want 1ms to 1h",
		text.Setting(c.MaxSkew))
	_, err = answer.NewHeaders(c.Headers, nil, nil)
	check(err == nil, "headers: %w", err)
	_, err = actions.New(c.Requests)
	check(err == nil, "requests: %w", err)
	if err == nil {
		err = c.Proxy.Validate(c.Requests)
		check(err == nil, "proxy.%w", err)
	}
	for _, seed := range c.Gossip.Join {
		wan, _, err := splitSeed(seed)
		check(err == nil, "gossip.join: %w", err)
		check(err != nil || !wan || c.Gossip.WAN != "",
			"gossip.join: %s is of the WAN, but this node is not on it: set gossip.wan (--gossip-wan)", seed)
		check(err != nil || wan || c.Gossip.LAN != "", "gossip.join: %s is of the region, but this node has no "+
			"address for it: set gossip.lan (--gossip), or join wan:%s", seed, seed)
	}
	c.Redis.validate(check)
	check(c.Gossip.KeyFile != "" || !c.Redis.BeyondLoopback(), needsKeyFile, "redis")
	c.validateStrict(check)
	var keys Keys
	if c.Gossip.KeyFile != "" { // New checks its content
		keys.Gossip = [][]byte{make([]byte, gossipKeySize)}
	}
	cluster := c.clusterConfig(0, keys)
	return errors.Join(append(errs, cluster.Validate())...)
}

const needsKeyFile = "%s.url: a Redis beyond loopback needs a key file, without which everybody can tell from its " +
	"keys whom they count: make one with edgelimit keygen --out cluster.key and set gossip.key_file (--key-file) to " +
	"it on every node"

func (c *Config) validateListeners(check func(ok bool, format string, args ...any)) {
	for _, name := range listenerNames {
		addr := c.addresses()[name]
		_, _, err := listen.SplitAddress(addr)
		setting, _, _ := strings.Cut(addressSetting(name), " ") // without the flag
		check(addr == "" || err == nil, "%s: %w", setting, err)
	}
	c.validateTLS(check)
	check(c.GRPC == "" || c.Envoy != nil, "grpc: an address, but this program was built without Envoy's protocol: "+
		"import github.com/edgelimit/edgelimit/node/envoy and set Config.Envoy = envoy.Service")
	check(!c.RESPRedisRate || c.RESP != "", "resp_redis_rate: scripts without a listener: set resp (--resp)")
	check(c.RESPPasswordFile == "" || c.RESP != "", "resp_password_file: a password without a listener: set resp "+
		"(--resp)")
	check(c.MaxConnections >= 1 && c.MaxConnections <= 1_000_000,
		"max_connections: %d, want 1 to 1000000", c.MaxConnections)
	check(c.MaxConnectionsPerSource >= 0 && c.MaxConnectionsPerSource <= 1_000_000,
		"max_connections_per_source: %d, want 1 to 1000000, or 0 for a quarter", c.MaxConnectionsPerSource)
	check(c.IdleTimeout == 0 || c.IdleTimeout >= time.Second && c.IdleTimeout <= 24*time.Hour,
		"idle_timeout: %v, want 1s to 24h, or 0s", text.Setting(c.IdleTimeout))
	_, _, err := net.SplitHostPort(c.Gossip.AdvertiseLAN)
	check(c.Gossip.AdvertiseLAN == "" || err == nil,
		"gossip.advertise_lan: address %q: want host:port", c.Gossip.AdvertiseLAN)
	_, _, err = net.SplitHostPort(c.Gossip.AdvertiseWAN)
	check(c.Gossip.AdvertiseWAN == "" || err == nil,
		"gossip.advertise_wan: address %q: want host:port", c.Gossip.AdvertiseWAN)
}

var listenerNames = []string{"http", "grpc", "resp", proxyListener, "health", "admin", "dashboard"}

// proxyListener is the name of the reverse proxy's listener.
const proxyListener = "proxy"

// addresses returns the addresses of the node's listeners by name; empty: none.
func (c *Config) addresses() map[string]string {
	all := make(map[string]string)
	for name, addr := range c.addressFields() {
		all[name] = *addr
	}
	return all
}

func (c *Config) addressFields() map[string]*string {
	return map[string]*string{"http": &c.HTTP, "grpc": &c.GRPC, "resp": &c.RESP, proxyListener: &c.Proxy.Listen,
		"health": &c.Health, "admin": &c.Admin, "dashboard": &c.Dashboard,
		"prometheus": &c.Ratelimit.Prometheus.Address}
}

// adopt sets the addresses of Listeners, so that what holds for an address holds for them.
func (c *Config) adopt() error {
	fields := c.addressFields()
	for name, l := range c.Listeners {
		addr := fields[name]
		if addr == nil {
			return fmt.Errorf("a socket is named %.40q, want one of %s: set FileDescriptorName= in its socket unit",
				name, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		*addr = l.Addr().String()
		if l.Addr().Network() != "unix" {
			continue
		}
		path := *addr
		*addr = "unix:" + path
		if name != "admin" {
			continue
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o007 != 0 {
			return fmt.Errorf("the socket %s is named admin, and everybody of this machine may open it: set "+
				"SocketMode=0600 in its socket unit", *addr)
		}
	}
	return nil
}

// ruleOptions returns how the rule files are read.
func (c *Config) ruleOptions() rulefile.Options {
	return rulefile.Options{Algorithm: c.DefaultAlgorithm, IPv6Prefix: c.IPv6Prefix, MergeDomains: c.MergeDomains,
		Compatibility: c.Compatibility, IgnoreDotFiles: c.IgnoreDotFiles,
		Stores: c.RuleStores()}
}

// splitSeed returns the pool of a seed and its host:port.
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

// clusterConfig returns the configuration of package gossip.
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
