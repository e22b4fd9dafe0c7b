package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node/text"
	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/plan"
	"github.com/edgelimit/edgelimit/testnet/sim"
)

const simHelp = `
Runs the real counting and gossip code of all nodes on virtual time, over a network with delay and loss: minutes of a
cluster in seconds, the same for the same --seed. The figures compare what was admitted with an oracle: the same
algorithm with instant knowledge of the whole world. Without flags it is the reference of the accuracy goals.

A shorter interval:   edgelimit sim --interval 50ms
A region cut off:     edgelimit sim --partition 2@20s-50s
Regions 1, 2 apart:   edgelimit sim --partition 1/2@20s-50s
                      (one way: '1>2@20s-50s', '2>*@20s-50s')
An owner killed:      edgelimit sim --nodes 40 --node-fault owner/2@20s-40s
Redis flushed:        edgelimit sim --redis-fault flush@20s
A hundred nodes:      edgelimit sim --regions 5 --nodes 20 --duration 20s
What a node needs:    edgelimit sim --regions 30 --nodes 50 --keys-total 10M
Your own traffic:     edgelimit sim --trace arrivals.csv
                      (lines of seconds,region,node; - is standard input)

Patterns: even (all nodes alike), skew (70 % on one node), hotspot (80 % on a node that changes every 3 s), flash (0.5
times the limit, 20 times for 1 s in every 20 s), compliant-burst (clients that keep to 95 % of the limit, in bursts).
Buckets hold the limit, and get it back in each window. A limit of scope region is one of --regions 1.
Strict rules are not simulated: a Redis decides on them, and admits what one node alone would.

Faults of nodes: owner@10s-20s (the owner of the first client's key crashes, and starts again at 20 s),
two-owners@10s-20s (half of the nodes take another for it), gateways@10s-20s (a region's gateways crash; until they
start again, no region learns of another's members), rolling@10s-60s (the nodes restart, one after the other). They
befall every region, or one: owner/2@10s-20s.

Faults of Redis: down@30s-40s (calls fail), mute@30s-40s (it does what it is told, and no answer arrives), slow@30s-40s
(up to 2.5 s a call; what timed out takes effect late), twice@30s-40s (calls take effect again later), flush@20s
(FLUSHALL), restart@20s (another server, empty), stale@47s-50s (at 50 s a replica takes over that has heard nothing
since 47 s), rewind@47s-50s (the same, but it says to be the server that it heard). It is the Redis of each region, or
of one: flush/2@20s. Each node has two flushes after the faults to make good what was lost.

With --keys-total it plans instead: the bandwidth, messages, CPU and memory of a
node for a load of many keys, what runs out first as the load grows, and what a
full mesh of the same nodes would need. A sample of the keys is simulated, the
rest is arithmetic, and the plan states both. Limit, window, interval, delays,
loss and seed are as above; with --keys, that many more keys are hot at every
node, at --load times the limit in all. Set the budget of your nodes. Exit
status: 0 if it is enough for the busiest node, 1 if not.

Exit status of a simulation: 0 if the bound held, no client that keeps to its
limit was rejected, all nodes came to agree, and each Redis was whole again; 1
if not; 2 if it could not be run.`

func simCommand() *cli.Command {
	l := sim.Load{Options: sim.DefaultOptions(), Overlap: 5}
	b := plan.DefaultBudget()
	return &cli.Command{
		Name: "sim", Usage: "predict what a deployment would admit, its bound, and what its nodes need",
		Description: simHelp,
		Flags:       append(planFlags(&l, &b), simFlags(&l.Options)...),
		Action: func(c *cli.Context) error {
			if c.IsSet("keys-total") {
				return runPlan(c, l, b)
			}
			for _, f := range planFlags(&l, &b) {
				if name := f.Names()[0]; c.IsSet(name) {
					return fmt.Errorf("--%s only goes with --keys-total", name)
				}
			}
			return runSim(c, l.Options)
		},
	}
}

