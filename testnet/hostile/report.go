package hostile

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
)

// Write writes the report as a table, what became of the hostile connections, and the promises that were broken.
func (r *Report) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	const mib = 1 << 20
	fmt.Fprintln(t, "PHASE\tANSWERS\tFAILED\tP99 ms, OPENING\tP50 ms\tP99 ms\tMAX ms\tCONNECTIONS\tFILES\tRSS MiB\tFILES AFTER\tRSS AFTER\t")
	fmt.Fprintf(t, "before\t\t\t\t\t\t\t%.0f\t%.0f\t%.0f\t\t\t\n", r.Before.Connections, r.Before.Files, r.Before.RSS/mib)
	for _, p := range r.Phases {
		fmt.Fprintf(t, "%s\t%d\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t\n", p.Name, p.Good.Answers, p.Good.Failed+p.Opening.Failed, p.Opening.P99, p.Good.P50, p.Good.P99, p.Good.Max,
			p.Most.Connections, p.Most.Files, p.Most.RSS/mib, p.After.Files, p.After.RSS/mib)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, p := range r.Phases {
		for _, fate := range slices.Sorted(maps.Keys(p.Fates)) {
			fmt.Fprintf(w, "%s: %d connections: %s\n", p.Name, p.Fates[fate], fate)
		}
	}
	for _, b := range r.Broken {
		fmt.Fprintln(w, "BROKEN:", b)
	}
	verdict := "ok: it lives, answers, and has given back what it took"
	if len(r.Broken) > 0 {
		verdict = "broken"
	}
	_, err := fmt.Fprintln(w, verdict)
	return err
}
