package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/edgelimit/edgelimit/node/replay"
	"github.com/edgelimit/edgelimit/testnet/demo"
	"github.com/edgelimit/edgelimit/testnet/sim"
)

const demoHelp = `
Runs all nodes in this process, gossiping over sockets on loopback. All regions together offer --load times the limit;
then one region is partitioned from the others for some seconds, and healed. The summary compares what was admitted with
an oracle: the same algorithm with instant knowledge of all nodes.

Real traffic:  zcat access.log.gz | edgelimit demo --log -
No partition:  edgelimit demo --cut 0s

Of a log each address is a client, and its time is sped up to --duration. The limit is approximate: for strict rules see
testnet/README.md.

Exit status: 0 if the figures held and the cluster healed, 1 if not, 2 if it could not be run.`

func demoCommand() *cli.Command {
	o := demo.DefaultOptions()
	return &cli.Command{
		Name: "demo", Usage: "watch a multi-region cluster limit, fall apart and heal",
		Description: demoHelp,
		Flags:       demoFlags(&o),
		Action:      func(c *cli.Context) error { return runDemo(c, o) },
	}
}

// demoFlags set o, but for the policy and the log.
func demoFlags(o *demo.Options) []cli.Flag {
	const cluster, limit, traffic group = "The cluster", "The limit", "Traffic and faults"
	return []cli.Flag{
		cluster.flag("regions", "how many regions", &o.Regions),
		cluster.flag("nodes", "nodes in each region", &o.Nodes),
		cluster.flag("interval", "how often nodes send each other what they admitted", &o.Interval),
		limit.flag("limit", fmt.Sprintf("requests of a client per window, over the whole cluster (with --log: %d)",
			demo.DefaultLogLimit), &o.Limit),
		limit.flag("window", "length of the window", &o.Window),
		limit.flag("on-partition", "`POLICY` of the limit while peers cannot be reached: share, local",
			new(o.OnPartition.String())),
		traffic.flag("load", "what all regions offer together, as a multiple of the limit", &o.Load),
		traffic.flag("duration", "how long requests come", &o.Duration),
		traffic.flag("cut", "how long one region is partitioned; 0s: not at all", &o.Partition),
		traffic.flag("log", "offer the requests of an access `FILE` in common or combined format, gzip or not; - is "+
			"standard input", new(string)),
		plain.flag("json", "print JSON, an object a line: samples, and the report as the last", new(bool)),
		plain.flag("plot", "draw what was admitted against limit, oracle and bound into an SVG `FILE`", new(string)),
	}
}

func runDemo(c *cli.Context, o demo.Options) error {
	o, err := demoOptions(c, o)
	if err != nil {
		return err
	}
	show := showFor(c)
	report, err := plotted(c, func() (*demo.Report, error) {
		show.begin(o)
		defer announceStop(c)()
		return demo.Run(c.Context, o, show.sample)
	})
	if err != nil {
		return err
	}
	show.end(report)
	return exitStatus(nil, report.OK)
}

// announceStop reports an interrupt at once. The function that it returns ends that, after the last message.
func announceStop(c *cli.Context) (end func()) {
	reported := make(chan struct{})
	cancel := context.AfterFunc(c.Context, func() {
		defer close(reported)
		fmt.Fprintln(c.App.ErrWriter, "edgelimit: stopping, the nodes leave the cluster")
	})
	return func() {
		if !cancel() {
			<-reported
		}
	}
}

// demoOptions returns the options that flags have set, and those that are not to be set by a flag alone.
func demoOptions(c *cli.Context, o demo.Options) (demo.Options, error) {
	var err error
	if o.OnPartition, err = sim.ParsePolicy(c.String("on-partition")); err != nil {
		return o, err
	}
	switch {
	case c.IsSet("cut"):
	case o.Regions < 2:
		o.Partition = 0
	case o.Partition > o.Duration/3:
		o.Partition = o.Duration / 4
	}
	if name := c.String("log"); name != "" {
		if !c.IsSet("limit") {
			o.Limit = demo.DefaultLogLimit
		}
		if o.Log, err = readLog(c, name); err != nil {
			return o, err
		}
	}
	return o, o.Validate()
}

// maxLog caps the requests of a log: they are held in memory.
const maxLog = 5_000_000

func readLog(c *cli.Context, name string) ([]replay.Entry, error) {
	in, err := openInput(c, name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var log []replay.Entry
	malformed := 0
	for e, err := range replay.ReadLog(in) {
		if _, ok := errors.AsType[*replay.LineError](err); ok {
			if malformed++; malformed <= 3 {
				fmt.Fprintln(c.App.ErrWriter, "edgelimit:", err)
			}
			continue
		} else if err != nil {
			return nil, err
		}
		if log = append(log, replay.Entry{Addr: e.Addr, Time: e.Time}); len(log) > maxLog {
			return nil, fmt.Errorf("the log has more than %d requests; give a part of it", maxLog)
		}
	}
	if malformed > 0 {
		const text = "edgelimit: left out %d lines that are not in common or combined format\n"
		fmt.Fprintf(c.App.ErrWriter, text, malformed)
	}
	if len(log) == 0 {
		return nil, fmt.Errorf("the log %s holds no request in common or combined format", name)
	}
	return log, nil
}

// show is how a demo is shown.
type show interface {
	begin(demo.Options)
	sample(demo.Sample)
	end(*demo.Report)
}

func showFor(c *cli.Context) show {
	out := c.App.Writer
	if c.Bool("json") {
		return &jsonShow{json.NewEncoder(out)}
	}
	if f, ok := raw(out).(*os.File); ok && os.Getenv("TERM") != "dumb" {
		// Lines that wrap would spoil the table.
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width >= tableWidth && height >= tableHeight {
			return &tableShow{lineShow: lineShow{out: out}, terminal: f, ink: os.Getenv("NO_COLOR") == "",
				height: height}
		}
	}
	return &lineShow{out: out}
}

// jsonShow prints an object a line.
type jsonShow struct{ out *json.Encoder }

func (s *jsonShow) begin(demo.Options) {}

func (s *jsonShow) sample(p demo.Sample) {
	_ = s.out.Encode(struct {
		Seconds  float64 `json:"t"`
		Phase    string  `json:"phase"`
		Offered  uint64  `json:"offered"`
		Admitted uint64  `json:"admitted"`
		Oracle   uint64  `json:"oracle_admitted"`
		OverPct  float64 `json:"over_admission_pct"`
		BoundPct float64 `json:"bound_pct"`
		StaleMs  int64   `json:"staleness_ms"`
	}{
		p.Elapsed.Round(time.Millisecond).Seconds(), string(p.Phase), p.Total.Offered, p.Total.Admitted,
		p.Total.OracleAdmitted, p.Over * 100, p.Bound * 100, p.Stale.Milliseconds(),
	})
}

func (s *jsonShow) end(r *demo.Report) { _ = s.out.Encode(r) }
