package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/scenario"
)

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func newTable(c *cli.Context) *tabwriter.Writer {
	return tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
}

func listCommand(open opener) *cli.Command {
	return &cli.Command{
		Name: "list",
		Usage: "show the scenarios, and of a testnet that is up the nodes with their addresses and the Redis of " +
			"each region",
		Action: with(open, printList),
	}
}

// scenarioLine is a scenario in the output of list.
type scenarioLine struct {
	Name    string  `json:"name"`
	What    string  `json:"what"`
	Seconds float64 `json:"seconds"`
}

func printList(c *cli.Context, cl *cluster.Cluster) error {
	nodes, err := cl.Nodes(c.Context)
	if err != nil && !errors.Is(err, cluster.ErrNotUp) {
		return err
	}
	redises, err := cl.Redises(c.Context)
	if err != nil {
		return err
	}
	var scenarios []scenarioLine
	for _, s := range scenario.All(scenario.Options{}) {
		scenarios = append(scenarios, scenarioLine{s.Name, s.What, s.Takes.Seconds()})
	}
	if c.Bool("json") {
		return printJSON(c.App.Writer, struct {
			Nodes     []cluster.Node  `json:"nodes"`
			Redis     []cluster.Redis `json:"redis"`
			Scenarios []scenarioLine  `json:"scenarios"`
		}{append([]cluster.Node{}, nodes...), append([]cluster.Redis{}, redises...), scenarios})
	}
	t := newTable(c)
	fmt.Fprintln(t, "SCENARIO\tTAKES\tSHOWS THAT")
	for _, s := range scenarios {
		fmt.Fprintf(t, "%s\t%.0f s\t%s\n", s.Name, s.Seconds, s.What)
	}
	if len(nodes) == 0 {
		fmt.Fprintf(t, "\n%v\n", cluster.ErrNotUp)
		return t.Flush()
	}
	fmt.Fprintln(t, "\nNODE\tREGION\tHTTP\tMETRICS\tLAN\tWAN\tSTATE")
	for _, n := range nodes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s/metrics\t%s\t%s\t%s\n", n.Name, n.Region, cmp.Or(n.HTTP, "-"), n.Metrics, n.LAN,
			n.WAN, n.State)
	}
	fmt.Fprintln(t, "\nREDIS\tREGION\tSTATE")
	for _, r := range redises {
		fmt.Fprintf(t, "%s\t%s\t%s\n", r.Name, r.Region, r.State)
	}
	return t.Flush()
}

// statusLine is a node and its report in the output of status.
type statusLine struct {
	cluster.Node
	Ready        bool    `json:"ready"`
	Health       string  `json:"health"`
	Members      int     `json:"members"`
	Bound        float64 `json:"bound_ratio"`
	Staleness    float64 `json:"staleness_seconds"`
	Degraded     bool    `json:"degraded"`
	DropsInbound bool    `json:"deaf"`
	StorePending int64   `json:"store_pending_slots"` // -1: the node has no store
	Error        string  `json:"error,omitempty"`
}

func statusCommand(open opener) *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "observe every node: health, members it sees, bound, staleness, Redis",
		Description: "WAN is up, partitioned (off the network) or one-way (packets from other regions are dropped\n" +
			"on arrival). MEMBERS counts the other nodes that a node sees; after a partition it keeps\n" +
			"those it lost until it gives them up. BOUND is the largest over-admission bound of its\n" +
			"rules, in percent of the limit, over the last window. STALENESS is the age of its oldest\n" +
			"knowledge of another node; one that crashed counts for a quarter of an hour.",
		Action: with(open, printStatus),
	}
}

func printStatus(c *cli.Context, cl *cluster.Cluster) error {
	nodes, redises, err := cl.Status(c.Context)
	if err != nil {
		return err
	}
	var lines []statusLine
	for _, n := range nodes {
		l := statusLine{Node: n.Node, Ready: n.Err == nil && n.NotReady == "", Health: cmp.Or(n.NotReady, "ready"),
			Members: n.Members, Bound: n.Bound, Staleness: n.Staleness.Seconds(), Degraded: n.Degraded,
			DropsInbound: n.DropsInbound, StorePending: n.StorePending}
		if n.Err != nil {
			l.Health, l.Error = "-", n.Err.Error()
		}
		lines = append(lines, l)
	}
	if c.Bool("json") {
		return printJSON(c.App.Writer, struct {
			Nodes []statusLine    `json:"nodes"`
			Redis []cluster.Redis `json:"redis"`
		}{lines, redises})
	}
	health := make(map[string]string)
	for _, r := range redises {
		health[r.Region] = cmp.Or(r.Error, "up")
	}
	t := newTable(c)
	fmt.Fprintln(t, "NODE\tHTTP\tHEALTH\tWAN\tMEMBERS\tBOUND\tSTALENESS\tREDIS")
	for _, n := range lines {
		wan, members, bound, staleness := "up", "-", "-", "-"
		if n.Partitioned {
			wan = "partitioned"
		} else if n.DropsInbound {
			wan = "one-way"
		}
		if n.Error == "" {
			members, bound = fmt.Sprint(n.Members), fmt.Sprintf("%.1f %%", n.Bound*100)
			staleness = time.Duration(n.Staleness * float64(time.Second)).Round(time.Millisecond).String()
			if n.Degraded {
				staleness += " (degraded)"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", n.Name, cmp.Or(n.HTTP, "-"), cmp.Or(n.Error, n.Health), wan,
			members, bound, staleness, health[n.Region])
	}
	return t.Flush()
}
