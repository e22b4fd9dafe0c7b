package rules

import (
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A header that is no number costs 1, and one that is larger than any limit as much as can be.
func TestCostHeader(t *testing.T) {
	a := NewAfter(Statuses{}, CostHeader, "X-Rl-Cost")
	for _, c := range testkit.Costs {
		want := uint64(1)
		if c.OK {
			want = min(c.Cost, counters.MaxLimit)
		}
		for _, value := range []string{c.Text, " " + c.Text + " "} {
			r := &Response{Status: 200, Header: map[string][]string{"X-Rl-Cost": {value}}}
			if got, ok := a.cost(r); got != want || ok != c.OK {
				t.Errorf("%.30q: %d, %v, want %d", value, got, ok, want)
			}
		}
	}
}
