package main

import (
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/sim"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// committedRows are rows that are simulated again, by section. With the race detector it is the first of them alone.
var committedRows = [][2]string{
	{"Gossip every 200 ms", "even 2x"},
	{"The reference", "even 2x"},
	{"A region cut off for 30 s", "even 2x, share"},
	{"Redis in trouble", "FLUSHALL, twice"},
	{"Every algorithm", "token_bucket, flash"},
}

// committedCells returns the cells of a row of the committed document, below the title of its section.
func committedCells(t *testing.T, document, title, name string) []string {
	t.Helper()
	_, section, ok := strings.Cut(document, "\n## "+title+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, line, found := strings.Cut(section, "\n| "+name+" |")
	line, _, _ = strings.Cut(line, "|\n")
	if !ok || !found {
		t.Fatalf("testnet/ACCURACY.md has no row %q in %q; run make accuracy", name, title)
	}
	cells := []string{name}
	for cell := range strings.SplitSeq(line, "|") {
		cells = append(cells, strings.TrimSpace(cell))
	}
	return cells
}

// The figures of testnet/ACCURACY.md are those that the code gives: to the last digit, as simulations are
// deterministic.
func TestCommittedFigures(t *testing.T) {
	file, err := os.ReadFile("../ACCURACY.md")
	testkit.Must(t, err)
	d := new(document)
	for _, r := range testkit.Some(committedRows) {
		i := slices.IndexFunc(sections(), func(s section) bool { return s.title == r[0] })
		s := sections()[max(i, 0)]
		s.rows = slices.DeleteFunc(s.rows, func(row row) bool { return row.name != r[1] })
		if len(s.rows) != 1 {
			t.Fatalf("%d rows %q in %q, want one", len(s.rows), r[1], r[0])
		}
		d.sections = append(d.sections, s)
	}
	testkit.Must(t, d.simulate(t.Context(), committedSeeds, runtime.GOMAXPROCS(0), sim.Run, io.Discard))
	for _, s := range d.sections {
		fresh := d.sheet(s)
		want := committedCells(t, string(file), s.title, s.rows[0].name)
		if len(want) != len(fresh.head) {
			t.Fatalf("%s, %s: %d committed cells, %d columns", s.title, want[0], len(want), len(fresh.head))
		}
		for i, head := range fresh.head {
			if got := fresh.rows[0][i]; got != want[i] {
				t.Errorf("%s, %s, %s: committed is %s, the code gives %s; run make accuracy", s.title, want[0], head,
					want[i], got)
			}
		}
	}
	d.seeds = committedSeeds
	if !strings.HasPrefix(string(file), "# Accuracy\n\n"+d.intro()) {
		t.Error("testnet/ACCURACY.md begins with another text or other seeds; run make accuracy")
	}
}
