package app

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/edgelimit/edgelimit/node/text"
	"github.com/edgelimit/edgelimit/testnet/demo"
)

// lineShow prints a line a second, for where there is no terminal.
type lineShow struct {
	out   io.Writer
	opt   demo.Options
	lines int
	over  float64 // largest since the last line
	phase demo.Phase
}

func (s *lineShow) begin(o demo.Options) {
	s.opt = o
	traffic := fmt.Sprintf("Traffic: one client at %g times the limit, and one that keeps to it.", o.Load)
	if len(o.Log) > 0 {
		held := time.Duration(float64(o.Window) * o.Speed()).Round(time.Second)
		traffic = fmt.Sprintf("Traffic: %d requests of a log, one client an address, %.0f times as fast\n"+
			"(so are its bursts: a window of %v holds %v of the log).", len(o.Log), o.Speed(),
			text.Duration(o.Window), text.Duration(held))
	}
	fmt.Fprintf(s.out, "edgelimit demo: %d regions of %d nodes on loopback, gossip every %v.\n",
		o.Regions, o.Nodes, text.Duration(o.Interval))
	fmt.Fprintf(s.out, "Limit: %d per %v and client, over all nodes.\n%s\n", o.Limit, text.Duration(o.Window), traffic)
}

func (s *lineShow) sample(p demo.Sample) {
	s.over = max(s.over, p.Over)
	if p.Phase != s.phase {
		s.phase = p.Phase
		fmt.Fprintf(s.out, "-- %s\n", phaseText(p))
	}
	if s.lines++; s.lines%4 != 0 {
		return
	}
	const line = "%5.1fs  offered %d  admitted %d (oracle %d)  over %+.1f %% (bound %.1f %%)  age %v\n"
	fmt.Fprintf(s.out, line, p.Elapsed.Seconds(), p.Total.Offered, p.Total.Admitted, p.Total.OracleAdmitted,
		s.over*100, p.Bound*100, text.Duration(p.Stale.Round(time.Millisecond)))
	s.over = 0
}

// looseBound says why a bound may be above what the sides of a partition can admit together.
const looseBound = "nodes do not know who is together: silent peers count apart"

func phaseText(p demo.Sample) string {
	if p.Phase == demo.Partitioned {
		return "partition of " + p.Partitioned
	}
	return string(p.Phase)
}

func (s *lineShow) end(r *demo.Report) {
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	fmt.Fprintln(w)
	row("offered", "%d requests, clients: %d (%s)", r.Offered, r.Clients, r.Traffic)
	row("admitted", "%d; the oracle would have admitted %d (%+.1f %%)", r.Admitted, r.OracleAdmitted, r.NetPct)
	row("false rejections", "%s", falseRejections(r.Fairness))
	if r.PartitionSeconds > 0 {
		row("outside the partition", "")
	}
	row("over, worst window", "%+.2f %% of the limit, compared with the oracle's fullest", r.OverAdmissionPct)
	row("over, as counted", "%+.2f %% of the limit, the nodes' bound was %.2f %%", r.ExcessPct, r.BoundPct)
	row("staleness", "median %.0f ms, 99th percentile %.0f ms", r.StalenessP50Millis, r.StalenessP99Millis)
	if r.PartitionSeconds > 0 {
		row("partition of "+r.PartitionRegion, "for %gs", r.PartitionSeconds)
		row("over, worst window", "%+.1f %%, bound %.1f %%, ceiling for two sides %.0f %%",
			r.PartitionOverAdmissionPct, r.PartitionBoundPct, r.PartitionCeilingPct)
		row("healed", "%s", after(r.HealMillis, "every node had received all counts again"))
		if r.PartitionBoundPct > r.PartitionCeilingPct {
			row("bound above ceiling", looseBound)
		}
	}
	row("after the last request", "%s", after(r.AgreeMillis, "all nodes held the same counts"))
	w.Flush()
	s.limited(r)
	_ = printVerdict(s.out, r.Wrong)
}

// limitedShown is how many of the limited clients are listed.
const limitedShown = 10

func (s *lineShow) limited(r *demo.Report) {
	if r.Clients < 2 {
		return
	}
	if len(r.Limited) == 0 {
		fmt.Fprintln(s.out, "\nnobody was limited")
		return
	}
	fmt.Fprintf(s.out, "\n%d of %d clients were limited; most often:\n", len(r.Limited), r.Clients)
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "client\toffered\tadmitted\toracle\tdenied\t")
	for _, l := range r.Limited[:min(limitedShown, len(r.Limited))] {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t\n", text.Clean(l.Client), l.Offered, l.Admitted, l.OracleAdmitted,
			l.Denied)
	}
	w.Flush()
}

// What a terminal has to have for a table, in columns and lines, and how long the bar of progress is.
const (
	tableWidth  = 80
	tableHeight = 20
	barWidth    = 24
)

