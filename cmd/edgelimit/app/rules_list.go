package app

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/text"
)

const rulesListHelp = `
Each rule's name, as metrics, logs and commands have it, its place in the file, and what it promises. Values of keys
with secret: true are not shown.

edgelimit rules list rules.yaml
edgelimit rules list --config node.yaml --json

Exit status: 0 listed, 1 the rules are not valid, 2 not read.`

// listedRule is a rule as JSON.
type listedRule struct {
	Rule        string   `json:"rule"`
	Place       string   `json:"place"`
	Limit       *uint64  `json:"limit,omitempty"`
	Window      float64  `json:"window_seconds,omitempty"`
	Algorithm   string   `json:"algorithm,omitempty"`
	Mode        string   `json:"mode"`
	Scope       string   `json:"scope"`
	Consistency string   `json:"consistency"`
	Regions     []string `json:"regions,omitempty"`
	Promise     string   `json:"promise"`
}

func listRules(c *cli.Context) error {
	in, err := readRules(c, c.Args().Slice())
	if err != nil {
		return err
	}
	all := []listedRule{}
	for _, r := range in.set.Rules() {
		l := listedRule{Rule: r.Name, Place: r.At(), Mode: r.Mode.String(), Scope: r.Scope.String(),
			Consistency: consistencyOf(r), Regions: r.Regions, Promise: r.Describe()}
		if r.Limit != nil {
			number := r.Limit.Max() - r.Margin
			l.Limit, l.Window = &number, r.Limit.Meter().Window.Seconds()
			l.Algorithm = r.Limit.Meter().Algorithm.String()
		}
		all = append(all, l)
	}
	if c.Bool("json") {
		return printJSON(c, map[string]any{"rules": all})
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RULE\tPROMISE\tCONSISTENCY\tPLACE")
	for i, r := range in.set.Rules() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", text.Clean(all[i].Rule), rules.DescribeLimit(r.Limit, r.Margin),
			all[i].Consistency, text.Clean(strings.TrimSpace(all[i].Place)))
	}
	return w.Flush()
}

// consistencyOf says which nodes share the counts of a rule, and whether a store decides.
func consistencyOf(r *rules.Rule) string {
	switch {
	case r.Strict && r.HomeRegion == "":
		return "strict in each region"
	case r.Strict:
		return "strict, by the Redis of " + r.HomeRegion
	case r.Scope == counters.Alone:
		return "each node"
	case r.Scope == counters.Region:
		return "each region"
	}
	return "all nodes"
}
