package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/sim"
)

func simCommand() *cli.Command {
	def := sim.DefaultOptions()
	return &cli.Command{
		Name:  "sim",
		Usage: "predict what a deployment would admit, its bound and its bandwidth",
		Description: "Runs the real counting and gossip code of all nodes on virtual time, over a network with delay " +
			"and loss: minutes of a cluster\n" +
			"in seconds, the same for the same --seed. The figures compare what was admitted with an oracle: the " +
			"same algorithm with\n" +
			"instant knowledge of the whole world. Without flags it is the reference of the accuracy goals.\n\n" +
			"A shorter interval:      edgelimit sim --interval 50ms\n" +
			"A region cut off:        edgelimit sim --partition 2@20s-50s\n" +
			"Regions 1 and 2 apart:   edgelimit sim --partition 1/2@20s-50s     (one way: '1>2@20s-50s', " +
			"'2>*@20s-50s')\n" +
			"Redis flushed:           edgelimit sim --redis-fault flush@20s\n" +
			"A hundred nodes:         edgelimit sim --regions 5 --nodes 20 --duration 20s\n" +
			"Your own traffic:        edgelimit sim --trace arrivals.csv        (lines of seconds,region,node; - is " +
			"standard input)\n\n" +
			"Patterns: even (all nodes alike), skew (70 % on one node), hotspot (80 % on a node that changes every 3 " +
			"s), flash (0.5 times\n" +
			"the limit, 20 times for 1 s in every 20 s), compliant-burst (clients that keep to 95 % of the limit, in " +
			"bursts).\n" +
			"Buckets hold the limit, and get it back in each window. A limit of scope region is one of " +
			"--regions 1.\n\n" +
			"Faults of Redis: down@30s-40s (calls fail), mute@30s-40s (it does what it is told, and no answer " +
			"arrives), slow@30s-40s (up to\n" +
			"2.5 s a call; what timed out takes effect late), twice@30s-40s (calls take effect again later), " +
			"flush@20s (FLUSHALL), restart@20s\n" +
			"(another server, empty), stale@47s-50s (at 50 s a replica takes over that has heard nothing since 47 " +
			"s), rewind@47s-50s (the\n" +
			"same, but it says to be the server that it heard). It is the Redis of each region, or of one: " +
			"flush/2@20s. Each node has two\n" +
			"flushes after the faults to make good what was lost.\n\n" +
			"Exit status: 0 if the bound held, no client that keeps to its limit was rejected, all nodes came to " +
			"agree, and each Redis was\n" +
			"whole again; 1 if not; 2 if it could not be run.",
		Flags: []cli.Flag{
			&cli.IntFlag{
				Name: "regions", Usage: "how many regions (with --trace: as many as it names)", Value: def.Regions,
			},
			&cli.IntFlag{
				Name: "nodes", Usage: "nodes in each region (with --trace: as many as it names)", Value: def.Nodes,
			},
			&cli.Uint64Flag{
				Name: "limit", Usage: "requests of a client per window, over the whole cluster", Value: def.Limit,
			},
			&cli.DurationFlag{Name: "window", Usage: "length of the window", Value: def.Window},
			&cli.DurationFlag{
				Name: "interval", Usage: "how often nodes tell each other what they admitted", Value: def.Interval,
			},
			&cli.Float64Flag{
				Name: "load", Usage: "what all nodes together are offered for each client, as a multiple of the limit",
				Value: def.Load,
			},
			&cli.StringFlag{
				Name: "pattern", Usage: "when and where requests come: " + strings.Join(names(sim.Patterns), ", "),
				Value: string(def.Pattern),
			},
			&cli.DurationFlag{Name: "wan-delay", Usage: "one-way delay between regions", Value: def.WANDelay},
			&cli.DurationFlag{Name: "lan-delay", Usage: "one-way delay within a region", Value: def.LANDelay},
			&cli.Float64Flag{Name: "loss", Usage: "part of the packets that are lost, 0 to 1", Value: def.Loss},
			&cli.Float64Flag{
				Name: "duplicate", Usage: "part of the packets that arrive twice, 0 to 1", Value: def.Duplicate,
			},
			&cli.Float64Flag{
				Name: "reorder", Usage: "part of the packets that are held back for up to a second, 0 to 1",
				Value: def.Reorder,
			},
			&cli.DurationFlag{Name: "skew", Usage: "clocks are wrong by up to this, either way", Value: def.Skew},
			&cli.StringSliceFlag{
				Name:  "partition",
				Usage: "`REGION@FROM-UNTIL` cuts a region off from the others; may be repeated, see above",
			},
			&cli.StringSliceFlag{
				Name: "redis-fault",
				Usage: "give each region a Redis, and let `FAULT@WHEN` befall it; may be repeated, or several with " +
					"commas, see above",
			},
			&cli.IntFlag{
				Name: "keys",
				Usage: fmt.Sprintf("how many clients, each with its own limit and load (compliant-burst: %d)",
					sim.BurstKeys),
				Value: def.Keys,
			},
			&cli.IntFlag{
				Name:  "beside",
				Usage: "how many clients beside them that spend 95 % of the limit evenly, and must never be rejected",
				Value: def.Compliant,
			},
			&cli.DurationFlag{
				Name:  "burst",
				Usage: "compliant-burst: how long a burst lasts (0: 0.2 s, 1 s and 3 s in turn, client by client)",
				Value: def.Burst,
			},
			&cli.StringFlag{
				Name: "burst-at",
				Usage: "compliant-burst: where bursts come: " + strings.Join(names(sim.Placements),
					", ") + " (without it: in turn)",
			},
			&cli.DurationFlag{
				Name: "duration", Usage: "how long requests come, in simulated time (with --trace: all of it)",
				Value: def.Duration,
			},
			&cli.Uint64Flag{Name: "seed", Usage: "of everything random", Value: def.Seed},
			&cli.StringFlag{
				Name:  "strategy",
				Usage: "how nodes decide on what they know: " + strings.Join(names(sim.Strategies), ", "),
				Value: string(def.Strategy),
			},
			&cli.StringFlag{
				Name: "algorithm", Usage: "how the limit is kept: " + strings.Join(names(sim.Algorithms), ", "),
				Value: def.Method.String(),
			},
			&cli.StringFlag{
				Name: "on-partition", Usage: "what a limit does where peers are not heard: share, local",
				Value: def.OnPartition.String(),
			},
			&cli.StringFlag{Name: "trace", Usage: "offer the arrivals of a CSV `FILE` in place of a pattern"},
			&cli.BoolFlag{Name: "json", Usage: "print the report as a JSON object"},
			&cli.StringFlag{
				Name: "plot", Usage: "draw what was admitted against limit, oracle and bound into an SVG `FILE`",
			},
		},
		Action: runSim,
	}
}

