package judge

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteText writes the report for people to read: what was limited, a line for each phase, and what was broken.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "limit %d per %v and client, %d nodes, %d clients, %.1f s\n\n",
		r.Rule.Limit, r.Rule.Window, r.Nodes, r.Clients, r.Seconds)
	r.writeTable(&b)
	agreed := "never, or nothing shows it"
	if r.AgreeMs >= 0 {
		agreed = fmt.Sprintf("%.0f ms", r.AgreeMs)
	}
	fmt.Fprintf(&b, "\nbound when no fault showed  %.2f %%\n", r.SteadyPct)
	fmt.Fprintf(&b, "agreed after the last request or fault  %s\n", agreed)
	if n := r.Total.BurstDenied; n > 0 {
		fmt.Fprintf(&b, "denied by the algorithm alone, though below 95 %% in any window  %d\n", n)
	}
	if r.OK {
		b.WriteString("\nok: no invariant was broken\n")
	} else {
		b.WriteString("\nbroken:\n")
	}
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "  %-8s  second %d, %d times: %s: expected %s, got %s\n",
			v.Invariant, v.Second, v.Times, v.What, v.Expected, v.Got)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const columns = "phase\tfrom s\toffered\tadmitted\toracle\tfailed\tnet %\tover limit %\tover oracle %\texcess %\t" +
	"bound %\tceiling %\tfalse rej.\tp50 ms\tp99 ms\t\n"

func (r *Report) writeTable(b *strings.Builder) {
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, from float64, f *Figures, ceiling string) {
		fmt.Fprintf(table, "%s\t%.1f\t%d\t%d\t%d\t%d\t%+.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%s\t%d\t%.2f\t%.2f\t\n",
			name, from, f.Offered, f.Admitted, f.OracleAdmitted, f.Failed, f.NetPct, f.OverLimitPct, f.OverOraclePct,
			f.ExcessPct, f.BoundPct, ceiling, f.FalseRejections, f.LatencyP50Ms, f.LatencyP99Ms)
	}
	_, _ = io.WriteString(table, columns)
	for i := range r.Phases {
		p, ceiling := &r.Phases[i], "-"
		if p.CeilingPct > 0 {
			ceiling = fmt.Sprintf("%.2f", p.CeilingPct)
		}
		row(p.Name, p.From, &p.Figures, ceiling)
	}
	row("all", 0, &r.Total, "-")
	_ = table.Flush() // a strings.Builder takes everything
}
