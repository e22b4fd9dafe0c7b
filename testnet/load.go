package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/scenario"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

func loadCommand(open opener) *cli.Command {
	return &cli.Command{
		Name:  "load",
		Usage: "offer load to the testnet, record every decision, and judge them",
		Description: "The load does not wait for answers: what is sent when depends on --seed and --rate alone.\n" +
			"Where this machine cannot keep up, that is an error. Faults made meanwhile with other\n" +
			"commands are not in the record: use run for those.\n\n" +
			"Exit status: 0 no invariant was broken, 1 one was, or the load was not the one that was\n" +
			"asked for.",
		Flags: []cli.Flag{
			&cli.Float64Flag{Name: "rate", Usage: "requests a second, all identities and nodes together", Value: 100},
			&cli.DurationFlag{Name: "duration", Usage: "duration of the load", Value: 20 * time.Second},
			&cli.IntFlag{Name: "identities", Usage: "number of clients that share the rate", Value: 1},
			&cli.StringFlag{Name: "rule", Usage: "the rule of all requests", Value: "per_client"},
			&cli.StringSliceFlag{Name: "on", Usage: "`NODE` or region to send to (repeatable); without it all nodes"},
			&cli.StringFlag{Name: "pattern", Usage: "even: all nodes alike, skew: 70 % to one node, one: all to one",
				Value: string(traffic.EvenPattern)},
			&cli.StringFlag{Name: "favour", Usage: "the `NODE` that skew and one favour, the first without it"},
			&cli.StringFlag{Name: "spacing", Usage: "poisson or even", Value: string(traffic.Poisson)},
			&cli.Uint64Flag{Name: "seed", Usage: "determines times and targets of all requests", Value: 1},
			&cli.IntFlag{Name: "workers", Usage: "maximal number of concurrent requests",
				Value: traffic.DefaultWorkers},
			&cli.DurationFlag{Name: "timeout", Usage: "time-out of a request", Value: traffic.DefaultTimeout},
			&cli.StringFlag{Name: "record",
				Usage: "write the record to a new `FILE`, compressed if its name ends in .gz"},
		},
		Action: with(open, offerLoad),
	}
}

// loadResult is the JSON of load.
type loadResult struct {
	OK      bool         `json:"ok"`
	Offered int          `json:"offered"`
	Allowed int          `json:"allowed"`
	Denied  int          `json:"denied"`
	Failed  int          `json:"failed"`
	LateMs  float64      `json:"generator_late_ms"`
	Report  judge.Report `json:"report"`
}

func offerLoad(c *cli.Context, cl *cluster.Cluster) error {
	all, err := cl.Nodes(c.Context)
	if err != nil {
		return err
	}
	nodes := cluster.WithoutSidecars(all)
	options, err := loadOptions(c, nodes)
	if err != nil {
		return err
	}
	name := c.String("record")
	if name == "" {
		dir, err := os.MkdirTemp("", "edgelimit-load-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		name = filepath.Join(dir, "record.jsonl.gz")
	}
	summary, err := recordLoad(c, cl, nodes, options, name)
	if err != nil {
		return err
	}
	report, err := judge.CheckFile(name)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = printJSON(c.App.Writer, loadResult{report.OK, summary.Offered, summary.Allowed, summary.Denied,
			summary.Failed, float64(summary.Late.Milliseconds()), *report})
	} else {
		fmt.Fprintf(c.App.Writer, "offered %d in %.1f s, at most %v late; %d failed\n", summary.Offered,
			summary.Took.Seconds(), summary.Late.Round(time.Millisecond), summary.Failed)
		err = report.WriteText(c.App.Writer)
	}
	if err == nil && !report.OK {
		err = fmt.Errorf("%d violations", len(report.Violations))
	}
	return err
}

// recordLoad offers the load, observes the nodes, and writes the record.
func recordLoad(c *cli.Context, cl *cluster.Cluster, nodes []cluster.Node, o traffic.Options, name string) (
	traffic.Summary, error,
) {
	rule, err := scenario.FindRule(cl.Rules(), o.Rule)
	if err != nil {
		return traffic.Summary{}, err
	}
	file, err := scenario.CreateRecord(name, rule, nodes)
	if err != nil {
		return traffic.Summary{}, err
	}
	watch := scenario.Watch{Nodes: nodes, Observe: cl.Observe, Rule: rule.Name,
		Client: traffic.NewClient(2)}
	for _, s := range o.Streams {
		watch.Identities = append(watch.Identities, s.Identity)
	}
	summary, err := scenario.Offer(c.Context, o, watch, file, nil)
	return summary, errors.Join(err, file.Close())
}

func loadOptions(c *cli.Context, nodes []cluster.Node) (traffic.Options, error) {
	o := traffic.Options{Rule: c.String("rule"), Duration: c.Duration("duration"), Seed: c.Uint64("seed"),
		Workers: c.Int("workers"), Timeout: c.Duration("timeout")}
	wanted := c.StringSlice("on")
	for _, name := range wanted {
		if !slices.ContainsFunc(nodes, func(n cluster.Node) bool { return n.Name == name || n.Region == name }) {
			return o, fmt.Errorf("--on %s: %w; go run ./testnet list shows nodes and regions", name, cluster.ErrUnknown)
		}
	}
	for _, n := range nodes {
		if len(wanted) == 0 || slices.Contains(wanted, n.Name) || slices.Contains(wanted, n.Region) {
			o.Targets = append(o.Targets, traffic.Target{Node: n.Name, Region: n.Region, URL: n.HTTP})
		}
	}
	weights, err := traffic.Pattern(c.String("pattern")).Weights(o.Targets, c.String("favour"))
	if err != nil {
		return o, err
	}
	count := c.Int("identities")
	if count < 1 || count > maxIdentities {
		return o, fmt.Errorf("--identities %d: want 1 to %d", count, maxIdentities)
	}
	run := time.Now().UnixMilli() // so that no node has counted them yet
	for i := range count {
		o.Streams = append(o.Streams, traffic.Stream{Identity: fmt.Sprintf("load-%d-%d", run, i),
			Rate: c.Float64("rate") / float64(count), Spacing: traffic.Spacing(c.String("spacing")), Weights: weights})
	}
	return o, o.Validate()
}

// maxIdentities bounds the number that can be observed once a second.
const maxIdentities = 100