// ink paints text where that is wanted.
type ink bool

// Colours of ink, as SGR parameters.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (i ink) paint(colour, text string) string {
	if !i {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// tableShow redraws a table in place, for a terminal of at least tableWidth columns.
type tableShow struct {
	lineShow
	terminal io.Writer // the output, for what steers it as well
	ink      ink
	height   int // of the terminal, in lines
}

func (s *tableShow) sample(p demo.Sample) {
	up, table := textIf(s.lines > 0, "\x1b[%dA\x1b[J", s.lines), s.draw(p)
	s.lines = strings.Count(table, "\n")
	_, _ = io.WriteString(s.terminal, up+table)
}

// nodeLine returns the line of a node. Its peers are not shown if their number is negative.
func nodeLine(mark string, n *demo.NodeSample) string {
	peers := textIf(n.Peers >= 0, "%d/%d", n.Peers-len(n.Unreachable), n.Peers)
	return fmt.Sprintf("%s%-14s%9d%10d%9d%8s%10v%10.1f %%", mark, n.ID, n.Requests.Offered, n.Requests.Admitted,
		n.Requests.Denied, peers, text.Duration(n.Stale.Round(time.Millisecond)), n.Bound*100)
}

func (s *tableShow) draw(p demo.Sample) string {
	var b strings.Builder
	done := min(barWidth, int(float64(barWidth)*p.Elapsed.Seconds()/s.opt.Duration.Seconds()))
	colour := green
	if p.Phase == demo.Partitioned {
		colour = yellow
	}
	fmt.Fprintf(&b, "\n[%s%s] %.0fs of %v   %s\n\n", strings.Repeat("#", done), strings.Repeat(".", barWidth-done),
		p.Elapsed.Seconds(), text.Duration(s.opt.Duration), s.ink.paint(colour, phaseText(p)))
	const head = "  node            offered  admitted   denied   peers       age       bound"
	b.WriteString(s.ink.paint(bold, head) + "\n")
	for _, n := range s.nodes(p) {
		if p.Phase == demo.Partitioned && n.Region == p.Partitioned {
			b.WriteString(s.ink.paint(yellow, nodeLine("✂ ", &n)) + "\n")
		} else {
			b.WriteString(nodeLine("  ", &n) + "\n")
		}
	}
	all := demo.NodeSample{ID: "all", Requests: p.Total, Peers: -1, Stale: p.Stale, Bound: p.Bound}
	b.WriteString(nodeLine("  ", &all) + "\n\n")
	over := fmt.Sprintf("%+.1f %%", p.Over*100)
	if p.Over > p.Bound {
		over = s.ink.paint(red, over)
	}
	fmt.Fprintf(&b, "over the limit %s, at most %.1f %% by the bound (over the last window)\n", over, p.Bound*100)
	if p.Bound > 1 {
		fmt.Fprintln(&b, looseBound)
	}
	fmt.Fprintf(&b, "the oracle, with instant knowledge, would have admitted %d\n", p.Total.OracleAdmitted)
	for _, text := range unreachable(p) {
		fmt.Fprintln(&b, s.ink.paint(yellow, text))
	}
	return b.String()
}

// nodes returns the nodes, or where the terminal has no room for them the regions: the worst of the nodes in each.
func (s *tableShow) nodes(p demo.Sample) (regions []demo.NodeSample) {
	const others = 12 // lines beside those of nodes
	if s.height == 0 || len(p.Nodes)+others <= s.height {
		return p.Nodes
	}
	for _, n := range p.Nodes {
		last := len(regions) - 1
		if last < 0 || regions[last].Region != n.Region {
			n.ID = n.Region
			regions = append(regions, n)
			continue
		}
		r := &regions[last]
		r.Requests.Offered += n.Requests.Offered
		r.Requests.Admitted += n.Requests.Admitted
		r.Requests.Denied += n.Requests.Denied
		r.Stale, r.Bound = max(r.Stale, n.Stale), max(r.Bound, n.Bound)
		if len(n.Unreachable) > len(r.Unreachable) {
			r.Unreachable = n.Unreachable
		}
	}
	return regions
}

// unreachable says in words which regions receive nothing from which other ones.
func unreachable(p demo.Sample) (lines []string) {
	receivers := make(map[string][]string) // by whom they cannot reach
	for _, n := range p.Nodes {
		var from []string
		for _, peer := range n.Unreachable {
			from = append(from, peer.Region)
		}
		slices.Sort(from)
		silent := strings.Join(slices.Compact(from), ", ")
		if silent != "" && !slices.Contains(receivers[silent], n.Region) {
			receivers[silent] = append(receivers[silent], n.Region)
		}
	}
	for _, silent := range slices.Sorted(maps.Keys(receivers)) {
		lines = append(lines, fmt.Sprintf("%s: nothing comes from %s", strings.Join(receivers[silent], ", "), silent))
	}
	return lines
}