func names[T any](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = fmt.Sprint(v)
	}
	return out
}

func runSim(c *cli.Context) error {
	if c.Args().Present() {
		return fmt.Errorf("sim takes no arguments, got %q; see edgelimit sim --help", c.Args().First())
	}
	o, err := simOptions(c)
	if err != nil {
		return err
	}
	report, err := sim.Run(c.Context, o, simProgress(c.App.ErrWriter, o.Duration))
	if errors.Is(err, context.Canceled) {
		return cli.Exit("interrupted", 2)
	} else if err != nil {
		return err
	}
	if name := c.String("plot"); name != "" {
		if err := writePlot(name, report); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		err = json.NewEncoder(c.App.Writer).Encode(report)
	} else {
		err = printSim(c.App.Writer, report)
	}
	if err != nil {
		return err
	}
	if !report.OK {
		return cli.Exit("", 1)
	}
	return nil
}

func simOptions(c *cli.Context) (sim.Options, error) {
	o := sim.DefaultOptions()
	o.Regions, o.Nodes, o.Limit, o.Load, o.Keys = c.Int(
		"regions",
	), c.Int("nodes"), c.Uint64("limit"), c.Float64("load"), c.Int("keys")
	o.Window, o.Interval, o.Duration, o.Seed = c.Duration(
		"window",
	), c.Duration("interval"), c.Duration("duration"), c.Uint64("seed")
	o.WANDelay, o.LANDelay, o.Loss, o.Skew = c.Duration(
		"wan-delay",
	), c.Duration("lan-delay"), c.Float64("loss"), c.Duration("skew")
	o.Duplicate, o.Reorder, o.Compliant = c.Float64("duplicate"), c.Float64("reorder"), c.Int("beside")
	o.Burst, o.BurstAt = c.Duration("burst"), sim.Placement(c.String("burst-at"))
	o.Pattern, o.Strategy = sim.Pattern(c.String("pattern")), sim.Strategy(c.String("strategy"))
	var errs []error
	var err error
	if o.Method, err = sim.ParseAlgorithm(c.String("algorithm")); err != nil {
		return o, err
	}
	if o.OnPartition, err = sim.ParsePolicy(c.String("on-partition")); err != nil {
		return o, err
	}
	for _, s := range c.StringSlice("partition") {
		p, err := sim.ParsePartition(s)
		errs = append(errs, err)
		o.Partitions = append(o.Partitions, p)
	}
	for _, s := range c.StringSlice("redis-fault") {
		f, err := sim.ParseStoreFault(strings.TrimSpace(s))
		errs = append(errs, err)
		o.StoreFaults = append(o.StoreFaults, f)
	}
	if err := errors.Join(errs...); err != nil {
		return o, err
	}
	if name := c.String("trace"); name != "" {
		if err := readTrace(c, name, &o); err != nil {
			return o, err
		}
	} else if c.IsSet("load") && !o.Pattern.HasLoad() {
		return o, fmt.Errorf("--load does not apply to the pattern %s, which has a load of its own", o.Pattern)
	}
	if o.Pattern == sim.CompliantBurst && !c.IsSet("keys") {
		o.Keys = sim.BurstKeys
	}
	return o, o.Validate()
}

// readTrace has a trace offered. It says where and when; a flag may only make the cluster larger and the run shorter.
func readTrace(c *cli.Context, name string, o *sim.Options) error {
	for _, flag := range []string{"load", "pattern", "keys"} {
		if c.IsSet(flag) {
			return fmt.Errorf("--%s does not go with --trace, which says when and where requests come", flag)
		}
	}
	in := c.App.Reader
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	trace, err := sim.ReadTrace(in)
	if err != nil {
		return err
	}
	o.Trace = trace
	if !c.IsSet("regions") {
		o.Regions = trace.Regions
	}
	if !c.IsSet("nodes") {
		o.Nodes = trace.Nodes
	}
	if !c.IsSet("duration") {
		o.Duration = trace.Duration()
	}
	return nil
}

func writePlot(name string, r *sim.Report) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(r.WritePlot(f), f.Close())
}

// Progress is told of runs that take long.
const (
	simQuiet    = 2 * time.Second
	simConfirms = 2 * time.Second
)

func simProgress(out io.Writer, duration time.Duration) func(time.Duration) {
	return simProgressFrom(out, duration, time.Now().Add(simQuiet))
}

func simProgressFrom(out io.Writer, duration time.Duration, next time.Time) func(time.Duration) {
	return func(done time.Duration) {
		if now := time.Now(); now.After(next) {
			next = now.Add(simConfirms)
			fmt.Fprintf(out, "edgelimit: simulated %v of %v\n", done.Round(100*time.Millisecond), duration)
		}
	}
}
