package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/docker"
	"github.com/edgelimit/edgelimit/testnet/images"
	"github.com/edgelimit/edgelimit/testnet/multiregion"
)

func buildCommand() *cli.Command {
	return &cli.Command{
		Name:  "build",
		Usage: "make the images: edgelimit, the sidecar example's shop, Redis",
		Description: "Nothing has to be pulled: edgelimit and the shop are compiled here, and Redis is made of Debian's redis-server, which\n" +
			"is installed with apt-get if it is missing. Where images can be pulled, --pull takes the public Redis instead.",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "pull", Usage: "pull " + images.PublicRedis + " instead of making a Redis image"}},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usageError(c)
			}
			host := docker.Host{}
			engine := docker.NewEngine(host)
			if err := engine.Check(c.Context); err != nil {
				return err
			}
			b := images.Builder{Run: host, Engine: engine, Root: c.String("root"), Pull: c.Bool("pull"), Progress: c.App.ErrWriter}
			made, err := b.Build(c.Context)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return printJSON(c.App.Writer, made)
			}
			for _, i := range made {
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
		Description: "Makes the cluster's key file if there is none. What was killed is started again, what was moved goes back; a\n" +
			"region that is cut off stays so, and is an error: heal first.",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "with", Usage: "start a `PROFILE` too: sidecar (a shop and the node beside it), metrics (Prometheus on port 9090)"},
			patienceFlag(time.Minute),
		},
		Action: act(open, 0, func(ctx context.Context, net *multiregion.Testnet, c *cli.Context) (string, error) {
			if err := net.Up(ctx); err != nil {
				return "", err
			}
			nodes, err := net.Nodes(ctx)
			return fmt.Sprintf("%d nodes are up and see each other", len(nodes)), err
		}),
	}
}

func downCommand(open opener) *cli.Command {
	return &cli.Command{
		Name:  "down",
		Usage: "stop and remove the containers and networks; images and key file stay",
		Action: act(open, 0, func(ctx context.Context, net *multiregion.Testnet, _ *cli.Context) (string, error) {
			return "the testnet is gone", net.Down(ctx)
		}),
	}
}

// faultCommands are those that do one thing to one region, node or Redis.
func faultCommands(open opener) []*cli.Command {
	type do = func(ctx context.Context, net *multiregion.Testnet, c *cli.Context) (string, error)
	simple := func(name, arg, usage, done string, f func(net *multiregion.Testnet, ctx context.Context, target string) error) *cli.Command {
		return &cli.Command{Name: name, ArgsUsage: arg, Usage: usage, Flags: []cli.Flag{patienceFlag(time.Minute)},
			Action: act(open, 1, func(ctx context.Context, net *multiregion.Testnet, c *cli.Context) (string, error) {
				return fmt.Sprintf(done, c.Args().First()), f(net, ctx, c.Args().First())
			})}
	}
	redis := func(f func(*multiregion.Testnet, context.Context, string) error) func(*multiregion.Testnet, context.Context, string) error {
		return func(net *multiregion.Testnet, ctx context.Context, region string) error {
			return f(net, ctx, multiregion.RedisName(region))
		}
	}
	var heal do = func(ctx context.Context, net *multiregion.Testnet, _ *cli.Context) (string, error) {
		return "all regions are together again", net.Heal(ctx)
	}
	type testnet = *multiregion.Testnet
	return []*cli.Command{
		partitionCommand(open),
		{Name: "heal", Usage: "undo all partitions and wait until the nodes are together again", Flags: []cli.Flag{patienceFlag(time.Minute)}, Action: act(open, 0, heal)},
		simple("kill", "NODE", "end a node at once, as kill -9 does", "%s is dead", testnet.Kill),
		simple("stop", "NODE", "ask a node to end: it drains, tells its last counts and leaves", "%s has ended in order", testnet.Stop),
		simple("pause", "NODE", "stop a node where it is (SIGSTOP)", "%s is paused", testnet.Pause),
		simple("unpause", "NODE", "let a paused node go on", "%s goes on", testnet.Unpause),
		restartCommand(open),
		simple("redis-kill", "REGION", "end the region's Redis at once", "the Redis of %s is dead", redis(testnet.Kill)),
		simple("redis-stop", "REGION", "ask the region's Redis to end", "the Redis of %s has ended", redis(testnet.Stop)),
		simple("redis-restart", "REGION", "start the region's Redis again, empty", "the Redis of %s is back, empty", redis(testnet.Restart)),
		simple("redis-pause", "REGION", "stop the region's Redis where it is: a black hole (SIGSTOP)", "the Redis of %s is paused", redis(testnet.Pause)),
		simple("redis-unpause", "REGION", "let a paused Redis go on", "the Redis of %s goes on", redis(testnet.Unpause)),
		simple("redis-flush", "REGION", "make the region's Redis forget everything (FLUSHALL)", "the Redis of %s is empty", testnet.FlushRedis),
	}
}

