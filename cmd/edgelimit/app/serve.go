package app

import (
	"cmp"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/envoy"
	"github.com/edgelimit/edgelimit/node/listen"
	"github.com/edgelimit/edgelimit/node/otlp"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/node/text"
	"github.com/edgelimit/edgelimit/node/xds"
)

// The groups of serve's flags.
const (
	ofRules     group = "Configuration and rules"
	ofListeners group = "Listeners (host:port or unix:/path; '' for none)"
	ofCluster   group = "The cluster"
	ofStorage   group = "Memory and storage"
	ofLog       group = "Logging"
	ofOTLP      group = "OpenTelemetry"
)

const serveHelp = `
Without any flag: a single node on loopback with sample rules. Flags and EDGELIMIT_* variables go over the configuration
file; 'edgelimit serve --print-config' shows every setting with its default.

Rule files are watched: what is changed in them is in force a moment later, or refused as a whole and logged. SIGHUP
reads them at once, with the files of TLS and of secrets, and the kill switch ('shadow') of the configuration file;
other settings need a restart.

The process is held to its budget for counters (--memory), a tenth of it, 96 MiB and 24 KiB for each connection that is
open, unless GOMEMLIMIT says otherwise.

One node:        edgelimit serve --rules rules.yaml
A cluster of 2:  edgelimit serve --node-id a --gossip 127.0.0.1:7946
                 edgelimit serve --node-id b --gossip 127.0.0.1:7956 \
                   --join 127.0.0.1:7946 --http 127.0.0.1:8090 \
                   --health 127.0.0.1:7958 --admin 127.0.0.1:7959

Exit status: 0 stopped by a signal, 2 could not start or failed.`

// serveSettings are the settings of a configuration that serve has flags for.
func serveSettings(cfg *node.Config) []setting {
	return []setting{
		{ofRules, "rules", "rule `FILE` or directory (repeatable; default: sample rules)", &cfg.Rules},
		{ofRules, "compatibility", "`SERVER` to answer Envoy as, in all fields: ratelimit, for envoyproxy/ratelimit " +
			"(default: none)", &cfg.Compatibility},
		{ofRules, "ignore-dot-files", "leave out what a directory of rules has that begins with a dot",
			&cfg.IgnoreDotFiles},
		{ofRules, "shadow", "the kill switch: deny nothing, count everything", &cfg.Shadow},
		{ofRules, "pressure-file", "`FILE` of pressure stall information, as /proc/pressure/cpu, for elastic rules",
			&cfg.PressureFile},

		{ofListeners, "http", "`ADDRESS` of the HTTP API", &cfg.HTTP},
		{ofListeners, "auth", "serve /v1/auth, for proxies (--auth=false: no)", &cfg.Auth},
		{ofListeners, "grpc", "`ADDRESS` of Envoy's rate limit service (default: none)", &cfg.GRPC},
		{ofListeners, "resp", "`ADDRESS` of the Redis protocol, which is redis-cell's CL.THROTTLE (default: none)",
			&cfg.RESP},
		{ofListeners, "resp-redis-rate", "answer the scripts of the Go library redis_rate in the Redis protocol",
			&cfg.RESPRedisRate},
		{ofListeners, "health", "`ADDRESS` of /livez, /readyz and /metrics", &cfg.Health},
		{ofListeners, "admin", "`ADDRESS` for operators: loopback, Unix socket, or with client certificates or tokens",
			&cfg.Admin},
		{ofListeners, "dashboard", "`ADDRESS` of the dashboard alone, read only and without identities (default: none)",
			&cfg.Dashboard},
		{ofListeners, "admin-tokens-file", "`FILE` of lines 'read TOKEN' and 'operate TOKEN' for operators (default: " +
			"none)", &cfg.AdminTokensFile},
		{ofListeners, "trusted-proxy", "`ADDRESS` or prefix of a proxy, or unix: its X-Forwarded-For names the " +
			"client (repeatable; default: none)", &cfg.Requests.TrustedProxies},
		{ofListeners, "linger", "`TIME` to go on serving, unready, before it stops: until balancers have noticed",
			&cfg.Linger},

		{ofCluster, "node-id", "`NAME` of the node, unique in its region (default: the host's)", &cfg.NodeID},
		{ofCluster, "region", "`NAME` of the node's region", &cfg.Region},
		{ofCluster, "gossip", "`HOST:PORT` for the nodes of the region, UDP and TCP (default: none)", &cfg.Gossip.LAN},
		{ofCluster, "gossip-wan", "`HOST:PORT` for the nodes of all regions, UDP and TCP (default: none)",
			&cfg.Gossip.WAN},
		{ofCluster, "advertise-lan", "`HOST:PORT` under which the region reaches the node, if that differs",
			&cfg.Gossip.AdvertiseLAN},
		{ofCluster, "advertise-wan", "`HOST:PORT` under which other regions reach it, if that differs",
			&cfg.Gossip.AdvertiseWAN},
		{ofCluster, "join", "`NODE` to join through: host[:port] in the region, wan:host[:port] anywhere (repeatable)",
			&cfg.Gossip.Join},
		{ofCluster, "key-file", "`FILE` with the cluster's secrets, from edgelimit keygen; needed beyond loopback",
			&cfg.Gossip.KeyFile},
		{ofCluster, "interval", "how often the node sends its peers what it admitted", &cfg.Gossip.Interval},

		{ofStorage, "memory", "`SIZE` of the budget for counters, as 64MiB or 1GiB", &cfg.Memory},
		{ofStorage, "redis", "`URL` of the region's Redis: redis://host:6379, redis+sentinel://host,host/master, " +
			"redis+cluster://host,host; rediss for TLS (default: none)", &cfg.Redis.URL},
		{ofStorage, "strict-redis", "`REGION=URL` of the Redis of another region that decides on strict rules " +
			"(repeatable; in the variable with spaces between them)", &cfg.Strict.Redis},

		{ofOTLP, "otlp-endpoint", "`URL` of a collector for traces and metrics, OTLP over HTTP, as " +
			"http://127.0.0.1:4318 (default: none)", &cfg.OTLP.Endpoint},
		{ofOTLP, "otlp-trace-ratio", "`PART` of the decisions that are traced, 0 to 1", &cfg.OTLP.TraceRatio},
		{ofOTLP, "otlp-headers-file", "`FILE` of lines 'Name: value', headers for the collector (default: none)",
			&cfg.OTLP.HeadersFile},
		{ofOTLP, "otlp-ca-file", "PEM `FILE` of the authorities to trust about the collector (default: the system's)",
			&cfg.OTLP.CAFile},
	}
}

