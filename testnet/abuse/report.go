package abuse

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
)

// Write writes a table of the phases, the outcomes of abusive connections, and the failed assertions.
func (r *Report) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	const mib = 1 << 20
	fmt.Fprintln(t, "PHASE\tANSWERS\tFAILED\tP99 ms, OPENING\tP50 ms\tP99 ms\tMAX ms\tCONNECTIONS\tFILES\tRSS MiB\t"+
		"FILES AFTER\tRSS AFTER\t")
	b := r.Before
	fmt.Fprintf(t, "before\t\t\t\t\t\t\t%.0f\t%.0f\t%.0f\t\t\t\n", b.Connections, b.Files, b.RSS/mib)
	for _, p := range r.Phases {
		l := p.Compliant
		fmt.Fprintf(t, "%s\t%d\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t\n", p.Name, l.Answers,
			l.Failed+p.Opening.Failed, p.Opening.P99, l.P50, l.P99, l.Max,
			p.Peak.Connections, p.Peak.Files, p.Peak.RSS/mib, p.After.Files, p.After.RSS/mib)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, p := range r.Phases {
		for _, outcome := range slices.Sorted(maps.Keys(p.Outcomes)) {
			fmt.Fprintf(w, "%s: %d connections: %s\n", p.Name, p.Outcomes[outcome], outcome)
		}
	}
	for _, b := range r.Broken {
		fmt.Fprintln(w, "BROKEN:", b)
	}
	verdict := "ok: the node is alive, answered every compliant client and released its resources"
	if len(r.Broken) > 0 {
		verdict = "broken"
	}
	_, err := fmt.Fprintln(w, verdict)
	return err
}
