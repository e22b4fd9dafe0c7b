package testkit

import "testing"

// Each line that is wanted has one of its own in the output, in the same order; figures, times and columns may differ.
func TestLacking(t *testing.T) {
	const out = "us-1  reachable  5 ms\nus-2  reachable  31 ms\n\nhealth: ok\n"
	for want, lacks := range map[string]string{
		out: "", "us-1 reachable 17 ms\nhealth: ok\n": "", "health: ok\n\n": "",
		"us-1  down  5 ms\n":                             "us-1  down  5 ms",
		"health: ok\nus-1  reachable  5 ms\n":            "us-1  reachable  5 ms",
		"us-1  reachable  5 ms\nus-1  reachable  6 ms\n": "us-1  reachable  6 ms",
	} {
		if got := Lacking(out, want); got != lacks {
			t.Errorf("of %q it lacks %q, want %q", want, got, lacks)
		}
	}
}