// otelVariables are the variables of OpenTelemetry that stand for flags, beside edgelimit's own.
var otelVariables = map[string]string{"otlp-endpoint": "OTEL_EXPORTER_OTLP_ENDPOINT",
	"otlp-ca-file": "OTEL_EXPORTER_OTLP_CERTIFICATE"}

func serveCommand(extensions []Extension) *cli.Command {
	return &cli.Command{Name: "serve", Usage: "run a node", Description: serveHelp,
		Flags:  serveFlags(node.DefaultConfig(), serveSettings, extensions),
		Action: func(c *cli.Context) error { return serve(c, node.DefaultConfig(), serveSettings, extensions) }}
}

// settings are those of a configuration that a command which runs a node has flags for.
type settings func(*node.Config) []setting

// serveFlags are the flags of a command that runs a node. They show the defaults.
func serveFlags(defaults node.Config, settings settings, extensions []Extension) []cli.Flag {
	defaults.NodeID = "" // the usage tells where it comes from
	flags := []cli.Flag{ofRules.flag("config", "configuration `FILE` (YAML); relative paths in it count from the "+
		"directory that edgelimit starts in", new(string), "CONFIG")}
	flags = append(flags, ofRules.flag("from-env", "take the settings from the environment of another `SERVER`: "+
		"ratelimit, for envoyproxy/ratelimit; flags go over them, and --admin is closed without its flag",
		new(string), "FROM_ENV"))
	for _, s := range settings(&defaults) {
		variables := []string{strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))}
		if s.name == "http" && defaults.HTTP == "" { // the image sets EDGELIMIT_HTTP for serve alone
			variables = nil
		}
		if otel := otelVariables[s.name]; otel != "" {
			variables = append(variables, otel)
		}
		flags = append(flags, s.flag(s.name, s.usage, s.to, variables...))
	}
	flags = append(flags,
		ofRules.flag("print-config", "print the annotated sample configuration and exit", new(bool)),
		ofLog.flag("log-level", "`LEVEL`: debug, info, warn or error", new("info"), "LOG_LEVEL"),
		ofLog.flag("log-json", "log in JSON", new(bool), "LOG_JSON"))
	for _, e := range extensions {
		flags = append(flags, e.Flags...)
	}
	return flags
}

