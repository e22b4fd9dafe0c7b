package main

import (
	"strings"
	"testing"
)

var someSheet = sheet{
	title: "Things", note: "A note.",
	head: []string{"", "ns", "of a|b"}, rows: [][]string{{"long name", "1", "2.50"}, {"é", "10000", "-"}},
}

func TestMarkdownSheet(t *testing.T) {
	var b strings.Builder
	if err := (markdown{}).sheet(&b, someSheet); err != nil {
		t.Fatal(err)
	}
	want := "\n## Things\n\nA note.\n\n|  | ns | of a\\|b |\n|---|---:|---:|\n| long name | 1 | 2.50 |\n| é | 10000 | - |\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestPlainSheet(t *testing.T) {
	var b strings.Builder
	if err := (plain{}).sheet(&b, someSheet); err != nil {
		t.Fatal(err)
	}
	want := "\nThings\nA note.\n              ns  of a|b\nlong name      1    2.50\né          10000       -\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 2: "2",
		0.0012: "0.001", 0.0994: "0.099", 0.333333: "0.33", 9.99: "9.99", 9.996: "10.0", 42.42: "42.4", 99.96: "100", 1234.5: "1234",
	} {
		if got := figure(v); got != want {
			t.Errorf("figure(%v) = %q, want %q", v, got, want)
		}
	}
}

// A report of nothing still says which goals there are, and claims none of them.
func TestWriteWithoutFigures(t *testing.T) {
	r := &report{}
	for _, g := range goals {
		r.Goals = append(r.Goals, g.judge(r))
	}
	var b strings.Builder
	if err := r.write(&b, markdown{}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(b.String(), "| not measured |"); got != len(goals) {
		t.Errorf("%d of %d goals are not measured:\n%s", got, len(goals), b.String())
	}
}
