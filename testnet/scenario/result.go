package scenario

import (
	"fmt"
	"io"
	"maps"
	"slices"
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

// WriteTable writes the results for people to read: a line for each scenario, and what was promised.
func WriteTable(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SCENARIO\tRESULT\tPROMISE\tEXPECTED\tGOT")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%s\t%.0f s, %d of %d promises held\t\t\n", r.Name, verdict(r.OK), r.Seconds, r.held(), len(r.Promises))
		if r.Error != "" {
			fmt.Fprintf(t, "\t\t%s\t\t\n", r.Error)
		}
		if r.Busy != "" {
			fmt.Fprintf(t, "\t\tmachine too busy: %s\t\t\n", r.Busy)
		}
		for _, p := range r.Promises {
			fmt.Fprintf(t, "\t%s\t%s\t%s\t%s\n", verdict(p.OK), p.What, p.Expected, p.Got)
		}
		for _, v := range r.Violations {
			fmt.Fprintf(t, "\t\t%s, second %d, %d times: %s\t%s\t%s\n", v.Invariant, v.Second, v.Times, v.What, v.Expected, v.Got)
		}
		for _, name := range slices.Sorted(maps.Keys(r.Figures)) {
			fmt.Fprintf(t, "\t\t%s\t\t%.6g\n", name, r.Figures[name])
		}
	}
	return t.Flush()
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
