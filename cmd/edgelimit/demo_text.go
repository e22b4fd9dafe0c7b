package main

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
	traffic := fmt.Sprintf("offered %g times the limit by all regions together, and a client that keeps to the limit beside", o.Load)
	if len(o.Log) > 0 {
		traffic = fmt.Sprintf("offered %d requests of a log, one client an address, %.0f times as fast as they came\n"+
			"(so are its bursts: a window of %[3]v holds %[4]v of the log)", len(o.Log), o.Speed(), o.Window, time.Duration(float64(o.Window)*o.Speed()).Round(time.Second))
	}
	fmt.Fprintf(s.out, "edgelimit demo: %d regions of %d nodes on loopback, a limit of %d per %v and client over all of them,\n%s; gossip every %v.\n",
		o.Regions, o.Nodes, o.Limit, o.Window, traffic, o.Interval)
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
	fmt.Fprintf(s.out, "%5.1fs  offered %d  admitted %d (oracle %d)  over the limit %+.1f %% (bound %.1f %%)  staleness %v\n", p.Elapsed.Seconds(),
		p.Total.Offered, p.Total.Admitted, p.Total.OracleAdmitted, s.over*100, p.Bound*100, p.Stale.Round(time.Millisecond))
	s.over = 0
}

func phaseText(p demo.Sample) string {
	if p.Phase == demo.Cut {
		return "cut: " + p.CutOff + " is alone, and so are the others"
	}
	return string(p.Phase)
}

func (s *lineShow) end(r *demo.Report) {
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w)
	fmt.Fprintf(w, "offered\t%d requests, clients: %d (%s)\n", r.Offered, r.Clients, r.Traffic)
	fmt.Fprintf(w, "admitted\t%d; the oracle would have admitted %d (%+.1f %%)\n", r.Admitted, r.OracleAdmitted, r.NetPct)
	fmt.Fprintf(w, "false rejections\t%s\n", falseRejections(r.Fairness))
	if r.CutSeconds > 0 {
		fmt.Fprintln(w, "outside the cut\t")
	}
	fmt.Fprintf(w, "over the limit, worst window\t%+.2f %%, the nodes' bound was %.2f %%\n", r.OverAdmissionPct, r.BoundPct)
	fmt.Fprintf(w, "staleness\tmedian %.0f ms, 99th percentile %.0f ms\n", r.StalenessP50Millis, r.StalenessP99Millis)
	if r.CutSeconds > 0 {
		fmt.Fprintf(w, "in the cut of %s for %gs\t\n", r.CutRegion, r.CutSeconds)
		fmt.Fprintf(w, "over the limit, worst window\t%+.1f %%, the nodes' bound was %.1f %%, the ceiling for two sides %.0f %%\n",
			r.CutOverAdmissionPct, r.CutBoundPct, r.CutCeilingPct)
		fmt.Fprintf(w, "healed\t%s\n", after(r.HealMillis, "every node knew all counts again"))
	}
	fmt.Fprintf(w, "after the last request\t%s\n", after(r.AgreeMillis, "all nodes held the same counts"))
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

// tableShow redraws a table in place, for a terminal.
type tableShow struct{ lineShow }

func (s *tableShow) sample(p demo.Sample) {
	var b strings.Builder
	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", s.lines)
	}
	body := s.draw(p)
	s.lines = strings.Count(body, "\n")
	b.WriteString(body)
	_, _ = io.WriteString(s.out, b.String())
}

const (
	barWidth   = 30
	tableWidth = 90
)

func (s *tableShow) draw(p demo.Sample) string {
	var b strings.Builder
	done := min(barWidth, int(float64(barWidth)*p.Elapsed.Seconds()/s.opt.Duration.Seconds()))
	fmt.Fprintf(&b, "\n[%s%s] %.0fs of %v   %s\n\n", strings.Repeat("#", done), strings.Repeat(".", barWidth-done),
		p.Elapsed.Seconds(), s.opt.Duration, phaseText(p))
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "region\tnode\toffered\tadmitted\tdenied\tpeers\tstaleness\tbound\t")
	for _, n := range p.Nodes {
		mark := ""
		if p.Phase == demo.Cut && n.Region == p.CutOff {
			mark = "✂ "
		}
		fmt.Fprintf(w, "%s%s\t%s\t%d\t%d\t%d\t%d\t%v\t%.1f %%\t\n", mark, n.Region, n.ID, n.Tally.Offered, n.Tally.Admitted, n.Tally.Denied,
			n.Members, n.Stale.Round(time.Millisecond), n.Bound*100)
	}
	fmt.Fprintf(w, "all\t\t%d\t%d\t%d\t\t%v\t%.1f %%\t\n", p.Total.Offered, p.Total.Admitted, p.Total.Denied, p.Stale.Round(time.Millisecond), p.Bound*100)
	w.Flush()
	fmt.Fprintf(&b, "\nover the limit %+.1f %%, at most %.1f %% by the bound (over the last window)\nthe oracle, with instant knowledge, would have admitted %d\n",
		p.Over*100, p.Bound*100, p.Total.OracleAdmitted)
	return b.String()
}
