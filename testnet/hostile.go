package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/hostile"
)

func hostileCommand() *cli.Command {
	o := hostile.DefaultOptions()
	return &cli.Command{
		Name:  "hostile",
		Usage: "hold one node, without containers, against clients that mean it harm",
		Description: "Builds edgelimit, starts 'edgelimit serve' on ports of loopback, and has clients that behave ask it: alone, beside connections\n" +
			"that stay idle or never end what they begin, long bodies, nonsense at every door, and streams that are reset as fast as\n" +
			"they are opened. The node has to live, to answer every one that behaves, and to give back what it took. Takes two minutes.\n\n" +
			"Exit status: 0 it did, 1 not.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "idle", Usage: "`CONNECTIONS` that stay idle, at each door", Value: o.Idle},
			&cli.IntFlag{Name: "stalled", Usage: "`CONNECTIONS` that never end what they begin", Value: o.Stalled},
			&cli.IntFlag{Name: "bodies", Usage: "`CONNECTIONS` with a body of a MiB whose end does not come", Value: o.Bodies},
			&cli.IntFlag{Name: "rounds", Usage: "`TIMES` that each worker says all kinds of nonsense", Value: o.Rounds},
			&cli.IntFlag{Name: "requests", Usage: "`TIMES` that each client that behaves asks in a phase, 50 a second", Value: o.Requests},
			patienceFlag(o.Patience),
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usageError(c)
			}
			o.Idle, o.Stalled, o.Bodies, o.Rounds, o.Requests = c.Int("idle"), c.Int("stalled"), c.Int("bodies"), c.Int("rounds"), c.Int("requests")
			o.Patience = c.Duration("patience")
			return runHostile(c, o)
		},
	}
}

func runHostile(c *cli.Context, o hostile.Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	p, err := hostile.Start(c.Context, c.String("root"), c.App.ErrWriter)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.App.ErrWriter, "doors:", p.Target.Doors())
	report, err := hostile.Run(c.Context, p.Target, o, func(phase hostile.Phase) {
		fmt.Fprintf(c.App.ErrWriter, "%s: %.1f s\n", phase.Name, phase.Seconds)
	})
	if ended := p.Stop(); ended != nil {
		report.Broken = append(report.Broken, ended.Error())
	}
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = printJSON(c.App.Writer, &report)
	} else {
		err = report.Write(c.App.Writer)
	}
	if err == nil && len(report.Broken) > 0 {
		err = cli.Exit(fmt.Sprintf("%d promises were broken", len(report.Broken)), 1)
	}
	return err
}
