package checker

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteText writes the report for people to read: what was limited, a line for each phase, and what was broken.
func (r *Report) WriteText(w io.Writer) error {
	p := &printer{out: w}
	p.printf("limit %d per %v and client, %d nodes, %d clients, %.1f s\n\n", r.Rule.Limit, r.Rule.Window, r.Nodes, r.Clients, r.Seconds)
	r.writeTable(p)
	p.printf("\nbound when no fault showed  %.2f %%\n", r.SteadyPct)
	if r.AgreeMs >= 0 {
		p.printf("agreed after the last request or fault  %.0f ms\n", r.AgreeMs)
	} else {
		p.printf("agreed after the last request or fault  never, or nothing shows it\n")
	}
	if t := &r.Total; t.BurstDenied > 0 {
		p.printf("denied by the algorithm alone, though below 95 %% in any window  %d\n", t.BurstDenied)
	}
	if r.OK {
		p.printf("\nok: no invariant was broken\n")
	} else {
		p.printf("\nbroken:\n")
	}
	for _, v := range r.Violations {
		p.printf("  %-8s  second %d, %d times: %s: expected %s, got %s\n", v.Invariant, v.Second, v.Times, v.What, v.Expected, v.Got)
	}
	return p.err
}

func (r *Report) writeTable(p *printer) {
	table := tabwriter.NewWriter(p, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := &printer{out: table}
	row.printf("phase\tfrom s\toffered\tadmitted\toracle\tfailed\tnet %%\tover limit %%\tover oracle %%\texcess %%\tbound %%\tceiling %%\tfalse rej.\tp50 ms\tp99 ms\t\n")
	write := func(name string, from float64, f *Figures, ceiling string) {
		row.printf("%s\t%.1f\t%d\t%d\t%d\t%d\t%+.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%s\t%d\t%.2f\t%.2f\t\n", name, from, f.Offered, f.Admitted, f.OracleAdmitted,
			f.Failed, f.NetPct, f.OverLimitPct, f.OverOraclePct, f.ExcessPct, f.BoundPct, ceiling, f.FalseRejections, f.LatencyP50Ms, f.LatencyP99Ms)
	}
	for i := range r.Phases {
		ph, ceiling := &r.Phases[i], "-"
		if ph.CeilingPct > 0 {
			ceiling = fmt.Sprintf("%.2f", ph.CeilingPct)
		}
		write(ph.Name, ph.From, &ph.Figures, ceiling)
	}
	write("all", 0, &r.Total, "-")
	if err := table.Flush(); p.err == nil {
		p.err = err
	}
}

// printer keeps the first error of many writes.
type printer struct {
	out io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format, args...)
	}
}

// Write makes a printer what a table is written to.
func (p *printer) Write(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	n, err := p.out.Write(b)
	p.err = err
	return n, err
}
