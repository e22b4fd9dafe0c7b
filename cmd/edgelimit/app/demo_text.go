package app

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

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
			"(so are its bursts: a window of %v holds %v of the log).", len(o.Log), o.Speed(), o.Window, held)
	}
	fmt.Fprintf(s.out, "edgelimit demo: %d regions of %d nodes on loopback, gossip every %v.\n",
		o.Regions, o.Nodes, o.Interval)
	fmt.Fprintf(s.out, "Limit: %d per %v and client, over all nodes.\n%s\n", o.Limit, o.Window, traffic)
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
	const text = "%5.1fs  offered %d  admitted %d (oracle %d)  over %+.1f %% (bound %.1f %%)  age %v\n"
	fmt.Fprintf(s.out, text, p.Elapsed.Seconds(), p.Total.Offered, p.Total.Admitted, p.Total.OracleAdmitted,
		s.over*100, p.Bound*100, p.Stale.Round(time.Millisecond))
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
	if r.OK {
		fmt.Fprintln(s.out, "\nok: over-admission stayed within the nodes' bound")
		return
	}
	fmt.Fprintln(s.out, "\nNOT ok:\n - "+strings.Join(r.Wrong, "\n - "))
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
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t\n", clean(l.Client), l.Offered, l.Admitted, l.OracleAdmitted, l.Denied)
	}
	w.Flush()
}

// clean keeps a log's bytes from steering the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return '?'
		}
		return r
	}, s)
}

func after(ms int64, what string) string {
	if ms < 0 {
		return "never: " + what
	}
	return fmt.Sprintf("%d ms until %s", ms, what)
}
