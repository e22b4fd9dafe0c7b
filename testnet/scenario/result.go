package scenario

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/edgelimit/edgelimit/testnet/checker"
)

// Result is what came of a scenario. Members of its JSON are only ever appended.
type Result struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Seconds is how long it took, with all attempts.
	Seconds float64 `json:"seconds"`
	// Attempts is how often it was run: more than once where the machine was too busy.
	Attempts int `json:"attempts"`
	// Busy says how the machine was too busy in the last attempt; empty: it was not.
	Busy     string    `json:"busy"`
	Promises []Promise `json:"promises"`
	// Figures are those of the last attempt, by name: README.md of the testnet explains them.
	Figures map[string]float64 `json:"figures"`
	// Violations are the invariants that were broken, as package checker found them.
	Violations []checker.Violation `json:"violations"`
	// Evidence is what shows that the faults took hold.
	Evidence []string `json:"evidence"`
	// Record is the file with every decision; empty: it was not kept.
	Record string `json:"record"`
	// Error says why there is no verdict; empty: there is one.
	Error string `json:"error"`
}

// Promise is something that has to hold.
type Promise struct {
	What     string `json:"promise"`
	Expected string `json:"expected"`
	Got      string `json:"got"`
	OK       bool   `json:"ok"`
}

// WriteTable writes the results for people to read: a line for each scenario, then what each promised and measured.
func WriteTable(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SCENARIO\tRESULT\tSECONDS\tRUNS\tPROMISES")
	for i := range results {
		r := &results[i]
		fmt.Fprintf(t, "%s\t%s\t%.0f\t%d\t%d of %d held\n", r.Name, verdict(r.OK), r.Seconds, r.Attempts, r.held(), len(r.Promises))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range results {
		if _, err := io.WriteString(w, results[i].text()); err != nil {
			return err
		}
	}
	return nil
}

func (r *Result) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s: %s\n", r.Name, verdict(r.OK))
	if r.Error != "" {
		fmt.Fprintf(&b, "  no verdict: %s\n", r.Error)
	}
	if r.Busy != "" {
		fmt.Fprintf(&b, "  machine too busy: %s\n", r.Busy)
	}
	for _, p := range r.Promises {
		fmt.Fprintf(&b, "  %-6s  %s: %s; it was: %s\n", verdict(p.OK), p.What, p.Expected, p.Got)
	}
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "  broken  %s, second %d, %d times: %s: expected %s, got %s\n", v.Invariant, v.Second, v.Times, v.What, v.Expected, v.Got)
	}
	for _, e := range r.Evidence {
		fmt.Fprintf(&b, "  seen    %s\n", e)
	}
	var figures []string
	for _, name := range slices.Sorted(maps.Keys(r.Figures)) {
		figures = append(figures, fmt.Sprintf("%s %.5g", name, r.Figures[name]))
	}
	fmt.Fprintf(&b, "  %s\n", strings.Join(figures, ", "))
	if r.Record != "" {
		fmt.Fprintf(&b, "  the record is %s\n", r.Record)
	}
	return b.String()
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "FAILED"
}

func (r *Result) held() (n int) {
	for _, p := range r.Promises {
		if p.OK {
			n++
		}
	}
	return n
}