// simFlags set o, but for what has to be parsed.
func simFlags(o *sim.Options) []cli.Flag {
	return []cli.Flag{
		plain.flag("regions", "how many regions (with --trace: as many as it names)", &o.Regions),
		plain.flag("nodes", "nodes in each region (with --trace: as many as it names)", &o.Nodes),
		plain.flag("limit", "requests of a client per window, over the whole cluster", &o.Limit),
		plain.flag("window", "length of the window", &o.Window),
		plain.flag("interval", "how often nodes send their peers what they admitted", &o.Interval),
		plain.flag("load", "what all nodes together are offered for each client, as a multiple of the limit", &o.Load),
		plain.flag("pattern", "when and where requests come: "+list(sim.Patterns), (*string)(&o.Pattern)),
		plain.flag("wan-delay", "one-way delay between regions", &o.WANDelay),
		plain.flag("lan-delay", "one-way delay within a region", &o.LANDelay),
		plain.flag("loss", "part of the packets that are lost, 0 to 1", &o.Loss),
		plain.flag("duplicate", "part of the packets that arrive twice, 0 to 1", &o.Duplicate),
		plain.flag("reorder", "part of the packets that are held back for up to a second, 0 to 1", &o.Reorder),
		plain.flag("skew", "clocks are wrong by up to this, either way", &o.Skew),
		plain.flag("partition", "`REGION@FROM-UNTIL` cuts a region off from the others; may be repeated, see above",
			new([]string)),
		plain.flag("node-fault", "let `FAULT@FROM-UNTIL` befall nodes; may be repeated, see above", new([]string)),
		plain.flag("redis-fault", "give each region a Redis, and let `FAULT@WHEN` befall it; may be repeated, or "+
			"several with commas, see above", new([]string)),
		plain.flag("keys", fmt.Sprintf("how many clients, each with its own limit and load (compliant-burst: %d)",
			sim.BurstKeys), &o.Keys),
		plain.flag("beside", "how many clients beside them that spend 95 % of the limit evenly, and must never be "+
			"rejected", &o.Compliant),
		plain.flag("burst", "compliant-burst: how long a burst lasts (0: 0.2 s, 1 s and 3 s in turn, client by client)",
			&o.Burst),
		plain.flag("burst-at", "compliant-burst: where bursts come: "+list(sim.Placements)+" (without it: in turn)",
			(*string)(&o.BurstAt)),
		plain.flag("duration", "how long requests come, in simulated time (with --trace: all of it)", &o.Duration),
		plain.flag("seed", "of everything random", &o.Seed),
		plain.flag("strategy", "how nodes decide on what they know: "+list(sim.Strategies), (*string)(&o.Strategy)),
		plain.flag("algorithm", "how the limit is kept: "+list(sim.Algorithms), new(o.Method.String())),
		plain.flag("on-partition", "what a limit does where peers are unreachable: share, local",
			new(o.OnPartition.String())),
		plain.flag("trace", "offer the arrivals of a CSV `FILE` in place of a pattern", new(string)),
		plain.flag("json", "print the report as a JSON object", new(bool)),
		plain.flag("plot", "draw what was admitted against limit, oracle and bound into an SVG `FILE`", new(string)),
	}
}

func runSim(c *cli.Context, o sim.Options) error {
	o, err := simOptions(c, o)
	if err != nil {
		return err
	}
	report, err := plotted(c, func() (*sim.Report, error) {
		sim.CollectSoon()
		return sim.Run(c.Context, o, simProgress(c.App.ErrWriter, o.Duration))
	})
	switch {
	case err != nil:
		return err
	case c.Bool("json"):
		err = json.NewEncoder(c.App.Writer).Encode(report)
	default:
		err = printSim(c.App.Writer, report)
	}
	return exitStatus(err, report.OK)
}

