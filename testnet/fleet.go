package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/fleet"
	"github.com/edgelimit/edgelimit/testnet/netem"
)

func fleetCommand() *cli.Command {
	o := fleet.DefaultOptions()
	count := func(name, usage string, to *int) cli.Flag {
		return &cli.IntFlag{Name: name, Usage: usage, Value: *to, Destination: to}
	}
	return &cli.Command{
		Name:  "fleet",
		Usage: "run a large cluster as processes of this machine, without containers: load, then restart every node",
		Description: "Builds the nodes and starts them on ports of loopback, and a Redis for each region. Load:\n" +
			"clients above their limits at all nodes, one that keeps to it, and many small ones. Measures how\n" +
			"old what nodes know of each other is, what they cost, and whether all count what was\n" +
			"acknowledged, also after every one of them was restarted in turn. 100 nodes take some 10 minutes\n" +
			"and 6 GiB.\n\n" +
			"Exit status: 0 if all assertions hold, 1 if not.",
		Flags: []cli.Flag{
			count("regions", "`REGIONS`, each with a Redis", &o.Regions),
			count("nodes", "`NODES` in each region", &o.Nodes),
			&cli.DurationFlag{Name: "for", Usage: "`DURATION` of the load before the restarts", Value: o.For,
				Destination: &o.For},
			&cli.BoolFlag{Name: "restart", Usage: "restart every node in turn after that", Value: o.Restart,
				Destination: &o.Restart},
			&cli.DurationFlag{Name: "interval", Usage: "`DURATION` of a gossip interval", Value: o.Interval,
				Destination: &o.Interval},
			&cli.DurationFlag{Name: "wan-delay", Usage: "`DURATION` that a packet to another region takes",
				Value: o.WAN.Latency, Destination: &o.WAN.Latency},
			count("base-port", "first `PORT` on loopback", &o.BasePort),
			count("max-procs", "GOMAXPROCS of a node", &o.MaxProcs),
			count("memory", "GOMEMLIMIT of a node, in `MIB`", &o.Memory),
			&cli.Float64Flag{Name: "rate", Usage: "`REQUESTS` a second of small clients, and as many of others",
				Value: o.Rate, Destination: &o.Rate},
			logsFlag(),
		},
		Action: func(c *cli.Context) error {
			if err := checkArgs(c); err != nil {
				return err
			}
			return withNodes(c, o, func(o fleet.Options) error { return runFleet(c, o) })
		},
	}
}

func logsFlag() cli.Flag {
	return &cli.StringFlag{Name: "logs", Usage: "keep the logs of all nodes in `FOLDER`; without it, those of a run " +
		"that failed are kept in a temporary one"}
}

// withNodes builds the nodes' program, and calls do with a folder for their logs, which goes unless do fails.
func withNodes(c *cli.Context, o fleet.Options, do func(o fleet.Options) error) (err error) {
	o.Progress = c.App.ErrWriter
	if o.Dir = c.String("logs"); o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "edgelimit-fleet-"); err != nil {
			return err
		}
	} else if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return err
	} else if err = os.MkdirAll(o.Dir, 0o755); err != nil {
		return err
	}
	o.Program = filepath.Join(o.Dir, "edgelimit")
	if err = o.Validate(); err == nil {
		err = buildNode(c.Context, c.String("root"), o.Program)
	}
	if err == nil {
		err = do(o)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w; the logs are in %s", err, o.Dir)
	case c.String("logs") == "":
		return os.RemoveAll(o.Dir)
	}
	return nil
}

func runFleet(c *cli.Context, o fleet.Options) error {
	r, err := fleet.Run(c.Context, o)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = printJSON(c.App.Writer, r)
	} else {
		err = r.WriteText(c.App.Writer)
	}
	if err == nil && !r.OK {
		err = errors.New("not all assertions hold")
	}
	return err
}

// buildNode builds the nodes' program from the repository at root.
func buildNode(ctx context.Context, root, program string) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./testnet/node")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the nodes: %w: %s", err, out)
	}
	return nil
}

func doorsCommand() *cli.Command {
	o := fleet.DefaultOptions()
	o.Regions, o.Nodes, o.Interval, o.WAN, o.Memory = 3, 2, 100*time.Millisecond, netem.Link{}, 256
	t := fleet.ThroughputOptions{Slice: 5 * time.Second, Connections: 2, Clients: 1000, Rate: 100_000}
	count := func(name, usage string, to *int) cli.Flag {
		return &cli.IntFlag{Name: name, Usage: usage, Value: *to, Destination: to}
	}
	return &cli.Command{
		Name:  "doors",
		Usage: "measure how many decisions a second six nodes make at each API that takes many at once",
		Description: "Starts six nodes in three regions as processes of this machine, which replicate to each\n" +
			"other, and asks all of them at one door after the other: as fast as they answer, and then at --rate.\n" +
			"The clients share the processors; the table says what they took. Run it on a quiet machine.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "slice", Usage: "`DURATION` of each measurement", Value: t.Slice,
				Destination: &t.Slice},
			count("connections", "`CONNECTIONS` to each node", &t.Connections),
			count("clients", "`CLIENTS` that all connections ask for", &t.Clients),
			count("rate", "`DECISIONS` a second of the paced part", &t.Rate),
			count("base-port", "first `PORT` on loopback", &o.BasePort),
			count("max-procs", "GOMAXPROCS of a node", &o.MaxProcs),
			&cli.StringFlag{Name: "door", Usage: "only doors whose names contain this `TEXT`", Destination: &t.Door},
			logsFlag(),
		},
		Action: func(c *cli.Context) error {
			if err := checkArgs(c); err != nil {
				return err
			}
			return withNodes(c, o, func(o fleet.Options) error {
				r, err := fleet.MeasureDoors(c.Context, o, t)
				if err != nil {
					return err
				}
				if c.Bool("json") {
					return printJSON(c.App.Writer, r)
				}
				return r.WriteText(c.App.Writer)
			})
		},
	}
}
