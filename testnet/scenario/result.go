package scenario

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/edgelimit/edgelimit/testnet/judge"
)

// Result is the outcome of a scenario. Members of its JSON are only ever appended.
type Result struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Seconds is the duration of all attempts.
	Seconds float64 `json:"seconds"`
	// Attempts counts the runs: 2 where the first failed and was repeatable.
	Attempts int `json:"attempts"`
	// Busy says how long the machine stood still in the last attempt; empty: not longer than MaxPause.
	Busy       string      `json:"busy"`
	Assertions []Assertion `json:"promises"`
	// Figures are those of the last attempt, by name: README.md of the testnet explains them.
	Figures map[string]float64 `json:"figures"`
	// Violations are the broken invariants, as package checker found them.
	Violations []judge.Violation `json:"violations"`
	// Observations show that the faults took hold.
	Observations []string `json:"evidence"`
	// Record is the file with every decision; empty: it was not kept.
	Record string `json:"record"`
	// Error says why there is no verdict; empty: there is one.
	Error string `json:"error"`
	// FirstRecord is the record of the first of two attempts.
	FirstRecord string `json:"first_record"`
}

// Assertion is something that has to hold.
type Assertion struct {
	What     string `json:"promise"`
	Expected string `json:"expected"`
	Got      string `json:"got"`
	OK       bool   `json:"ok"`
}

func (r *Result) held() (n int) {
	for _, a := range r.Assertions {
		if a.OK {
			n++
		}
	}
	return n
}

// passed reports whether all invariants and assertions held.
func (r *Result) passed() bool { return len(r.Violations) == 0 && r.held() == len(r.Assertions) }

// repeatable reports whether a failed run is no measurement: the machine stood still, and no invariant was broken.
func (r *Result) repeatable() bool { return !r.OK && r.Busy != "" && len(r.Violations) == 0 }

// WriteTable writes the results as text: a line for each scenario, then what each asserted and measured.
func WriteTable(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SCENARIO\tRESULT\tSECONDS\tRUNS\tASSERTIONS")
	for i := range results {
		r := &results[i]
		fmt.Fprintf(t, "%s\t%s\t%.0f\t%d\t%d of %d held\n", r.Name, verdict(r.OK), r.Seconds, r.Attempts, r.held(),
			len(r.Assertions))
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
	line := func(format string, args ...any) { fmt.Fprintf(&b, "  "+format+"\n", args...) }
	fmt.Fprintf(&b, "\n%s: %s\n", r.Name, verdict(r.OK))
	if r.Error != "" {
		line("no verdict: %s", r.Error)
	}
	if r.Busy != "" {
		line("the machine stood still: %s", r.Busy)
	}
	for _, a := range r.Assertions {
		line("%-6s  %s: expected %s, got %s", verdict(a.OK), a.What, a.Expected, a.Got)
	}
	for _, v := range r.Violations {
		line("broken  %s, second %d, %d times: %s: expected %s, got %s", v.Invariant, v.Second, v.Times, v.What,
			v.Expected, v.Got)
	}
	for _, o := range r.Observations {
		line("seen    %s", o)
	}
	var figures []string
	for _, name := range slices.Sorted(maps.Keys(r.Figures)) {
		figures = append(figures, fmt.Sprintf("%s %.5g", name, r.Figures[name]))
	}
	line("%s", strings.Join(figures, ", "))
	if r.Record != "" {
		line("the record is %s", r.Record)
	}
	if r.FirstRecord != "" {
		line("the record of the first run, which failed, is %s", r.FirstRecord)
	}
	return b.String()
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "FAILED"
}
