package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/cluster"
)

func buildCommand(open opener) *cli.Command {
	return &cli.Command{
		Name: "build",
		Usage: "build the images: edgelimit and ratelimit (for users), node (with fault injection), redis; or those " +
			"named",
		ArgsUsage: "[IMAGE...]",
		Description: "Nothing has to be pulled: the programs are compiled here, and Redis is made of Debian's\n" +
			"redis-server, which is installed with apt-get if it is missing. Where images can be pulled,\n" +
			"--pull takes the public Redis instead.\n\n" +
			"The image for users:  go run ./testnet build edgelimit\n" +
			"                      docker run -p 127.0.0.1:8080:8080 " + cluster.ProductImage,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "pull", Usage: "pull " + cluster.PublicRedisImage + " instead of making a Redis image"},
		},
		Action: func(c *cli.Context) error {
			cl, err := open(c)
			if err != nil {
				return err
			}
			built, err := cl.Build(c.Context, c.Bool("pull"), c.Args().Slice()...)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return printJSON(c.App.Writer, built)
			}
			for _, i := range built {
				fmt.Fprintf(c.App.Writer, "%-36s %5.1f MB\n", i.Name, float64(i.Bytes)/1e6)
			}
			return nil
		},
	}
}

func upCommand(open opener) *cli.Command {
	return &cli.Command{
		Name:  "up",
		Usage: "start everything and wait until all nodes are healthy and see each other",
		Description: "Starts again what was killed, and moves back what was moved. A region that is partitioned\n" +
			"stays so, and is an error: heal first.",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "with", Usage: "start a `PROFILE` too: sidecar (a shop and a reverse " +
				"proxy before it in each region), metrics (Prometheus on port 9090), grafana (on port 3000)"},
			patienceFlag(time.Minute),
		},
		Action: act(open, func(ctx context.Context, cl *cluster.Cluster, _ *cli.Context) (string, error) {
			if err := cl.Up(ctx); err != nil {
				return "", err
			}
			nodes, err := cl.Nodes(ctx)
			return fmt.Sprintf("%d nodes are up and see each other", len(nodes)), err
		}),
	}
}

func downCommand(open opener) *cli.Command {
	return &cli.Command{
		Name:  "down",
		Usage: "stop and remove the containers and networks; images and key stay",
		Action: act(open, func(ctx context.Context, cl *cluster.Cluster, _ *cli.Context) (string, error) {
			return "the testnet is gone", cl.Down(ctx)
		}),
	}
}

// plainCommands do one thing to the cluster, or to one node or Redis.
func plainCommands(open opener) (commands []*cli.Command) {
	type action = func(cl *cluster.Cluster, ctx context.Context, target string) error
	type testnet = *cluster.Cluster
	redis := func(do action) action {
		return func(cl *cluster.Cluster, ctx context.Context, region string) error {
			return do(cl, ctx, cluster.RedisName(region))
		}
	}
	for _, f := range []struct {
		name, arg, usage, done string
		do                     action
	}{
		{"heal", "", "undo all partitions and wait until the nodes are together again",
			"all regions are together again",
			func(cl *cluster.Cluster, ctx context.Context, _ string) error { return cl.Heal(ctx) }},
		{"kill", "NODE", "end a node at once, as kill -9 does", "TARGET is dead", testnet.Kill},
		{"stop", "NODE", "ask a node to end: it drains, sends its last counts and leaves", "TARGET has ended in order",
			testnet.Stop},
		{"pause", "NODE", "stop a node where it is (SIGSTOP)", "TARGET is paused", testnet.Pause},
		{"unpause", "NODE", "let a paused node go on", "TARGET goes on", testnet.Unpause},
		{"redis-kill", "REGION", "end the region's Redis at once", "the Redis of TARGET is dead", redis(testnet.Kill)},
		{"redis-stop", "REGION", "ask the region's Redis to end", "the Redis of TARGET has ended", redis(testnet.Stop)},
		{"redis-restart", "REGION", "start the region's Redis again, empty", "the Redis of TARGET is back, empty",
			redis(testnet.Restart)},
		{"redis-pause", "REGION", "stop the region's Redis where it is: a black hole (SIGSTOP)",
			"the Redis of TARGET is paused", redis(testnet.Pause)},
		{"redis-unpause", "REGION", "let a paused Redis go on", "the Redis of TARGET goes on",
			redis(testnet.Unpause)},
		{"redis-flush", "REGION", "make the region's Redis lose everything (FLUSHALL)", "the Redis of TARGET is empty",
			testnet.FlushRedis},
	} {
		commands = append(commands, &cli.Command{
			Name: f.name, ArgsUsage: f.arg, Usage: f.usage, Flags: []cli.Flag{patienceFlag(time.Minute)},
			Action: act(open, func(ctx context.Context, cl *cluster.Cluster, c *cli.Context) (string, error) {
				target := c.Args().First()
				return strings.ReplaceAll(f.done, "TARGET", target), f.do(cl, ctx, target)
			}),
		})
	}
	return commands
}

