package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/judge"
	planner "github.com/edgelimit/edgelimit/testnet/plan"
	"github.com/edgelimit/edgelimit/testnet/sim"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// The whole document, of runs that showed nothing: every goal and row is in it, and every table is one.
func TestDocument(t *testing.T) {
	d, err := open("")
	testkit.Must(t, err)
	d.fairness, d.curve = false, false // take seconds, and have tests of their own
	testkit.Must(t, d.simulate(t.Context(), seeds{1, 2}, 2, (&fake{runs: make(map[string]int)}).run, io.Discard))
	d.fairness, d.trials = true, []trial{
		{
			weight: "odd", subWindows: 7, bytes: 99.6, compliant: make([]spent, len(compliant)),
			greedy: make([]spent, len(greedy)),
		},
	}
	var b strings.Builder
	testkit.Must(t, d.write(&b))
	text := b.String()
	for _, g := range goals {
		if !strings.Contains(text, "| "+g.text+" |") {
			t.Errorf("no goal %q", g.text)
		}
	}
	everyRow(t, func(title string, r *row) {
		if !strings.Contains(text, "| "+r.name+" |") && !strings.Contains(text, "| "+r.name+" (the first seed) |") {
			t.Errorf("%s: no row %q", title, r.name)
		}
	})
	for _, want := range []string{"# Accuracy\n", "| odd | 7 | 100 |", "`--seed 1` to `2`",
		"even 2x (the first seed) |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	cells := 0
	for line := range strings.Lines(text) {
		n := strings.Count(line, "|") - strings.Count(line, `\|`)
		if n > 0 && cells > 0 && n != cells {
			t.Errorf("%d bars where the table has %d: %s", n, cells, line)
		}
		cells = n
	}
}

// A part of it goes to the terminal, and the file stays as it is.
func TestRunOnly(t *testing.T) {
	name := filepath.Join(t.TempDir(), "ACCURACY.md")
	var out strings.Builder
	if err := run(t.Context(), []string{"--only", "small", "--seeds", "1", "--out", name}, &out,
		io.Discard); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "| even 2x, a limit of 5 |") ||
		!strings.Contains(text, "`--limit 5 --beside 1`") ||
		strings.Contains(text, "Goals") {
		t.Error(text)
	}
	if _, err := os.Stat(name); err == nil {
		t.Error("the file was written")
	}
}

func TestRunRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"unknown argument": {"extra"}, "want at least 1": {"--seeds", "0"}, "no section": {"--only", "nothing"},
		"not defined": {"--odd"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// What was rejected without need is told in the ablation, and in the tables with how many could have been.
func TestRejectedIsReported(t *testing.T) {
	unfairly := func(_ context.Context, o sim.Options, _ func(time.Duration)) (*sim.Report, error) {
		return &sim.Report{Fairness: judge.Fairness{CompliantOffered: 500, FalseRejections: 3}}, nil
	}
	d, err := open("ablation")
	testkit.Must(t, err)
	testkit.Must(t, d.simulate(t.Context(), seeds{1, 2}, 1, unfairly, io.Discard))
	var b strings.Builder
	if err := d.write(&b); err != nil || !strings.Contains(b.String(), "0 / 0 (0), 6 rejected without need |") {
		t.Errorf("%v: %s", err, b.String())
	}
	if got := rejected(&result{reports: []*sim.Report{{Fairness: judge.Fairness{CompliantOffered: 500,
		FalseRejections: 3}}, {}}}); got != "3 of 500" {
		t.Error(got)
	}
}

// What a node needs is the committed figure, in the smallest cluster.
func TestCommittedCurve(t *testing.T) {
	file, err := os.ReadFile("../ACCURACY.md")
	testkit.Must(t, err)
	fresh, err := curveSheet(t.Context(), planner.CurveSizes[:1])
	testkit.Must(t, err)
	want := committedCells(t, string(file), curveTitle, fresh.rows[0][0])
	if !slices.Equal(fresh.rows[0], want) {
		t.Errorf("committed is %q, the code gives %q; run make accuracy", want, fresh.rows[0])
	}
}
