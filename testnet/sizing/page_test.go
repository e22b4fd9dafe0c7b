package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// node/SIZING.md is what the code gives: all of its text, and the rows of the smallest deployment.
func TestCommittedPage(t *testing.T) {
	page, err := os.ReadFile("../../node/SIZING.md")
	testkit.Must(t, err)
	if !strings.HasPrefix(string(page), intro()) {
		t.Error("node/SIZING.md begins with another text; run make sizing")
	}
	var fresh bytes.Buffer
	testkit.Must(t, writeTables(t.Context(), &fresh, sections, "3x4", io.Discard))
	rows := 0
	for line := range strings.Lines(fresh.String()) {
		if strings.HasPrefix(line, "| 3 x 4 ") {
			rows++
		}
		if !strings.Contains(string(page), line) {
			t.Errorf("node/SIZING.md lacks %q; run make sizing", line)
		}
	}
	if rows != len(sections) {
		t.Errorf("%d rows", rows)
	}
	if got := strings.Count(string(page), "\n| 30 x 50 |"); got != len(sections) {
		t.Errorf("node/SIZING.md has %d rows of 30 x 50, want %d; run make sizing", got, len(sections))
	}
}

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--only", "none"}, &out, io.Discard); err != nil ||
		!strings.Contains(out.String(), "## Many keys") || strings.Contains(out.String(), "\n| 3") {
		t.Errorf("%v: %s", err, out.String())
	}
	if err := run(t.Context(), []string{"what"}, &out, io.Discard); err == nil {
		t.Error("it takes an argument")
	}
}
