package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/multiregion"
)

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// nodeLine is a node in the output; its names are those of the JSON.
type nodeLine struct {
	Name    string `json:"name"`
	Region  string `json:"region"`
	HTTP    string `json:"http,omitempty"`
	Metrics string `json:"metrics"`
	LAN     string `json:"lan"`
	WAN     string `json:"wan"`
	State   string `json:"state"`
	Cut     bool   `json:"cut"`
}

func lineOf(n multiregion.Node) nodeLine {
	return nodeLine{n.Name, n.Region, n.HTTP, n.Metrics, n.LAN, n.WAN, n.State, n.Cut}
}

type redisLine struct {
	Name   string `json:"name"`
	Region string `json:"region"`
	State  string `json:"state"`
	Error  string `json:"error,omitempty"`
}

func listCommand(open opener) *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "show the scenarios, and of a testnet that is up the nodes with their addresses and the Redis of each region",
		Action: with(open, 0, func(c *cli.Context, net *multiregion.Testnet) error {
			nodes, redises, err := ask(c.Context, net)
			if err != nil {
				return err
			}
			return printList(c, nodes, redises)
		}),
	}
}

func printList(c *cli.Context, nodes []multiregion.Node, redises []multiregion.Redis) error {
	var out struct {
		Nodes     []nodeLine     `json:"nodes"`
		Redis     []redisLine    `json:"redis"`
		Scenarios []scenarioLine `json:"scenarios"`
	}
	out.Nodes, out.Redis, out.Scenarios = []nodeLine{}, []redisLine{}, scenarioLines()
	for _, n := range nodes {
		out.Nodes = append(out.Nodes, lineOf(n))
	}
	for _, r := range redises {
		out.Redis = append(out.Redis, redisLine{Name: r.Name, Region: r.Region, State: r.State})
	}
	if c.Bool("json") {
		return printJSON(c.App.Writer, out)
	}
	if err := printScenarios(c.App.Writer, out.Scenarios); err != nil {
		return err
	}
	if len(out.Nodes) == 0 {
		_, err := fmt.Fprintf(c.App.Writer, "\n%v\n", multiregion.ErrNotUp)
		return err
	}
	t := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nNODE\tREGION\tHTTP\tMETRICS\tLAN\tWAN\tSTATE")
	for _, n := range out.Nodes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s/metrics\t%s\t%s\t%s\n", n.Name, n.Region, orDash(n.HTTP), n.Metrics, n.LAN, n.WAN, n.State)
	}
	fmt.Fprintln(t, "\nREDIS\tREGION\tSTATE")
	for _, r := range out.Redis {
		fmt.Fprintf(t, "%s\t%s\t%s\n", r.Name, r.Region, r.State)
	}
	return t.Flush()
}

func printScenarios(w io.Writer, lines []scenarioLine) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SCENARIO\tTAKES\tSHOWS THAT")
	for _, s := range lines {
		fmt.Fprintf(t, "%s\t%.0f s\t%s\n", s.Name, s.Seconds, s.What)
	}
	return t.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// statusLine is a node with what it says.
type statusLine struct {
	nodeLine
	Ready     bool    `json:"ready"`
	Health    string  `json:"health"`
	Members   int     `json:"members"`
	Bound     float64 `json:"bound_ratio"`
	Staleness float64 `json:"staleness_seconds"`
	Degraded  bool    `json:"degraded"`
	Deaf      bool    `json:"deaf"`
	// StorePending is -1 when the node has no store.
	StorePending int64  `json:"store_pending_slots"`
	Error        string `json:"error,omitempty"`
}

func statusCommand(open opener) *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "ask every node how it is: health, members it sees, bound, staleness, Redis",
		Description: "WAN is up, cut (off the network) or deaf (packets from other regions are dropped on arrival). MEMBERS are the other nodes\n" +
			"that a node sees; after a cut it goes on counting those it lost until it gives them up. BOUND is the largest\n" +
			"over-admission bound of its rules, in percent of the limit, over the last window. STALENESS is the age of what it knows of the\n" +
			"node that it knows least of; one that crashed counts for a quarter of an hour.",
		Action: with(open, 0, func(c *cli.Context, net *multiregion.Testnet) error {
			nodes, redises, err := net.Status(c.Context)
			if err != nil {
				return err
			}
			return printStatus(c, nodes, redises)
		}),
	}
}

func printStatus(c *cli.Context, nodes []multiregion.NodeStatus, redises []multiregion.RedisStatus) error {
	var out struct {
		Nodes []statusLine `json:"nodes"`
		Redis []redisLine  `json:"redis"`
	}
	for _, n := range nodes {
		l := statusLine{nodeLine: lineOf(n.Node), Health: "ready", Ready: true, Members: n.Members, Bound: n.Bound,
			Staleness: n.Staleness.Seconds(), Degraded: n.Degraded, Deaf: n.Deaf, StorePending: n.StorePending}
		switch {
		case n.Err != nil:
			l.Ready, l.Health, l.Error = false, "-", n.Err.Error()
		case n.NotReady != "":
			l.Ready, l.Health = false, n.NotReady
		}
		out.Nodes = append(out.Nodes, l)
	}
	health := make(map[string]string)
	for _, r := range redises {
		l := redisLine{Name: r.Name, Region: r.Region, State: r.State}
		health[r.Region] = "up"
		if r.Err != nil {
			l.Error = r.Err.Error()
			health[r.Region] = l.Error
		}
		out.Redis = append(out.Redis, l)
	}
	if c.Bool("json") {
		return printJSON(c.App.Writer, out)
	}
	t := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tHTTP\tHEALTH\tWAN\tMEMBERS\tBOUND\tSTALENESS\tREDIS")
	for _, n := range out.Nodes {
		if n.Error != "" {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t-\t-\t-\t%s\n", n.Name, orDash(n.HTTP), n.Error, wanWord(n), health[n.Region])
			continue
		}
		degraded := ""
		if n.Degraded {
			degraded = " (degraded)"
		}
		stale := time.Duration(n.Staleness * float64(time.Second)).Round(time.Millisecond)
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%.1f %%\t%v%s\t%s\n", n.Name, orDash(n.HTTP), n.Health, wanWord(n), n.Members,
			n.Bound*100, stale, degraded, health[n.Region])
	}
	return t.Flush()
}

func wanWord(n statusLine) string {
	switch {
	case n.Cut:
		return "cut"
	case n.Deaf:
		return "deaf"
	}
	return "up"
}
