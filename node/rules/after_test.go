package rules

import (
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
)

// A cost that is larger than 64 bits is as large as there can be, and not 1.
func TestCostHeader(t *testing.T) {
	a := NewAfter(Statuses{}, CostHeader, "X-Rl-Cost")
	for value, want := range map[string]uint64{
		"0": 0, "7": 7, " 7 ": 7, "9223372036854775808": counters.MaxLimit, "18446744073709551615": counters.MaxLimit,
		"18446744073709551616": counters.MaxLimit, strings.Repeat("9", 4000): counters.MaxLimit,
	} {
		r := &Response{Status: 200, Header: map[string][]string{"X-Rl-Cost": {value}}}
		if got, ok := a.cost(r); got != want || !ok {
			t.Errorf("%.30q: %d, %v, want %d", value, got, ok, want)
		}
	}
	for _, value := range []string{"", "-1", "1.5", "1e9", "0x9", "9 9", "+1", "-18446744073709551616"} {
		r := &Response{Status: 200, Header: map[string][]string{"X-Rl-Cost": {value}}}
		if got, ok := a.cost(r); got != 1 || ok {
			t.Errorf("%q: %d, %v, want 1, as it is no number", value, got, ok)
		}
	}
}
