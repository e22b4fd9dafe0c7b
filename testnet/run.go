package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/multiregion"
	"github.com/edgelimit/edgelimit/testnet/scenario"
)

func runCommand(open opener) *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run scenarios: load, a fault, and what has to hold all the same",
		ArgsUsage: "SCENARIO...|all",
		Description: "Starts the testnet if it is not up, and leaves it whole. Scenarios run one after the other, also after one that failed.\n" +
			"With --json, one object a scenario and line. 'go run ./testnet list' shows the scenarios.\n\n" +
			"Exit status: 0 every promise of every scenario held, 1 not.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "cut", Usage: "how long partitions last", Value: 10 * time.Second},
			&cli.StringFlag{Name: "records", Usage: "keep the records of all runs in `FOLDER`; without it, those of runs that failed are kept in a temporary one"},
			patienceFlag(2 * time.Minute),
		},
		Action: func(c *cli.Context) error {
			wanted, err := wantedScenarios(c)
			if err != nil {
				return err
			}
			net, err := open(c)
			if err != nil {
				return err
			}
			return runScenarios(c, net, wanted)
		},
	}
}

func wantedScenarios(c *cli.Context) (wanted []scenario.Scenario, err error) {
	if c.NArg() == 0 {
		return nil, errors.New("run wants the names of scenarios, or all; go run ./testnet list shows them")
	}
	if c.Duration("cut") < minCut || c.Duration("cut") > maxCut {
		return nil, fmt.Errorf("--cut %v: want %v to %v", c.Duration("cut"), minCut, maxCut)
	}
	for _, name := range c.Args().Slice() {
		found, err := scenario.Find(name, scenario.Options{Cut: c.Duration("cut")})
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, found...)
	}
	return wanted, nil
}

// A cut is believed after 2.5 s, and looked at for some seconds; a load lasts ten minutes at most.
const (
	minCut = 5 * time.Second
	maxCut = 5 * time.Minute
)

func runScenarios(c *cli.Context, net scenario.Net, wanted []scenario.Scenario) error {
	runner := scenario.Runner{Net: net, Progress: c.App.ErrWriter, Records: c.String("records")}
	var results []scenario.Result
	var failed []string
	for _, s := range wanted {
		r := runner.Run(c.Context, s)
		results = append(results, r)
		if !r.OK {
			failed = append(failed, r.Name)
		}
		if c.Bool("json") {
			if err := json.NewEncoder(c.App.Writer).Encode(r); err != nil {
				return err
			}
		}
		if c.Context.Err() != nil {
			failed = append(failed, "interrupted")
			break
		}
	}
	if !c.Bool("json") {
		if err := scenario.WriteTable(c.App.Writer, results); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return cli.Exit(fmt.Sprintf("%d of %d scenarios failed: %s", len(failed), len(wanted), strings.Join(failed, ", ")), 1)
	}
	return nil
}

// scenarioLine is a scenario in the output of list.
type scenarioLine struct {
	Name    string  `json:"name"`
	What    string  `json:"what"`
	Seconds float64 `json:"seconds"`
}

func scenarioLines() (lines []scenarioLine) {
	for _, s := range scenario.All(scenario.Options{}) {
		lines = append(lines, scenarioLine{s.Name, s.What, s.Takes.Seconds()})
	}
	return lines
}

// ask asks the testnet for what it is made of; one that is not up is made of nothing.
func ask(ctx context.Context, net *multiregion.Testnet) ([]multiregion.Node, []multiregion.Redis, error) {
	nodes, err := net.Nodes(ctx)
	if errors.Is(err, multiregion.ErrNotUp) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, err
	}
	redises, err := net.Redises(ctx)
	return nodes, redises, err
}
