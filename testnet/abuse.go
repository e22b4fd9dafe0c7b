package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/abuse"
)

func abuseCommand() *cli.Command {
	o := abuse.DefaultOptions()
	count := func(name, usage string, to *int) cli.Flag {
		return &cli.IntFlag{Name: name, Usage: usage, Value: *to, Destination: to}
	}
	return &cli.Command{
		Name:  "abuse",
		Usage: "test one node, without containers, under abusive clients",
		Description: "Builds edgelimit, starts 'edgelimit serve' on ports of loopback, and sends requests of " +
			"compliant\n" +
			"clients: alone, and beside idle and stalled connections, long bodies, invalid requests to every\n" +
			"listener, hanging health watches, and HTTP/2 streams that are reset at once. The node has to stay " +
			"alive, answer every\n" +
			"compliant client, and release its resources afterwards. Takes two minutes.\n\n" +
			"Exit status: 0 if all assertions hold, 1 if not.",
		Flags: []cli.Flag{
			count("idle", "`CONNECTIONS` that stay idle, per listener", &o.Idle),
			count("stalled", "`CONNECTIONS` that never complete a request", &o.Stalled),
			count("bodies", "`CONNECTIONS` with a body of 1 MiB without its end", &o.Bodies),
			count("rounds", "`TIMES` that each worker sends all kinds of invalid requests", &o.Rounds),
			count("requests", "`REQUESTS` of each compliant client in a phase, 50 a second", &o.Requests),
			patienceFlag(o.Timeout),
		},
		Action: func(c *cli.Context) error {
			if err := checkArgs(c); err != nil {
				return err
			}
			o.Timeout = c.Duration("patience")
			return runAbuse(c, o)
		},
	}
}

func runAbuse(c *cli.Context, o abuse.Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "edgelimit-abuse-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, err := abuse.Build(c.Context, c.String("root"), dir)
	if err != nil {
		return err
	}
	p, err := abuse.Start(c.Context, binary, c.App.ErrWriter, "serve", []string{"http", "resp", "grpc"}, nil)
	if err != nil {
		return err
	}
	target := abuse.Target{HTTP: p.Addr["http"], RESP: p.Addr["resp"], GRPC: p.Addr["grpc"], Health: p.Addr["health"]}
	report, err := abuse.Run(c.Context, target, o, func(phase abuse.Phase) {
		fmt.Fprintf(c.App.ErrWriter, "%s: %.1f s\n", phase.Name, phase.Seconds)
	})
	if exit := p.Stop(); exit != nil {
		report.Broken = append(report.Broken, exit.Error())
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
		err = cli.Exit(fmt.Sprintf("%d assertions failed", len(report.Broken)), 1)
	}
	return err
}
