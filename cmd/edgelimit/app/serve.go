package app

import (
	"cmp"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/envoy"
)

// The groups of serve's flags.
const (
	ofRules     = "Configuration and rules"
	ofListeners = "Listeners (host:port or unix:/path; '' for none)"
	ofCluster   = "The cluster"
	ofStorage   = "Memory and storage"
	ofLog       = "Logging"
)

func serveCommand(extensions []Extension) *cli.Command {
	def := node.DefaultConfig()
	command := &cli.Command{
		Name:  "serve",
		Usage: "run a node",
		Description: "Without any flag: a single node on loopback with sample rules. Flags and EDGELIMIT_* variables " +
			"go over " +
			"the configuration file; 'edgelimit serve --print-config' shows every setting with its default.\n\n" +
			"Rule files are watched: what is changed in them is in force a moment later, or refused as a whole and " +
			"logged.\n" +
			"SIGHUP reads them at once, and the kill switch ('shadow') of the configuration file; other settings " +
			"need a " +
			"restart.\n\n" +
			"The process is held to its budget for counters (--memory), a tenth of it, 96 MiB and 24 KiB for each\n" +
			"connection that is open, unless GOMEMLIMIT says otherwise.\n\n" +
			"One node:        edgelimit serve --rules rules.yaml\n" +
			"A cluster of 2:  edgelimit serve --node-id a --gossip 127.0.0.1:7946\n" +
			"                 edgelimit serve --node-id b --gossip 127.0.0.1:7956 \\\n" +
			"                   --join 127.0.0.1:7946 --http 127.0.0.1:8090 \\\n" +
			"                   --health 127.0.0.1:9110 --admin 127.0.0.1:9111\n\n" +
			"Exit status: 0 stopped by a signal, 2 could not start or failed.",
		Flags: []cli.Flag{
			text(ofRules, "config", "configuration `FILE` (YAML)", ""),
			list(ofRules, "rules", "rule `FILE` or directory (repeatable; default: sample rules)"),
			toggle(ofRules, "shadow", "the kill switch: deny nothing, count everything"),
			text(ofRules, "pressure-file", "`FILE` of pressure stall information, as /proc/pressure/cpu, for elastic "+
				"rules", ""),
			&cli.BoolFlag{Name: "print-config", Usage: "print the annotated sample configuration and exit",
				Category: ofRules},

			text(ofListeners, "http", "`ADDRESS` of the HTTP API", node.DefaultHTTP),
			text(ofListeners, "grpc", "`ADDRESS` of Envoy's rate limit service (default: none)", ""),
			text(ofListeners, "resp", "`ADDRESS` of the Redis protocol, which is redis-cell's CL.THROTTLE (default: "+
				"none)", ""),
			text(ofListeners, "health", "`ADDRESS` of /livez, /readyz and /metrics", node.DefaultHealth),
			text(ofListeners, "admin", "`ADDRESS` for edgelimit unban, on loopback or a Unix socket only",
				node.DefaultAdmin),
			duration(ofListeners, "linger", "`TIME` to go on serving, unready, before it stops: until balancers have "+
				"noticed", 0),

			text(ofCluster, "node-id", "`NAME` of the node, unique in its region (default: the host's)", ""),
			text(ofCluster, "region", "`NAME` of the node's region", def.Region),
			text(ofCluster, "gossip", "`HOST:PORT` for the nodes of the region, UDP and TCP (default: none)", ""),
			text(ofCluster, "gossip-wan", "`HOST:PORT` for the nodes of all regions, UDP and TCP (default: none)", ""),
			text(ofCluster, "advertise-lan", "`HOST:PORT` under which the region reaches the node, if that differs",
				""),
			text(ofCluster, "advertise-wan", "`HOST:PORT` under which other regions reach it, if that differs", ""),
			list(ofCluster, "join", "`NODE` to join through: host[:port] in the region, wan:host[:port] anywhere "+
				"(repeatable)"),
			text(ofCluster, "key-file", "`FILE` with the cluster's secrets, from edgelimit keygen; needed beyond "+
				"loopback", ""),
			duration(ofCluster, "interval", "how often the node sends its peers what it admitted", def.Gossip.Interval),

			text(ofStorage, "memory", "`SIZE` of the budget for counters, as 64MiB or 1GiB", def.Memory.String()),
			text(ofStorage, "redis", "`URL` of the region's Redis: redis://host:6379, "+
				"redis+sentinel://host,host/master, "+
				"redis+cluster://host,host; rediss for TLS (default: none)", ""),

			text(ofLog, "log-level", "`LEVEL`: debug, info, warn or error", "info"),
			toggle(ofLog, "log-json", "log in JSON"),
		},
		Action: func(c *cli.Context) error { return serve(c, extensions) },
	}
	for _, e := range extensions {
		command.Flags = append(command.Flags, e.Flags...)
	}
	return command
}