// simOptions returns the options that flags have set, with what has to be parsed.
func simOptions(c *cli.Context, o sim.Options) (sim.Options, error) {
	var err error
	if o.Method, err = sim.ParseAlgorithm(c.String("algorithm")); err != nil {
		return o, err
	}
	if o.OnPartition, err = sim.ParsePolicy(c.String("on-partition")); err != nil {
		return o, err
	}
	var errs []error
	for _, s := range c.StringSlice("partition") {
		p, err := sim.ParsePartition(s)
		errs = append(errs, err)
		o.Partitions = append(o.Partitions, p)
	}
	for _, s := range c.StringSlice("node-fault") {
		f, err := sim.ParseNodeFault(strings.TrimSpace(s))
		errs = append(errs, err)
		o.NodeFaults = append(o.NodeFaults, f)
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
	in, err := openInput(c, name)
	if err != nil {
		return err
	}
	defer in.Close()
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

// simProgress returns a function that prints how far a long simulation is.
func simProgress(out io.Writer, duration time.Duration) func(time.Duration) {
	due := progress()
	return func(done time.Duration) {
		if due() {
			fmt.Fprintf(out, "edgelimit: simulated %v of %v\n", text.Duration(done.Round(100*time.Millisecond)),
				text.Duration(duration))
		}
	}
}

// printSim prints a report as a table.
func printSim(out io.Writer, r *sim.Report) error {
	fmt.Fprintf(out, "edgelimit sim: %d regions of %d nodes, a limit of %d per %gs and client, %s;\n",
		r.Regions, r.Nodes, r.Limit, r.WindowSeconds, r.Algorithm)
	compliant := textIf(r.Compliant > 0, ", and beside them %d at 95 %% of the limit", r.Compliant)
	fmt.Fprintf(out, "%s at %g times the limit for %gs, clients: %d%s; gossip every %g ms;\n", r.Pattern, r.Load,
		r.Seconds, r.Keys, compliant, r.IntervalMillis)
	fmt.Fprintf(out, "one way %g ms between regions and %g ms inside, %g %% loss%s; seed %d.\n\n",
		r.WANDelayMillis, r.LANDelayMillis, r.Loss*100, simFaults(r), r.Seed)

	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "offered\t%d requests\n", r.Offered)
	fmt.Fprint(w, textIf(r.Failed > 0, "not answered\t%d\n", r.Failed))
	fmt.Fprintf(w, "admitted\t%d; the oracle would have admitted %d\n", r.Admitted, r.OracleAdmitted)
	fmt.Fprintf(w, "net over-admission\t%+.2f %% (%s)\n", r.NetPct, settled(r, r.SettledNetPct))
	fmt.Fprintf(w, "peak over-admission\t%+.2f %% of the limit in the worst window (%s)\n", r.PeakPct,
		settled(r, r.SettledPeakPct))
	fmt.Fprintf(w, "bound\t%.2f %% at worst, %s\n", r.BoundPct, observed(r))
	fmt.Fprintf(w, "estimate\twithin 2 %% of the limit of what was observed, in %.0f %% of the windows\n",
		r.EstimateWithinPct)
	fmt.Fprintf(w, "false rejections\t%s\n", falseRejections(r.Fairness))
	fmt.Fprint(w, textIf(r.StalenessP99Millis > 0, "staleness\tmedian %.0f ms, 99th percentile %.0f ms\n",
		r.StalenessP50Millis, r.StalenessP99Millis))
	fmt.Fprint(w, textIf(r.HereP99Millis+r.AcrossP99Millis > 0, "counted by others\tmedian %.0f ms and %.0f ms, 99th "+
		"percentile %.0f ms and %.0f ms after, in the region and across\n",
		r.HereP50Millis, r.AcrossP50Millis, r.HereP99Millis, r.AcrossP99Millis))
	fmt.Fprint(w, textIf(len(r.Partitions) > 0, "healed\t%s\n",
		after(int64(r.HealMillis), "every node knew all counts again")))
	if r.Redis != nil {
		fmt.Fprintf(w, "Redis\t%s\n", redis(r.Redis))
	}
	fmt.Fprintf(w, "after the last request\t%s\n", after(int64(r.AgreeMillis), "all nodes held the same counts"))
	fmt.Fprintf(w, "each node sends\t%.1f messages/s, %.1f kB/s\n", r.MessagesPerNode, r.BytesPerNode/1000)
	if err := w.Flush(); err != nil {
		return err
	}
	return printVerdict(out, r.Wrong)
}

func simFaults(r *sim.Report) string {
	faults := textIf(r.Duplicate > 0, ", %g %% twice", r.Duplicate*100) +
		textIf(r.Reorder > 0, ", %g %% held back", r.Reorder*100) +
		textIf(r.SkewMillis > 0, ", clocks up to %g ms wrong", r.SkewMillis) +
		textIf(len(r.Partitions) > 0, ", partitions %s", strings.Join(r.Partitions, " ")) +
		textIf(len(r.NodeFaults) > 0, ", nodes %s", strings.Join(r.NodeFaults, " "))
	if r.Redis != nil {
		faults += ", Redis " + strings.Join(r.Redis.Faults, " ")
	}
	return faults
}

func redis(r *sim.StoreReport) string {
	repaired := fmt.Sprintf("whole again after %.0f ms and %d flushes at most", r.RepairMillis, r.RepairFlushes)
	if r.RepairFlushes < 0 {
		repaired = fmt.Sprintf("NOT whole after two flushes, %d counts missing", r.SlotsMissing)
	}
	return fmt.Sprintf("lost %d counts; %s; %d of %d calls failed", r.SlotsLost, repaired, r.Failed, r.Calls)
}

// settled tells a figure that has nothing of the first window, if the run was long enough for one.
func settled(r *sim.Report, pct float64) string {
	if r.Seconds <= 2*r.WindowSeconds {
		return "the first window included"
	}
	return fmt.Sprintf("without the first window %+.2f %%", pct)
}

func observed(r *sim.Report) string {
	if r.ObservedPct <= 0 {
		return "the count of what was admitted never exceeded the limit"
	}
	held := "held at every moment"
	if !r.BoundHeld {
		held = "did NOT hold"
	}
	return fmt.Sprintf("%s; %.2f %% observed, a factor of %.1f", held, r.ObservedPct, r.BoundRatio)
}

func falseRejections(f judge.Fairness) string {
	if f.CompliantClients == 0 {
		return "no client kept to 95 % of its limit"
	}
	return fmt.Sprintf("%d of %d requests of clients within 95 %% of the limit", f.FalseRejections, f.CompliantOffered)
}
