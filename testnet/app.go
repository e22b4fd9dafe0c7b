package main

import (
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/cluster"
)

// opener opens the cluster that the flags describe.
type opener func(c *cli.Context) (*cluster.Cluster, error)

func newApp(open opener) *cli.App {
	commands := append([]*cli.Command{
		buildCommand(open), upCommand(open), downCommand(open), statusCommand(open), listCommand(open),
		runCommand(open), loadCommand(open), loginsCommand(open), outageCommand(open), strictCommand(open),
		scenarioCommand(open, "rotate", "replace the gossip key under load: no failed request, no lost member or count",
			"The three steps of the operator's guide, with edgelimit keys: add, use, remove. After each the file\n"+
				"is copied to half of the nodes, and 2 s later to the others; what comes too early has to be\n"+
				"refused. Then a process with the old key tries to join."),
		scenarioCommand(open, "rolling", "restart every node in turn under load: nothing fails, nobody is lost",
			"SIGTERM, linger, drain, start, one node after the other. The load asks /readyz of each node every\n"+
				"100 ms and goes to the other one of the region while a node is unready. A limit that was used\n"+
				"up before stays used up on every node, from its first answer on."),
		wideCommand(open), sidecarCommand(), abuseCommand(), fleetCommand(), doorsCommand(),
		partitionCommand(open), restartCommand(open)},
		plainCommands(open)...)
	for _, c := range commands {
		c.Flags = append(c.Flags,
			&cli.BoolFlag{Name: "json", Usage: "print JSON"},
			&cli.StringFlag{Name: "root", Usage: "top `FOLDER` of the repository", Value: "."})
		if slices.Contains([]string{"up", "run", "restart"}, c.Name) {
			c.Flags = append(c.Flags, &cli.BoolFlag{Name: "wide",
				Usage: "with ten regions of two nodes and a Redis instead of three"})
		}
	}
	return &cli.App{
		Name:  "testnet",
		Usage: "three regions of edgelimit nodes in containers, and their faults",
		Description: "From nothing to a partition, at the top of the repository:\n\n" +
			"  go run ./testnet build                     make the images, also where none can be pulled\n" +
			"  go run ./testnet up                        six nodes in three regions, until they see each other\n" +
			"  go run ./testnet partition eu-west         cut one region off the WAN\n" +
			"  go run ./testnet status                    members, staleness and bound of each node\n" +
			"  go run ./testnet heal                      and wait until they see each other again\n" +
			"  go run ./testnet run partition             the same under load, recorded and judged\n" +
			"  go run ./testnet down                      remove everything\n\n" +
			"Nodes answer at http://127.0.0.1:8111 (us-east-1), 8112 (us-east-2), 8121 (eu-west-1) and so on,\n" +
			"their metrics are at 9111, 9112, ...: 'go run ./testnet list' shows all, and the scenarios.\n" +
			"Each fault is verified before its command returns.\n\n" +
			"Exit status: 0 done and verified, 1 not.",
		Commands:             commands,
		HideVersion:          true,
		Suggest:              true,
		EnableBashCompletion: true,
		ExitErrHandler:       func(*cli.Context, error) {}, // main prints and exits
	}
}

func patienceFlag(patience time.Duration) cli.Flag {
	return &cli.DurationFlag{Name: "patience", Usage: "how long to wait for the effect", Value: patience}
}

// flagsFirst puts the flags of a command before its arguments, so that "partition eu-west --one-way in" works: the
// parser takes everything after the first argument for arguments.
func flagsFirst(app *cli.App, args []string) []string {
	if len(args) < 3 || app.Command(args[1]) == nil {
		return args
	}
	takesValue := make(map[string]bool)
	for _, f := range app.Command(args[1]).Flags {
		for _, name := range f.Names() {
			takesValue[name] = f.(cli.DocGenerationFlag).TakesValue()
		}
	}
	flags, others, rest := args[:2:2], []string(nil), args[2:]
	for len(rest) > 0 && rest[0] != "--" {
		arg := rest[0]
		rest = rest[1:]
		switch {
		case !strings.HasPrefix(arg, "-") || arg == "-":
			others = append(others, arg)
		case takesValue[strings.TrimLeft(arg, "-")] && len(rest) > 0:
			flags, rest = append(flags, arg, rest[0]), rest[1:]
		default:
			flags = append(flags, arg)
		}
	}
	return slices.Concat(flags, others, rest)
}
