package main

import (
	"cmp"
	"slices"
	"strings"
	"testing"
)

var someTable = table{
	title: "Things", note: "A note.",
	head: []string{"", "ns", "of a|b"}, rows: [][]string{{"long name", "1", "2.50"}, {"é", "10000", "-"}},
}

func TestMarkdownTable(t *testing.T) {
	want := "\n## Things\n\nA note.\n\n|  | ns | of a\\|b |\n|---|---:|---:|\n| long name | 1 | 2.50 |\n| é | 10000 " +
		"| - |\n"
	if got := someTable.markdown(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The speed-up table has a column for each pair of workloads.
func TestSpeedUpTable(t *testing.T) {
	r := reportOf(map[series][]float64{
		{nameGiven, loadHot}: {100}, {nameGiven, loadHot + twoCores}: {50}, {nameGiven, loadCold}: {90},
		{nameGiven, loadCold + twoCores}: {60},
	})
	order := func(a, b timing) int {
		return cmp.Compare(slices.Index(allLoads, a.workload), slices.Index(allLoads, b.workload))
	}
	slices.SortFunc(r.timings, order)
	table := r.speedUpTable()
	if !slices.Equal(table.head, []string{"", loadHot, loadCold}) ||
		!slices.Equal(table.rows[0], []string{nameGiven, "2", "1.50"}) {
		t.Errorf("%q", table)
	}
}

var allLoads = []string{loadHot, loadHot + twoCores, loadCold, loadCold + twoCores}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 2: "2",
		0.0012: "0.001", 0.0994: "0.099", 0.333333: "0.33", 9.99: "9.99", 9.996: "10.0", 42.42: "42.4", 99.96: "100",
		1234.5: "1234",
	} {
		if got := figure(v); got != want {
			t.Errorf("figure(%v) = %q, want %q", v, got, want)
		}
	}
}

// A report without figures lists the goals as not measured.
func TestReportWithoutFigures(t *testing.T) {
	text := new(report).markdown()
	if got := strings.Count(text, "| not measured |"); got != len(goals) {
		t.Errorf("%d of %d goals are not measured:\n%s", got, len(goals), text)
	}
}