// serve runs a node whose flags go over the configuration file, and that over the defaults.
func serve(c *cli.Context, defaults node.Config, settings settings, extensions []Extension) error {
	if c.Bool("print-config") {
		_, err := c.App.Writer.Write(node.SampleConfig)
		return err
	}
	hangups := notifyHangups()
	read := func() (node.Config, error) { return serveConfig(c, defaults, settings) }
	layers, env, err := configLayers(c, defaults, settings)
	if err != nil {
		return err
	}
	cfg := layers[len(layers)-1].Config
	logger, level, err := newLogger(c, env)
	if err != nil {
		return err
	}
	slog.SetDefault(logger) // net/http's clients log by package log, which writes there then
	if env != nil {
		env.log(logger)
	}
	started := cfg
	cfg.Layers = layers
	cfg.Logger, cfg.LogLevel, cfg.Envoy, cfg.RulesFrom = logger, level, envoy.Service, xds.Source
	cfg.OTLPExporter = otlp.New
	for _, e := range extensions {
		if err := e.Configure(c, &cfg); err != nil {
			return err
		}
	}
	if cfg.Listeners, err = listen.Inherit(); err != nil {
		return err
	}
	manager, err := newNotifier(cfg.Gossip.Interval, logger)
	if err != nil {
		return err
	}
	node.LogRedisClient(logger)
	n, err := node.New(cfg)
	if err != nil {
		return env.explain(err, &cfg)
	}
	defer limitMemory(cfg.Memory, n.Connections)()
	if len(cfg.Rules) == 0 && cfg.RulesXDS.Server == "" {
		try := ""
		if cfg.HTTP != "" {
			try = "; try: edgelimit check --rule per_ip --identity 192.0.2.1"
		}
		logger.Info("no rules given, using the sample rules" + try)
	}
	if cfg.Linger > 0 {
		defer endLingerOnSignal(c.Context, n)()
	}
	defer manager.follow(c.Context, n)()
	defer onHangup(hangups, func(merged int) {
		manager.reloading(c.Context, n, func() { reload(n, read, started, logger, merged) })
	})()
	if err := n.Run(c.Context); err != nil {
		return err
	}
	logger.Info("stopped")
	return nil
}

// serveConfig returns the configuration file's settings, overridden by the flags, and with --from-env the environment
// that goes between them.
func serveConfig(c *cli.Context, defaults node.Config, settings settings) (node.Config, error) {
	layers, _, err := configLayers(c, defaults, settings)
	if err != nil {
		return node.Config{}, err
	}
	return layers[len(layers)-1].Config, nil
}

// configLayers returns the configuration as it is after each of its sources.
func configLayers(c *cli.Context, cfg node.Config, settings settings) (
	layers []node.Layer, env *ratelimitEnv, err error) {
	add := func(from string) { layers = append(layers, node.Layer{From: from, Config: cfg}) }
	if name := c.String("config"); name != "" {
		if cfg, err = cfg.Read(name); err != nil {
			return nil, nil, err
		}
		add("file")
	}
	if server := c.String("from-env"); server != "" {
		if server != rulefile.Ratelimit {
			return nil, nil, misuse(c.Command, "--from-env %.80s: want %s", server, rulefile.Ratelimit)
		}
		env = readRatelimitEnv(os.LookupEnv, os.Environ())
		if err = env.configure(&cfg); err != nil {
			return nil, nil, err
		}
	}
	var variables, flags []setting
	for _, s := range settings(&cfg) {
		if byVariable(c, s.name) {
			variables = append(variables, s)
		} else {
			flags = append(flags, s)
		}
	}
	if err = override(c, variables); err != nil {
		return nil, nil, err
	}
	add("environment")
	if err = override(c, flags); err != nil {
		return nil, nil, err
	}
	add("flag")
	if env != nil {
		env.settleRedis(&cfg)
		add("environment")
	}
	return layers, env, nil
}

// byVariable reports whether a flag that is set has its value from a variable of the environment.
func byVariable(c *cli.Context, name string) bool {
	arguments := *c
	arguments.Command = nil // else those of variables are among the names
	return c.IsSet(name) && !slices.Contains(arguments.LocalFlagNames(), name)
}

// newLogger returns the logger that the flags ask for, and its level; where they do not, the environment does, if there
// is one.
func newLogger(c *cli.Context, env *ratelimitEnv) (*slog.Logger, *slog.LevelVar, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cmp.Or(c.String("log-level"), "info"))); err != nil {
		return nil, nil, misuse(c.Command, "--log-level %s: want debug, info, warn or error", c.String("log-level"))
	}
	asJSON := c.Bool("log-json")
	if env != nil {
		if !c.IsSet("log-level") {
			var err error
			if level, err = env.logLevel(); err != nil {
				return nil, nil, err
			}
		}
		asJSON = asJSON || !c.IsSet("log-json") && env.logJSON()
	}
	levels := new(slog.LevelVar)
	levels.Set(level)
	opt, out := &slog.HandlerOptions{Level: levels}, text.NewWriter(os.Stderr)
	if asJSON {
		return slog.New(slog.NewJSONHandler(out, opt)), levels, nil
	}
	opt.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(text.Duration(a.Value.Duration()))
		}
		return a
	}
	return slog.New(slog.NewTextHandler(out, opt)), levels, nil
}
