package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/checker"
	"github.com/edgelimit/edgelimit/testnet/load"
	"github.com/edgelimit/edgelimit/testnet/multiregion"
	"github.com/edgelimit/edgelimit/testnet/record"
)

func loadCommand(open opener) *cli.Command {
	return &cli.Command{
		Name:  "load",
		Usage: "offer load to the testnet, record every decision, and judge them",
		Description: "The load does not wait for answers: what is sent when depends on --seed and --rate alone. Where this machine cannot keep up,\n" +
			"that is an error. Faults made meanwhile with other commands are not in the record: use run for those.\n\n" +
			"Exit status: 0 no invariant was broken, 1 one was, or the load was not the one that was asked for.",
		Flags: []cli.Flag{
			&cli.Float64Flag{Name: "rate", Usage: "requests a second, all identities and nodes together", Value: 100},
			&cli.DurationFlag{Name: "duration", Usage: "how long", Value: 20 * time.Second},
			&cli.IntFlag{Name: "identities", Usage: "how many clients share the rate", Value: 1},
			&cli.StringFlag{Name: "rule", Usage: "the rule that all requests meet", Value: "per_client"},
			&cli.StringSliceFlag{Name: "on", Usage: "`NODE` or region that is asked; may be given again; all nodes without it"},
			&cli.StringFlag{Name: "pattern", Usage: "even: all nodes alike, skew: 70 % on one node, one: all on one", Value: string(load.EvenPattern)},
			&cli.StringFlag{Name: "favour", Usage: "the `NODE` that skew and one favour, the first without it"},
			&cli.StringFlag{Name: "spacing", Usage: "poisson or even", Value: string(load.Poisson)},
			&cli.Uint64Flag{Name: "seed", Usage: "decides when what is sent to whom", Value: 1},
			&cli.IntFlag{Name: "workers", Usage: "how many requests can be under way at once", Value: load.DefaultWorkers},
			&cli.DurationFlag{Name: "timeout", Usage: "how long an answer may take", Value: load.DefaultTimeout},
			&cli.StringFlag{Name: "record", Usage: "write the record to a new `FILE`, compressed if its name ends in .gz"},
		},
		Action: with(open, 0, offerLoad),
	}
}

// loadResult is the JSON of load.
type loadResult struct {
	OK      bool           `json:"ok"`
	Offered int            `json:"offered"`
	Allowed int            `json:"allowed"`
	Denied  int            `json:"denied"`
	Failed  int            `json:"failed"`
	LateMs  float64        `json:"generator_late_ms"`
	Report  checker.Report `json:"report"`
}

func offerLoad(c *cli.Context, net *multiregion.Testnet) error {
	all, err := net.Nodes(c.Context)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(n multiregion.Node) bool { return n.Sidecar })
	options, err := loadOptions(c, all)
	if err != nil {
		return err
	}
	rule, err := ruleNamed(net.RulesFile(), options.Rule)
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
		name = dir + "/record.jsonl.gz"
	}
	summary, err := recordLoad(c.Context, net, all, rule, options, name)
	if err != nil {
		return err
	}
	report, err := checker.CheckFile(name)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = printJSON(c.App.Writer, loadResult{report.OK, summary.Offered, summary.Allowed, summary.Denied, summary.Failed, float64(summary.Late.Milliseconds()), *report})
	} else {
		fmt.Fprintf(c.App.Writer, "offered %d in %.1f s, at most %v late; %d failed\n", summary.Offered, summary.Took.Seconds(), summary.Late.Round(time.Millisecond), summary.Failed)
		err = report.WriteText(c.App.Writer)
	}
	if err == nil && !report.OK {
		err = fmt.Errorf("%d violations", len(report.Violations))
	}
	return err
}

func loadOptions(c *cli.Context, nodes []multiregion.Node) (load.Options, error) {
	o := load.Options{Rule: c.String("rule"), Duration: c.Duration("duration"), Seed: c.Uint64("seed"), Workers: c.Int("workers"), Timeout: c.Duration("timeout")}
	wanted := c.StringSlice("on")
	for _, name := range wanted {
		if !slices.ContainsFunc(nodes, func(n multiregion.Node) bool { return n.Name == name || n.Region == name }) {
			return o, fmt.Errorf("--on %s: %w; go run ./testnet list shows nodes and regions", name, multiregion.ErrUnknown)
		}
	}
	for _, n := range nodes {
		if len(wanted) == 0 || slices.Contains(wanted, n.Name) || slices.Contains(wanted, n.Region) {
			o.Targets = append(o.Targets, load.Target{Node: n.Name, Region: n.Region, URL: n.HTTP})
		}
	}
	weights, err := load.Pattern(c.String("pattern")).Weights(o.Targets, c.String("favour"))
	if err != nil {
		return o, err
	}
	count := c.Int("identities")
	if count < 1 || count > maxIdentities {
		return o, fmt.Errorf("--identities %d: want 1 to %d", count, maxIdentities)
	}
	run := time.Now().UnixMilli() // so that nobody has counted them yet
	for i := range count {
		o.Streams = append(o.Streams, load.Stream{Identity: fmt.Sprintf("load-%d-%d", run, i), Rate: c.Float64("rate") / float64(count),
			Spacing: load.Spacing(c.String("spacing")), Weights: weights})
	}
	return o, o.Validate()
}

// maxIdentities is how many can be observed once a second.
const maxIdentities = 100

func ruleNamed(file, name string) (*rules.Rule, error) {
	set, err := rules.Load(file)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, r := range set.Rules() {
		if r.Name == name && r.Limit != nil {
			return r, nil
		}
		names = append(names, r.Name)
	}
	return nil, fmt.Errorf("there is no rule %q with a limit in %s, there are %v", name, file, names)
}

// afterLoad is how long nodes are observed after the last request: they have 5 s to agree.
const afterLoad = 6500 * time.Millisecond

// recordLoad offers the load, observes the nodes, and writes the record.
func recordLoad(ctx context.Context, net *multiregion.Testnet, nodes []multiregion.Node, rule *rules.Rule, o load.Options, name string) (load.Summary, error) {
	h := record.Header{Rule: record.NewRule(rule.Limit), Started: time.Now().UnixNano()}
	for _, n := range nodes {
		h.Nodes = append(h.Nodes, record.Node{ID: n.Name, Region: n.Region})
	}
	file, err := record.Create(name, h)
	if err != nil {
		return load.Summary{}, err
	}
	watch := load.Watch{Nodes: nodes, Observe: net.Observe, Rule: rule.Name, FullName: rule.FullName}
	for _, s := range o.Streams {
		watch.Identities = append(watch.Identities, s.Identity)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var watched error
	var watcher sync.WaitGroup
	watcher.Go(func() { watched = watch.Run(watching, file) })
	summary, err := load.Run(ctx, o, file)
	if err == nil {
		select {
		case <-ctx.Done():
		case <-time.After(afterLoad):
		}
	}
	stop()
	watcher.Wait()
	return summary, errors.Join(err, watched, file.Close())
}
