package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/bench/rig"
)

// All contestants are measured, and the report has a row for each in both tables, and the goals.
func TestEveryContestantIsMeasured(t *testing.T) {
	d := duration{rounds: 2, slice: 20 * time.Millisecond, steady: 50 * time.Millisecond}
	r, err := measure(t.Context(), d, io.Discard)
	if err != nil || len(r.results) != len(contestants) {
		t.Fatal(r, err)
	}
	text := r.markdown()
	for _, c := range r.results {
		for _, values := range [][]float64{c.fast.redis, c.fast.client, c.fast.rate, c.steady.redis, c.steady.client} {
			if len(values) != d.rounds || min(values[0], values[1]) <= 0 {
				t.Errorf("%s: %v, want a value per round", c.name, values)
			}
		}
		if want := d.rounds * (1 + int(d.steady.Seconds()*steadyRate)); len(c.latencies) != want {
			t.Errorf("%s: %d checks at the steady rate, want %d", c.name, len(c.latencies), want)
		}
		rows := 2
		if c.base != "" {
			rows = 3
		}
		if got := strings.Count(text, "| "+c.name+" |"); got != rows {
			t.Errorf("%s has %d rows, want %d:\n%s", c.name, got, rows, text)
		}
	}
	if goals := strings.Count(text, "| 2 ms: ") + strings.Count(text, "| 0.1: "); goals != 11 {
		t.Errorf("%d goals:\n%s", goals, text)
	}
}

// A run in which a round was slow for all has the ratio of its rounds, not of its medians.
func TestRatiosWithinRounds(t *testing.T) {
	if got := spread(rig.Ratios([]float64{10, 30, 100}, []float64{40, 100, 400})); got != "0.25 (0.25 to 0.30)" {
		t.Error(got)
	}
}
