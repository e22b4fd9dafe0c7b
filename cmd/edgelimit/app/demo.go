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

func demoCommand() *cli.Command {
	const cluster, limit, traffic = "The cluster", "The limit", "Traffic and faults"
	def := demo.DefaultOptions()
	return &cli.Command{
		Name:  "demo",
		Usage: "watch a multi-region cluster limit, fall apart and heal",
		Description: "Runs all nodes in this process, gossiping over sockets on loopback. All regions together\n" +
			"offer --load times the limit; then one region is partitioned from the others for some seconds, and " +
			"healed.\n" +
			"The summary compares what was admitted with an oracle: the same algorithm with instant knowledge of\n" +
			"all nodes.\n\n" +
			"Real traffic:  zcat access.log.gz | edgelimit demo --log -\n" +
			"No partition:  edgelimit demo --cut 0s\n\n" +
			"Of a log each address is a client, and its time is sped up to --duration.\n\n" +
			"Exit status: 0 if the figures held and the cluster healed, 1 if not, 2 if it could not be run.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "regions", Usage: "how many regions", Value: def.Regions, Category: cluster},
			&cli.IntFlag{Name: "nodes", Usage: "nodes in each region", Value: def.Nodes, Category: cluster},
			&cli.DurationFlag{Name: "interval", Usage: "how often nodes send each other what they admitted",
				Value: def.Interval, Category: cluster},
			&cli.Uint64Flag{Name: "limit", Usage: fmt.Sprintf("requests of a client per window, over the whole "+
				"cluster (with --log: %d)", demo.DefaultLogLimit), Value: def.Limit, Category: limit},
			&cli.DurationFlag{Name: "window", Usage: "length of the window", Value: def.Window, Category: limit},
			&cli.StringFlag{Name: "on-partition",
				Usage: "`POLICY` of the limit while peers cannot be reached: share, local",
				Value: def.OnPartition.String(), Category: limit},
			&cli.Float64Flag{Name: "load", Usage: "what all regions offer together, as a multiple of the limit",
				Value: def.Load, Category: traffic},
			&cli.DurationFlag{Name: "duration", Usage: "how long requests come",
				Value: def.Duration, Category: traffic},
			&cli.DurationFlag{Name: "cut", Usage: "how long one region is partitioned; 0s: not at all",
				Value: def.Partition, Category: traffic},
			&cli.StringFlag{Name: "log", Usage: "offer the requests of an access `FILE` in common or combined " +
				"format, gzip or not; - is standard input", Category: traffic},
			&cli.BoolFlag{Name: "json", Usage: "print JSON, an object a line: samples, and the report as the last"},
			&cli.StringFlag{Name: "plot",
				Usage: "draw what was admitted against limit, oracle and bound into an SVG `FILE`"},
		},
		Action: runDemo,
	}
}

func runDemo(c *cli.Context) error {
	o, err := demoOptions(c)
	if err != nil {
		return err
	}
	var svg *os.File
	if name := c.String("plot"); name != "" {
		if svg, err = os.Create(name); err != nil {
			return err
		}
		defer svg.Close()
	}
	show := showFor(c)
	show.begin(o)
	defer announceStop(c)()
	report, err := demo.Run(c.Context, o, show.sample)
	if errors.Is(err, context.Canceled) {
		return cli.Exit("interrupted", 2)
	} else if err != nil {
		return err
	}
	if svg != nil {
		if err := errors.Join(report.WritePlot(svg), svg.Close()); err != nil {
			return err
		}
	}
	show.end(report)
	if !report.OK {
		return cli.Exit("", 1)
	}
	return nil
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

func demoOptions(c *cli.Context) (demo.Options, error) {
	o := demo.DefaultOptions()
	o.Regions, o.Nodes, o.Limit, o.Load = c.Int("regions"), c.Int("nodes"), c.Uint64("limit"), c.Float64("load")
	o.Window, o.Interval = c.Duration("window"), c.Duration("interval")
	o.Duration, o.Partition = c.Duration("duration"), c.Duration("cut")
	var err error
	if o.OnPartition, err = sim.ParsePolicy(c.String("on-partition")); err != nil {
		return o, err
	}
	if !c.IsSet("cut") && (o.Regions < 2 || o.Partition > o.Duration/3) {
		o.Partition = o.Duration / 4
		if o.Regions < 2 {
			o.Partition = 0
		}
	}
	if name := c.String("log"); name != "" {
		if !c.IsSet("limit") {
			o.Limit = demo.DefaultLogLimit
		}
		var err error
		if o.Log, err = readLog(c, name); err != nil {
			return o, err
		}
	}
	return o, o.Validate()
}

// maxLog caps the requests of a log: they are held in memory.
const maxLog = 5_000_000

func readLog(c *cli.Context, name string) ([]replay.Entry, error) {
	in := c.App.Reader
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
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
	if f, ok := out.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		// Lines that wrap would spoil the table.
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width >= tableWidth && height >= tableHeight {
			return &tableShow{lineShow: lineShow{out: out}, ink: os.Getenv("NO_COLOR") == "", height: height}
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