// text returns a flag for text, with a variable of its name. The default is only shown.
func text(category, name, usage, def string) cli.Flag {
	return &cli.StringFlag{Name: name, Usage: usage, DefaultText: def, Category: category, EnvVars: envOf(name)}
}

func duration(category, name, usage string, def time.Duration) cli.Flag {
	return &cli.DurationFlag{Name: name, Usage: usage, DefaultText: def.String(), Category: category,
		EnvVars: envOf(name)}
}

// list returns a flag that may be repeated.
func list(category, name, usage string) cli.Flag {
	return &cli.StringSliceFlag{Name: name, Usage: usage, Category: category, EnvVars: envOf(name)}
}

// toggle returns a flag without a value.
func toggle(category, name, usage string) cli.Flag {
	return &cli.BoolFlag{Name: name, Usage: usage, Category: category, EnvVars: envOf(name)}
}

func envOf(flag string) []string { return env(strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))) }

func env(name string) []string { return []string{"EDGELIMIT_" + name} }

func serve(c *cli.Context, extensions []Extension) error {
	if c.Bool("print-config") {
		_, err := c.App.Writer.Write(node.SampleConfig)
		return err
	}
	hangups := notifyHangups()
	logger, err := newLogger(c)
	if err != nil {
		return err
	}
	cfg, err := serveConfig(c)
	if err != nil {
		return err
	}
	started := cfg
	cfg.Logger, cfg.Envoy = logger, envoy.Service
	for _, e := range extensions {
		if e.Configure != nil {
			if err := e.Configure(c, &cfg); err != nil {
				return err
			}
		}
	}
	node.LogRedisClient(logger)
	n, err := node.New(cfg)
	if err != nil {
		return err
	}
	defer limitMemory(cfg.Memory, n.Connections)()
	if len(cfg.Rules) == 0 {
		logger.Info("no rules given, using the sample rules; try: edgelimit check --rule per_ip --identity 192.0.2.1")
	}
	if cfg.Linger > 0 {
		defer endLingerOnSignal(c.Context, n)()
	}
	defer onHangup(hangups, func(merged int) { reload(c, n, started, logger, merged) })()
	if err := n.Run(c.Context); err != nil {
		return err
	}
	logger.Info("stopped")
	return nil
}

// serveConfig returns the configuration file's settings, overridden by the flags.
func serveConfig(c *cli.Context) (node.Config, error) {
	cfg := node.DefaultConfig()
	if name := c.String("config"); name != "" {
		var err error
		if cfg, err = node.ReadConfig(name); err != nil {
			return cfg, err
		}
	}
	for _, o := range []struct {
		flag string
		to   *string
	}{
		{"region", &cfg.Region}, {"node-id", &cfg.NodeID}, {"http", &cfg.HTTP}, {"grpc", &cfg.GRPC},
		{"resp", &cfg.RESP}, {"health", &cfg.Health}, {"admin", &cfg.Admin}, {"gossip", &cfg.Gossip.LAN}, {"gossip-wan",
			&cfg.Gossip.WAN}, {"key-file", &cfg.Gossip.KeyFile},
		{"advertise-lan", &cfg.Gossip.AdvertiseLAN}, {"advertise-wan", &cfg.Gossip.AdvertiseWAN},
		{"redis", &cfg.Redis.URL}, {"pressure-file", &cfg.PressureFile},
	} {
		if c.IsSet(o.flag) {
			*o.to = c.String(o.flag)
		}
	}
	if size := c.String("memory"); size != "" {
		var err error
		if cfg.Memory, err = node.ParseSize(size); err != nil {
			return cfg, wrongValue(c.Command, "memory", size)
		}
	}
	if c.IsSet("rules") {
		cfg.Rules = c.StringSlice("rules")
	}
	if c.IsSet("shadow") {
		cfg.Shadow = c.Bool("shadow")
	}
	if c.IsSet("join") {
		cfg.Gossip.Join = c.StringSlice("join")
	}
	if c.IsSet("interval") {
		cfg.Gossip.Interval = c.Duration("interval")
	}
	if c.IsSet("linger") {
		cfg.Linger = c.Duration("linger")
	}
	return cfg, nil
}

func newLogger(c *cli.Context) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cmp.Or(c.String("log-level"), "info"))); err != nil {
		return nil, misuse(c.Command, "--log-level %s: want debug, info, warn or error", c.String("log-level"))
	}
	opt := &slog.HandlerOptions{Level: level}
	if c.Bool("log-json") {
		return slog.New(slog.NewJSONHandler(os.Stderr, opt)), nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opt)), nil
}
