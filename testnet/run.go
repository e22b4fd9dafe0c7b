package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/scenario"
)

// A partition is believed after 2.5 s and observed for some seconds more; a load lasts ten minutes at most.
const (
	minCut = 5 * time.Second
	maxCut = 5 * time.Minute
)

func runCommand(open opener) *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run scenarios: load, a fault, and what has to hold all the same",
		ArgsUsage: "SCENARIO...|all",
		Description: "Starts the testnet if it is not up, and leaves it complete. Scenarios run one after the\n" +
			"other, also after one that failed. With --json, one object a scenario and line. 'go run\n" +
			"./testnet list' shows the scenarios.\n\n" +
			"Exit status: 0 every assertion of every scenario held, 1 not.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "cut", Usage: "duration of partitions", Value: 10 * time.Second},
			recordsFlag(), patienceFlag(2 * time.Minute),
		},
		Action: func(c *cli.Context) error {
			scenarios, err := findScenarios(c)
			if err != nil {
				return err
			}
			cl, err := open(c)
			if err != nil {
				return err
			}
			return runScenarios(c, cl, scenarios)
		},
	}
}

// scenarioCommand runs one scenario, as "run NAME" does.
func scenarioCommand(open opener, name, usage, description string) *cli.Command {
	return &cli.Command{
		Name: name, Usage: usage,
		Description: description + "\n\nThe same as 'run " + name + "'. Exit status: 0 every assertion held, 1 not.",
		Flags:       []cli.Flag{recordsFlag(), patienceFlag(2 * time.Minute)},
		Action: with(open, func(c *cli.Context, cl *cluster.Cluster) error {
			found, err := scenario.Find(name, scenario.Options{})
			if err != nil {
				return err
			}
			return runScenarios(c, cl, found)
		}),
	}
}

// wideCommand runs the scenario wide in ten regions.
func wideCommand(open opener) *cli.Command {
	c := scenarioCommand(open, "wide", "cut a region of ten off: in the end all twenty nodes count every request",
		"Ten regions of two nodes and a Redis, in containers, of the pattern of the compose file's.\n"+
			"'run --wide SCENARIO' runs others there, on a machine with more than two processors.")
	c.Flags = append(c.Flags, &cli.BoolFlag{Name: "wide", Usage: "with ten regions instead of three", Value: true})
	return c
}

func recordsFlag() cli.Flag {
	return &cli.StringFlag{Name: "records", Usage: "keep the records of all runs in `FOLDER`; without it, those of " +
		"runs that failed are kept in a temporary one"}
}

func findScenarios(c *cli.Context) (scenarios []scenario.Scenario, err error) {
	cut := c.Duration("cut")
	if c.NArg() == 0 {
		return nil, errors.New("run wants the names of scenarios, or all; go run ./testnet list shows them")
	}
	if cut < minCut || cut > maxCut {
		return nil, fmt.Errorf("--cut %v: want %v to %v", cut, minCut, maxCut)
	}
	for _, name := range c.Args().Slice() {
		found, err := scenario.Find(name, scenario.Options{Cut: cut})
		if err != nil {
			return nil, err
		}
		scenarios = append(scenarios, found...)
	}
	return scenarios, nil
}

func runScenarios(c *cli.Context, cl scenario.Cluster, scenarios []scenario.Scenario) error {
	runner := scenario.Runner{Cluster: cl, Progress: c.App.ErrWriter, Records: c.String("records")}
	var results []scenario.Result
	var failed []string
	for _, s := range scenarios {
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
	if len(failed) == 0 {
		return nil
	}
	list := strings.Join(failed, ", ")
	return cli.Exit(fmt.Sprintf("%d of %d scenarios failed: %s", len(failed), len(scenarios), list), 1)
}