func partitionCommand(open opener) *cli.Command {
	return &cli.Command{
		Name:      "partition",
		Usage:     "cut a region off the WAN, until heal",
		ArgsUsage: "REGION",
		Description: "Takes the region's nodes off the network between the regions. They still see each other and\n" +
			"their Redis, and clients reach them. With --one-way, packets are dropped in the nodes'\n" +
			"network namespaces instead (root and nft are needed): 'in' lets nothing come in to the\n" +
			"region, 'out' lets nothing get out of it. So they are with --protocol, which a firewall closes\n" +
			"while the other one passes; tcp in both directions only.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "one-way", Usage: "cut one `DIRECTION` only: in or out"},
			&cli.StringFlag{Name: "protocol", Usage: "block one `PROTOCOL` only: udp or tcp"},
			patienceFlag(time.Minute),
		},
		Action: act(open, func(ctx context.Context, cl *cluster.Cluster, c *cli.Context) (string, error) {
			way, region := cluster.Both, c.Args().First()
			if c.IsSet("one-way") {
				if way = cluster.Direction(c.String("one-way")); way != cluster.In && way != cluster.Out {
					return "", fmt.Errorf("--one-way %s: want in or out", way)
				}
			}
			if protocol := c.String("protocol"); c.IsSet("protocol") {
				return fmt.Sprintf("%s is blocked between %s and the others (%s)", protocol, region, way),
					cl.Block(ctx, region, cluster.Protocol(protocol), way)
			}
			done := map[cluster.Direction]string{cluster.Both: "%s is partitioned",
				cluster.In: "%s receives from no region", cluster.Out: "no region receives from %s"}[way]
			return fmt.Sprintf(done, region), cl.Partition(ctx, region, way)
		}),
	}
}

func restartCommand(open opener) *cli.Command {
	return &cli.Command{
		Name:      "restart",
		Usage:     "start a node again, after stopping it in order if it runs",
		ArgsUsage: "NODE",
		Description: "With --new-address it comes back in a new container, at another address of its region and of\n" +
			"the WAN; up moves it back. That is refused while the region is partitioned. A node that was\n" +
			"killed has to wait until the others have given it up before they believe another address:\n" +
			"close to two minutes.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "new-address", Usage: "at another address"}, patienceFlag(3 * time.Minute),
		},
		Action: act(open, func(ctx context.Context, cl *cluster.Cluster, c *cli.Context) (string, error) {
			name := c.Args().First()
			if !c.Bool("new-address") {
				return name + " is back, together with those it can reach", cl.Restart(ctx, name)
			}
			n, err := cl.Move(ctx, name)
			return fmt.Sprintf("%s is back at %s and %s, together with the others", name, n.LAN, n.WAN), err
		}),
	}
}

// act returns the action of a command that does one thing, and prints that it is done.
func act(
	open opener, do func(ctx context.Context, cl *cluster.Cluster, c *cli.Context) (string, error),
) cli.ActionFunc {
	return with(open, func(c *cli.Context, cl *cluster.Cluster) error {
		started := time.Now()
		done, err := do(c.Context, cl, c)
		if err != nil {
			return err
		}
		seconds := time.Since(started).Seconds()
		if c.Bool("json") {
			return printJSON(c.App.Writer, struct {
				Command string   `json:"command"`
				Args    []string `json:"args"`
				Done    string   `json:"done"`
				Seconds float64  `json:"seconds"`
			}{c.Command.Name, c.Args().Slice(), done, seconds})
		}
		_, err = fmt.Fprintf(c.App.Writer, "%s (%.1f s)\n", done, seconds)
		return err
	})
}

// with returns the action of a command that needs the cluster, up or not, and the argument that its ArgsUsage names.
func with(open opener, do func(c *cli.Context, cl *cluster.Cluster) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := checkArgs(c); err != nil {
			return err
		}
		cl, err := open(c)
		if err != nil {
			return err
		}
		return do(c, cl)
	}
}

func checkArgs(c *cli.Context) error {
	name, args := c.Command.Name, c.Args().Slice()
	switch usage := c.Command.ArgsUsage; {
	case usage == "" && len(args) > 0:
		return fmt.Errorf("%s takes no arguments, got %q; see %s --help", name, args, name)
	case usage != "" && len(args) != 1:
		return fmt.Errorf("%s wants one %s, got %q; go run ./testnet list shows them", name, usage, args)
	}
	return nil
}
