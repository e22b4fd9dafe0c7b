package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// figures are what pages quote from pages that measurements write: each is read at its source, and must be written so
// wherever it is quoted. A source is a page, the beginning of a table's row and a column, counted from 1; a section
// tells rows of the same beginning apart. A quote is a page and its words, with %s where the figure stands, rounded to
// what the words have room for.
var figures = []struct {
	page, section, row string
	column             int
	format             string // of the figure in the quotes; "" as the source has it
	quotes             [][2]string
}{
	{"testnet/bench/RESULTS.md", "## Time of a decision, in ns", "edgelimit, 10 sub-windows ", 2, "%.0f", [][2]string{
		{"README.md", "%s ns for a hot key"}, {"node/PLANNING.md", "A decision takes %s ns for a hot key"}}},
	{"testnet/bench/RESULTS.md", "## Time of a decision, in ns", "x/time/rate in", 2, "%.0f", [][2]string{
		{"README.md", "(x/time/rate: %s ns)"}}},
	{"testnet/bench/RESULTS.md", "## Goals", "bytes a key, ten sub-windows", 3, "%.0f", [][2]string{
		{"node/PLANNING.md", "%s bytes a key"}, {"node/README.md", "to %s bytes and 16 for each count of a peer"},
		{"counters/DESIGN.md", "%s bytes a key with its part of the index"}}},
	{"testnet/bench/RESULTS.md", "## Goals", "bytes a key, two buckets", 3, "%.0f", [][2]string{
		{"node/README.md", "A key takes %s to"}}},
	{"testnet/bench/DOORS.md", "", "/v1/check ", 4, "", [][2]string{{"README.md", "as a reverse proxy | %s, "}}},
	{"testnet/bench/DOORS.md", "", "ShouldRateLimit ", 4, "", [][2]string{
		{"README.md", "as a reverse proxy | 0.97, %s, "}}},
	{"testnet/bench/DOORS.md", "", "CL.THROTTLE ", 4, "", [][2]string{{"README.md", ", %s and 1.08 times the CPU"}}},
	{"testnet/bench/DOORS.md", "", "reverse proxy ", 4, "", [][2]string{{"README.md", " and %s times the CPU"}}},
	{"testnet/bench/STRICT.md", "", "sliding_window ", 2, "%.1f us", [][2]string{
		{"README.md", " to %s of Redis' CPU"}}},
	{"testnet/bench/STRICT.md", "", "leaky_bucket ", 2, "%.1f", [][2]string{{"README.md", "A strict check | %s to"}}},
	{"testnet/bench/STRICT.md", "", "redis_rate ", 2, "%.1f", [][2]string{{"README.md", "(redis_rate: %s)"}}},
	{"testnet/bench/STRICT.md", "", "sliding_window, lease: 20", 2, "%.1f", [][2]string{
		{"README.md", "%s with `lease: 20`"}}},
	{"testnet/ACCURACY.md", "## Goals", "1. how many such requests", 3, "grouped", [][2]string{
		{"README.md", "0 of %s |"}}},
	{"testnet/ACCURACY.md", "## The reference", "even 2x ", 5, "%.0f", [][2]string{
		{"README.md", "it is about %s %% with a dozen nodes"}, {"node/PLANNING.md", "| 3 x 4 | %s, "}}},
	{"testnet/ACCURACY.md", "## The reference", "even 5x ", 5, "%.0f", [][2]string{
		{"node/PLANNING.md", "| 3 x 4 | 4, %s and"}}},
	{"testnet/ACCURACY.md", "## The reference", "even 20x ", 5, "%.0f", [][2]string{
		{"node/PLANNING.md", "| 3 x 4 | 4, 6 and %s %%"}}},
	{"testnet/ACCURACY.md", "## 12 nodes", "compliant bursts ", 5, "%.0f", [][2]string{
		{"README.md", "ask in bursts, it is %s %% with a dozen"},
		{"node/PLANNING.md", "the bound is %s %% (12 nodes)"}}},
	{"testnet/ACCURACY.md", "## 120 nodes", "compliant bursts ", 5, "%.0f", [][2]string{
		{"node/PLANNING.md", "(12 nodes), %s %%\n(120)"}}},
	{"testnet/ACCURACY.md", "## 12 nodes", "a region cut, ", 5, "%.0f", [][2]string{
		{"node/PLANNING.md", "| 23 %% | %s %% |"}}},
	{"testnet/ACCURACY.md", "## 12 nodes", "an owner killed, ", 5, "%.0f", [][2]string{
		{"node/PLANNING.md", "6.8 %% | %s %% |"}}},
	{"node/SIZING.md", "## Many keys", "30 x 50 ", 2, "%.1f", [][2]string{{"README.md", "| %s Mbit/s (5.0)"}}},
	{"node/SIZING.md", "## Many keys", "30 x 50 ", 3, "first", [][2]string{{"README.md", "%s messages/s"}}},
	{"node/SIZING.md", "## Many keys", "30 x 50 ", 4, "%.1f", [][2]string{{"README.md", "%s %% of a core"}}},
}

// TestFiguresOfPages holds that a figure that a page quotes is the one that was measured.
func TestFiguresOfPages(t *testing.T) {
	for _, f := range figures {
		value, err := figureOf(f.page, f.section, f.row, f.column)
		if err != nil {
			t.Error(err)
			continue
		}
		number, _ := strconv.ParseFloat(regexp.MustCompile(`^[0-9.]+`).FindString(value), 64)
		switch {
		case f.format == "grouped":
			value = regexp.MustCompile(`(\d)(\d{3})(\d{3})$`).ReplaceAllString(value, "$1,$2,$3")
		case f.format == "first":
			value, _, _ = strings.Cut(value, " ")
		case f.format != "":
			value = fmt.Sprintf(f.format, number)
		}
		for _, quote := range f.quotes {
			text, err := os.ReadFile(filepath.Join("..", quote[0]))
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf(quote[1], value); !strings.Contains(string(text), want) {
				t.Errorf("%s says nowhere %q, as %s has it (%s)", quote[0], want, f.page, strings.TrimSpace(f.row))
			}
		}
	}
}

// figureOf returns what a column of a table's row holds.
func figureOf(page, section, row string, column int) (string, error) {
	text, err := os.ReadFile(filepath.Join("..", page))
	if err != nil {
		return "", err
	}
	_, rest, ok := strings.Cut("\n"+string(text), "\n"+section)
	if !ok {
		return "", fmt.Errorf("%s has no section %q", page, section)
	}
	for line := range strings.Lines(rest) {
		cells := strings.Split(line, "|")
		if strings.HasPrefix(line, "| "+row) && len(cells) > column+1 {
			return strings.TrimSpace(cells[column]), nil
		}
	}
	return "", fmt.Errorf("%s, %q: no row %q with %d columns", page, section, row, column)
}
