package plan

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Write prints the plan for people, in 80 columns.
func (r *Report) Write(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "edgelimit sim: a plan for %d regions of %d nodes, %s in all.\n", r.Regions, r.Nodes,
		thousands(float64(r.Regions*r.Nodes)))
	if r.KeysTotal > 0 {
		fmt.Fprintf(&b, "%s live keys, %g %% of them seen in three regions and %g %% by two nodes of a\nregion; "+
			"at each node %s requests/s for them, by Zipf's law.\n", thousands(float64(r.KeysTotal)), r.OverlapPct,
			r.OverlapPct, thousands(r.Requests))
	}
	if r.New > 0 {
		fmt.Fprintf(&b, "%s new keys/s at each node, which never come again.\n", thousands(r.New))
	}
	if r.HotKeys > 0 {
		fmt.Fprintf(&b, "%s keys at all nodes, at %g times the limit.\n", thousands(float64(r.HotKeys)), r.Load)
	}
	fmt.Fprintf(&b, "A limit of %d per %gs, gossip every %g ms, one way %g ms between regions and\n%g ms inside, "+
		"%g %% loss; seed %d.\n\n",
		r.Limit, r.WindowS, r.IntervalMs, r.WANDelayMs, r.LANDelayMs, r.LossPct, r.Seed)
	r.writeCosts(&b)
	r.writeBreaks(&b)
	r.writeSampled(&b)
	_, err := io.WriteString(out, b.String())
	return err
}

func (r *Report) writeCosts(b *strings.Builder) {
	costs := []struct {
		head string
		of   *Cost
	}{{"mean", &r.Mean}, {"busiest", &r.Busiest}, {"full mesh", &r.Mesh}}
	title := "Each node"
	if !r.Owners {
		costs = costs[:1]
		costs[0].head = ""
		title = "Each node: all send to all"
	}
	rows := []struct {
		name string
		of   func(*Cost) float64
	}{
		{"sends, Mbit/s", func(c *Cost) float64 { return c.MbitOut }},
		{"receives, Mbit/s", func(c *Cost) float64 { return c.MbitIn }},
		{"sends, messages/s", func(c *Cost) float64 { return c.MessagesOut }},
		{"receives, messages/s", func(c *Cost) float64 { return c.MessagesIn }},
		{"CPU, % of a core", func(c *Cost) float64 { return c.CPU.Total() }},
		{"  decisions", func(c *Cost) float64 { return c.CPU.Decisions }},
		{"  sending", func(c *Cost) float64 { return c.CPU.Sending }},
		{"  receiving", func(c *Cost) float64 { return c.CPU.Receiving }},
		{"  merging", func(c *Cost) float64 { return c.CPU.Merging }},
		{"memory of counts, MiB", func(c *Cost) float64 { return c.MiB }},
	}
	fmt.Fprintf(b, "%-28s", title)
	for _, c := range costs {
		fmt.Fprintf(b, "%12s", c.head)
	}
	b.WriteString("\n")
	for _, row := range rows {
		fmt.Fprintf(b, "%-28s", row.name)
		for _, c := range costs {
			fmt.Fprintf(b, "%12s", Figure(row.of(c.of)))
		}
		b.WriteString("\n")
	}
}

func (r *Report) writeBreaks(b *strings.Builder) {
	b.WriteString("\nWhat runs out first as the load grows, at the busiest node:\n")
	for _, x := range r.Breaks {
		verdict := "at " + x.Times() + " the load"
		if x.Headroom < 1 {
			verdict = "NOT ENOUGH: for " + x.Times()
		}
		used := fmt.Sprintf("%s of %s %s", Figure(x.Used), Figure(x.Budget), x.Unit)
		fmt.Fprintf(b, "  %-14s %-29s %s\n", x.What, used, verdict)
	}
}

func (r *Report) writeSampled(b *strings.Builder) {
	s := r.Sampled
	fmt.Fprintf(b, "\nSimulated, with %s requests: ", thousands(float64(s.Requests)))
	var what []string
	if r.KeysTotal > 0 {
		what = append(what, fmt.Sprintf("one key in %d", s.OneIn))
	}
	if r.HotKeys > 0 {
		what = append(what, fmt.Sprintf("%d of the hot ones", s.HotKeys))
	}
	fmt.Fprintf(b, "%s,\nat %d nodes, for %gs after a window of %gs.\n", strings.Join(what, ", "), s.Nodes, s.MeasuredS,
		s.WindowS)
	if s.StandIns > 0 {
		fmt.Fprintf(b, "One region is simulated node by node. Each of the other %d is one node, which is\n"+
			"asked for what all its nodes would be.\n", s.StandIns)
	}
	b.WriteString("The rest is arithmetic, at what messages, counts and decisions cost on the\n" +
		"machine of our benchmarks. Not in it: the API and its requests, TLS, probes of\n" +
		"members, and what a node takes when idle.\n")
}

// Figure is a number with as many digits as an operator reads.
func Figure(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return thousands(v)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 0.1 || a == 0:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// Times is the headroom, for people.
func (b Break) Times() string {
	switch {
	case b.Headroom >= maxHeadroom:
		return thousands(maxHeadroom) + " times and more"
	case b.Headroom >= 10:
		return fmt.Sprintf("%.0f times", b.Headroom)
	}
	return fmt.Sprintf("%.2g times", b.Headroom)
}

// thousands is a whole number with commas.
func thousands(v float64) string {
	s := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
