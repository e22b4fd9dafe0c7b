package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
)

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "run a node",
		Description: "Without any flag: a single node on loopback with sample rules. Flags and EDGELIMIT_* variables go over the\n" +
			"configuration file; 'edgelimit serve --print-config' shows every setting with its default.\n" +
			"The process is held to its budget for counters (--memory), a tenth of it, 96 MiB and 24 KiB for each\n" +
			"connection that is open, unless GOMEMLIMIT says otherwise.\n\n" +
			"Rule files are watched: what is changed in them is in force a moment later, or refused as a whole and told in the log.\n" +
			"SIGHUP reads them at once, and the kill switch ('shadow') of the configuration file; other settings need a new start.\n\n" +
			"A cluster of two nodes in one region:\n" +
			"  edgelimit serve --node-id a --gossip 127.0.0.1:7946\n" +
			"  edgelimit serve --node-id b --gossip 127.0.0.1:7956 --join 127.0.0.1:7946 --http 127.0.0.1:8090 --health 127.0.0.1:9110",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "config", Usage: "configuration `FILE` (YAML)", EnvVars: env("CONFIG")},
			&cli.StringSliceFlag{Name: "rules", Usage: "rule `FILE` or directory (repeatable)", EnvVars: env("RULES")},
			&cli.BoolFlag{Name: "shadow", Usage: "the kill switch: deny nothing, count everything", EnvVars: env("SHADOW")},
			&cli.StringFlag{Name: "region", Usage: "`NAME` of the region that the node stands in", EnvVars: env("REGION")},
			&cli.StringFlag{Name: "node-id", Usage: "`NAME` of the node, unique in its region (default: the host's)", EnvVars: env("NODE_ID")},
			&cli.StringFlag{Name: "http", Usage: "`ADDRESS` of the HTTP door, host:port or unix:/path (default " + node.DefaultHTTP + ")", EnvVars: env("HTTP")},
			&cli.StringFlag{Name: "grpc", Usage: "`ADDRESS` of Envoy's rate limit service (default: closed)", EnvVars: env("GRPC")},
			&cli.StringFlag{Name: "resp", Usage: "`ADDRESS` of the Redis protocol, which is redis-cell's CL.THROTTLE (default: closed)", EnvVars: env("RESP")},
			&cli.StringFlag{Name: "health", Usage: "`ADDRESS` of /livez, /readyz and /metrics (default " + node.DefaultHealth + ")", EnvVars: env("HEALTH")},
			&cli.StringFlag{Name: "gossip", Usage: "`HOST:PORT` for the nodes of the region, UDP and TCP", EnvVars: env("GOSSIP")},
			&cli.StringFlag{Name: "gossip-wan", Usage: "`HOST:PORT` for the nodes of all regions, UDP and TCP", EnvVars: env("GOSSIP_WAN")},
			&cli.StringFlag{Name: "advertise-lan", Usage: "`HOST:PORT` under which the region reaches the node, if that differs", EnvVars: env("ADVERTISE_LAN")},
			&cli.StringFlag{Name: "advertise-wan", Usage: "`HOST:PORT` under which other regions reach it, if that differs", EnvVars: env("ADVERTISE_WAN")},
			&cli.StringSliceFlag{Name: "join", Usage: "`NODE` to join through: host[:port] in the region, wan:host[:port] anywhere (repeatable)", EnvVars: env("JOIN")},
			&cli.StringFlag{Name: "key-file", Usage: "`FILE` with the cluster's secrets, from edgelimit keygen; needed beyond loopback", EnvVars: env("KEY_FILE")},
			&cli.StringFlag{Name: "redis", Usage: "`URL` of the region's Redis: redis://host:6379, redis+sentinel://host,host/master, redis+cluster://host,host; rediss for TLS", EnvVars: env("REDIS")},
			&cli.StringFlag{Name: "memory", Usage: "`SIZE` of the counters' budget, as 64MiB or 1GiB", DefaultText: node.DefaultConfig().Memory.String(), EnvVars: env("MEMORY")},
			&cli.StringFlag{Name: "pressure-file", Usage: "`FILE` of pressure stall information, as /proc/pressure/cpu, that elastic rules look at", EnvVars: env("PRESSURE_FILE")},
			&cli.DurationFlag{Name: "interval", Usage: "how often the node tells its peers what it admitted", DefaultText: "100ms", EnvVars: env("INTERVAL")},
			&cli.StringFlag{Name: "log-level", Usage: "debug, info, warn or error", Value: "info", EnvVars: env("LOG_LEVEL")},
			&cli.BoolFlag{Name: "log-json", Usage: "log in JSON", EnvVars: env("LOG_JSON")},
			&cli.BoolFlag{Name: "print-config", Usage: "print the annotated sample configuration and exit"},
			comingFlag("admin", "the dashboard"),
		}, injectFlags()...),
		Action: serve,
	}
}

func env(name string) []string { return []string{"EDGELIMIT_" + name} }

// comingFlag keeps the name of a flag, and says so to whoever sets it.
func comingFlag(name, what string) cli.Flag {
	return &cli.StringFlag{Name: name, Hidden: true, EnvVars: env(strings.ToUpper(name)), Action: func(*cli.Context, string) error {
		return fmt.Errorf("--%s: %s is not in this version; leave the flag out", name, what)
	}}
}

func serve(c *cli.Context) error {
	if c.Args().Present() {
		return fmt.Errorf("serve takes no arguments, got %q; see edgelimit serve --help", c.Args().First())
	}
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
	cfg.Logger = logger
	if err := injectFaults(c, &cfg, logger); err != nil {
		return err
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
	defer obey(hangups, func() { reload(c, n, started, logger) })()
	return n.Run(c.Context)
}

// serveConfig is the configuration file with the flags over it.
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
		{"region", &cfg.Region}, {"node-id", &cfg.NodeID}, {"http", &cfg.HTTP}, {"grpc", &cfg.GRPC}, {"resp", &cfg.RESP}, {"health", &cfg.Health},
		{"gossip", &cfg.Gossip.LAN}, {"gossip-wan", &cfg.Gossip.WAN}, {"key-file", &cfg.Gossip.KeyFile},
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
			return cfg, fmt.Errorf("--memory: %w", err)
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
	return cfg, nil
}

func newLogger(c *cli.Context) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cmp.Or(c.String("log-level"), "info"))); err != nil {
		return nil, fmt.Errorf("--log-level: %q, want debug, info, warn or error", c.String("log-level"))
	}
	opt := &slog.HandlerOptions{Level: level}
	if c.Bool("log-json") {
		return slog.New(slog.NewJSONHandler(os.Stderr, opt)), nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opt)), nil
}