func partitionCommand(open opener) *cli.Command {
	return &cli.Command{
		Name:      "partition",
		Usage:     "cut a region off the WAN, until heal",
		ArgsUsage: "REGION",
		Description: "The region's nodes are taken off the network between the regions. They still see each other and their Redis, and\n" +
			"clients reach them. With --one-way, packets are dropped in the nodes' network namespaces instead (root and nft are needed):\n" +
			"'in' lets nothing come in to the region, 'out' lets nothing get out of it.",
		Flags: []cli.Flag{&cli.StringFlag{Name: "one-way", Usage: "cut one `DIRECTION` only: in or out"}, patienceFlag(time.Minute)},
		Action: act(open, 1, func(ctx context.Context, net *multiregion.Testnet, c *cli.Context) (string, error) {
			way := multiregion.Both
			if c.IsSet("one-way") {
				if way = multiregion.Direction(c.String("one-way")); way != multiregion.In && way != multiregion.Out {
					return "", fmt.Errorf("--one-way %s: want in or out", way)
				}
			}
			said := map[multiregion.Direction]string{multiregion.Both: "%s is cut off", multiregion.In: "%s hears nobody", multiregion.Out: "nobody hears %s"}[way]
			return fmt.Sprintf(said, c.Args().First()), net.Partition(ctx, c.Args().First(), way)
		}),
	}
}

func restartCommand(open opener) *cli.Command {
	return &cli.Command{
		Name:      "restart",
		Usage:     "start a node again, after stopping it in order if it runs",
		ArgsUsage: "NODE",
		Description: "With --new-address it comes back in a new container, at another address of its region and of the WAN; up moves it\n" +
			"back. That is refused while the region is cut off. A node that was killed has to wait until the others have given it up\n" +
			"before they believe another address: close to two minutes.",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "new-address", Usage: "at another address"}, patienceFlag(3 * time.Minute)},
		Action: act(open, 1, func(ctx context.Context, net *multiregion.Testnet, c *cli.Context) (string, error) {
			name := c.Args().First()
			if !c.Bool("new-address") {
				return name + " is back, together with those it can reach", net.Restart(ctx, name)
			}
			n, err := net.Move(ctx, name)
			return fmt.Sprintf("%s is back at %s and %s, together with the others", name, n.LAN, n.WAN), err
		}),
	}
}

// act is the action of a command that takes so many arguments, does one thing, and says that it is done.
func act(open opener, arguments int, do func(ctx context.Context, net *multiregion.Testnet, c *cli.Context) (done string, err error)) cli.ActionFunc {
	return with(open, arguments, func(c *cli.Context, net *multiregion.Testnet) error {
		started := time.Now()
		done, err := do(c.Context, net, c)
		if err != nil {
			return err
		}
		took := time.Since(started)
		if c.Bool("json") {
			return printJSON(c.App.Writer, struct {
				Command string   `json:"command"`
				Args    []string `json:"args"`
				Done    string   `json:"done"`
				Seconds float64  `json:"seconds"`
			}{c.Command.Name, c.Args().Slice(), done, took.Seconds()})
		}
		_, err = fmt.Fprintf(c.App.Writer, "%s (%.1f s)\n", done, took.Seconds())
		return err
	})
}

// with is the action of a command that takes so many arguments and needs the testnet, up or not.
func with(open opener, arguments int, do func(c *cli.Context, net *multiregion.Testnet) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.NArg() != arguments {
			return usageError(c)
		}
		net, err := open(c)
		if err != nil {
			return err
		}
		return do(c, net)
	}
}

func usageError(c *cli.Context) error {
	if c.Command.ArgsUsage == "" {
		return fmt.Errorf("%s takes no arguments, got %q; see %s --help", c.Command.Name, c.Args().Slice(), c.Command.Name)
	}
	return fmt.Errorf("%s wants one %s, got %q; go run ./testnet list shows them", c.Command.Name, c.Command.ArgsUsage, c.Args().Slice())
}
