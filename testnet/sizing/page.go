package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/edgelimit/edgelimit/testnet/plan"
	"github.com/edgelimit/edgelimit/testnet/sim"
)

// section is a table of the page: deployments under a kind of load.
type section struct {
	title, note string
	sizes       [][2]int // regions, and nodes in each
	load        func(regions, nodes int) sim.Load
}

// sizes are typical deployments.
var sizes = [][2]int{{3, 4}, {3, 20}, {10, 10}, {10, 50}, {30, 50}}

var sections = []section{
	{"Many keys", "6,667 live keys for each node, and as many requests a second at it, by Zipf's law; 5 % of the " +
		"keys are seen in three regions, 5 % by two nodes of a region.", sizes, plan.MixedLoad},
	{"Attack: new keys all the time", "The same, and 500 new keys a second at each node that never come again.", sizes,
		func(regions, nodes int) sim.Load {
			l := plan.MixedLoad(regions, nodes)
			l.New = 500
			return l
		}},
	{"Ten times the keys", "66,670 live keys for each node, and as many requests a second.", sizes,
		func(regions, nodes int) sim.Load {
			l := plan.MixedLoad(regions, nodes)
			l.KeysTotal *= 10
			return l
		}},
	{"Keys that are hot everywhere", "1,000 keys, each at all nodes, at twice its limit in all.", sizes,
		func(regions, nodes int) sim.Load { return plan.HotLoad(regions, nodes, 1000) }},
}

var head = []string{
	"regions x nodes", "sends, Mbit/s", "messages/s", "CPU, % of a core", "memory, MiB", "first", "then",
	"edgelimit sim",
}

const introduction = `# Sizing

What a node needs for counting and replication. Not in it: requests and TLS, memberlist's probes, the lists that
gateways pass on, and the 26 MiB of an idle node. 'make sizing' makes this page by 'edgelimit sim --keys-total', which
simulates a sample of the keys by the code of the nodes; the same command gives the same page on any machine. Ask it for
your own load and budget.

A figure is the mean of all nodes, with the most that any of them needs in brackets: of those that own more keys than
others. Up to 16 nodes all send to all; in larger clusters owners of keys add up. **First** and **then** name what the
busiest node runs out of as the load grows, and at how many times this load; below 1 the budget does not suffice. That
is %g Mbit/s each way, %g %% of a core, %g MiB for counts, and 10,240 messages/s received, the queue of memberlist.
Messages are what 'edgelimit_gossip_frames_sent_total' counts. There is a limit of %d per %v, gossip every %v, one way
%v between regions, and %g %% loss. CPU is that of the machine of our [benchmarks](../testnet/bench/RESULTS.md).
[PLANNING.md](PLANNING.md) has the rest: intervals, regions, machines.
`

// intro is the page above its tables.
func intro() string {
	b, o := plan.DefaultBudget(), sim.DefaultOptions()
	return fmt.Sprintf(strings.ReplaceAll(introduction, "'", "`"), b.Mbit, b.CPU, b.MiB, o.Limit, o.Window, o.Interval,
		o.WANDelay, 100*o.Loss)
}

// writeTables writes tables, with the rows of one deployment alone unless only is empty.
func writeTables(ctx context.Context, out io.Writer, sections []section, only string, progress io.Writer) error {
	for _, s := range sections {
		fmt.Fprintf(out, "\n## %s\n\n%s\n\n", s.title, s.note)
		fmt.Fprintf(out, "| %s |\n|---|%s---|---|---|\n", strings.Join(head, " | "),
			strings.Repeat("---:|", len(head)-4))
		for _, size := range s.sizes {
			if name := fmt.Sprintf("%dx%d", size[0], size[1]); only == "" || only == name {
				fmt.Fprintf(progress, "sizing: %s, %s\n", s.title, name)
				cells, err := s.row(ctx, size[0], size[1])
				if err != nil {
					return err
				}
				fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
			}
		}
	}
	return nil
}

// row is one deployment.
func (s *section) row(ctx context.Context, regions, nodes int) ([]string, error) {
	l := s.load(regions, nodes)
	r, err := plan.Compute(ctx, l, plan.DefaultBudget())
	if err != nil {
		return nil, err
	}
	both := func(of func(plan.Cost) float64) string {
		mean, busiest := plan.Figure(of(r.Mean)), plan.Figure(of(r.Busiest))
		if mean == busiest {
			return mean
		}
		return fmt.Sprintf("%s (%s)", mean, busiest)
	}
	return []string{
		fmt.Sprintf("%d x %d", regions, nodes),
		both(func(c plan.Cost) float64 { return c.MbitOut }), both(func(c plan.Cost) float64 { return c.MessagesOut }),
		both(func(c plan.Cost) float64 { return c.CPU.Total() }), both(func(c plan.Cost) float64 { return c.MiB }),
		scarce(r.Breaks[0]), scarce(r.Breaks[1]), "`" + strings.Join(flags(&l), " ") + "`",
	}, nil
}

func scarce(b plan.Break) string { return fmt.Sprintf("%s at %s", b.What, b.Times()) }

// flags is the command line that plans for a load.
func flags(l *sim.Load) []string {
	usual := plan.MixedLoad(l.Regions, l.Nodes)
	f := []string{
		"--regions", fmt.Sprint(l.Regions), "--nodes", fmt.Sprint(l.Nodes), "--keys-total", fmt.Sprint(l.KeysTotal),
	}
	if l.New != usual.New {
		f = append(f, "--new-keys", fmt.Sprint(l.New))
	}
	if l.Keys > 0 {
		f = append(f, "--keys", fmt.Sprint(l.Keys))
	}
	return f
}
