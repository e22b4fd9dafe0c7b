package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/edgelimit/edgelimit/testnet/accesslog"
	"github.com/edgelimit/edgelimit/testnet/demo"
	"github.com/edgelimit/edgelimit/testnet/sim"
)

func demoCommand() *cli.Command {
	def := demo.DefaultOptions()
	return &cli.Command{
		Name:  "demo",
		Usage: "watch a multi-region cluster limit, fall apart and heal",
		Description: "Runs all nodes in this process, gossiping over sockets on loopback. All regions together offer --load times the\n" +
			"limit; then one region is cut off for some seconds, and healed. The summary compares what was admitted with an\n" +
			"oracle: the same algorithm with instant knowledge of the whole world.\n\n" +
			"Real traffic: zcat access.log.gz | edgelimit demo --log -   (one client an address, sped up to --duration)\n\n" +
			"Exit status: 0 if the figures held and the cluster healed, 1 if not, 2 if it could not be run.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "regions", Usage: "how many regions", Value: def.Regions},
			&cli.IntFlag{Name: "nodes", Usage: "nodes in each region", Value: def.Nodes},
			&cli.Uint64Flag{Name: "limit", Usage: fmt.Sprintf("requests of a client per window, over the whole cluster (with --log: %d)", demo.DefaultLogLimit), Value: def.Limit},
			&cli.DurationFlag{Name: "window", Usage: "length of the window", Value: def.Window},
			&cli.DurationFlag{Name: "interval", Usage: "how often nodes tell each other what they admitted", Value: def.Interval},
			&cli.Float64Flag{Name: "load", Usage: "what all regions offer together, as a multiple of the limit", Value: def.Load},
			&cli.DurationFlag{Name: "duration", Usage: "how long requests come", Value: def.Duration},
			&cli.DurationFlag{Name: "cut", Usage: "how long one region is cut off; 0s: not at all", Value: def.Cut},
			&cli.StringFlag{Name: "on-partition", Usage: "what a limit does where peers are not heard: share, local", Value: def.OnPartition.String()},
			&cli.StringFlag{Name: "log", Usage: "offer the requests of an access `FILE` in common or combined format, gzip or not; - is standard input"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON, an object a line: samples, and the report as the last"},
		},
		Action: runDemo,
	}
}

func runDemo(c *cli.Context) error {
	if c.Args().Present() {
		return fmt.Errorf("demo takes no arguments, got %q; see edgelimit demo --help", c.Args().First())
	}
	o, err := demoOptions(c)
	if err != nil {
		return err
	}
	show := showFor(c)
	show.begin(o)
	defer sayStopping(c)()
	report, err := demo.Run(c.Context, o, show.sample)
	if errors.Is(err, context.Canceled) {
		return cli.Exit("interrupted", 2)
	} else if err != nil {
		return err
	}
	show.end(report)
	if !report.OK {
		return cli.Exit("", 1)
	}
	return nil
}

// sayStopping tells the user at once that an interrupt was heard. What it returns ends that, after the last word.
func sayStopping(c *cli.Context) (end func()) {
	said := make(chan struct{})
	forget := context.AfterFunc(c.Context, func() {
		defer close(said)
		fmt.Fprintln(c.App.ErrWriter, "edgelimit: stopping, the nodes say goodbye")
	})
	return func() {
		if !forget() {
			<-said
		}
	}
}

func demoOptions(c *cli.Context) (demo.Options, error) {
	o := demo.DefaultOptions()
	o.Regions, o.Nodes, o.Limit, o.Load = c.Int("regions"), c.Int("nodes"), c.Uint64("limit"), c.Float64("load")
	o.Window, o.Interval = c.Duration("window"), c.Duration("interval")
	o.Duration, o.Cut = c.Duration("duration"), c.Duration("cut")
	var err error
	if o.OnPartition, err = sim.ParsePolicy(c.String("on-partition")); err != nil {
		return o, err
	}
	if !c.IsSet("cut") && (o.Regions < 2 || o.Cut > o.Duration/3) {
		o.Cut = o.Duration / 4
		if o.Regions < 2 {
			o.Cut = 0
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

func readLog(c *cli.Context, name string) ([]accesslog.Entry, error) {
	in := c.App.Reader
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	var log []accesslog.Entry
	malformed := 0
	for e, err := range accesslog.Read(in) {
		if _, ok := errors.AsType[*accesslog.LineError](err); ok {
			if malformed++; malformed <= 3 {
				fmt.Fprintln(c.App.ErrWriter, "edgelimit:", err)
			}
			continue
		} else if err != nil {
			return nil, err
		}
		if log = append(log, accesslog.Entry{Addr: e.Addr, Time: e.Time}); len(log) > maxLog {
			return nil, fmt.Errorf("the log has more than %d requests; give a part of it", maxLog)
		}
	}
	if malformed > 0 {
		fmt.Fprintf(c.App.ErrWriter, "edgelimit: left out %d lines that are not in common or combined format\n", malformed)
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
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width >= tableWidth {
			return &tableShow{lineShow{out: out}}
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
	}{p.Elapsed.Round(time.Millisecond).Seconds(), string(p.Phase), p.Total.Offered, p.Total.Admitted, p.Total.OracleAdmitted,
		p.Over * 100, p.Bound * 100, p.Stale.Milliseconds()})
}

func (s *jsonShow) end(r *demo.Report) { _ = s.out.Encode(r) }
