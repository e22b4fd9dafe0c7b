package counters_test

import (
	"math"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

func TestGoverning(t *testing.T) {
	admitted := func(remaining, limit uint64) counters.Decision {
		return counters.Decision{Allowed: true, Rule: "r", Limit: limit, Remaining: remaining}
	}
	denied := func(wait time.Duration) counters.Decision {
		return counters.Decision{Rule: "r", Limit: 10, Remaining: 5, RetryAfter: wait}
	}
	noRule := counters.Decision{Allowed: true}
	const huge = counters.MaxLimit

	for _, c := range []struct {
		why  string
		ds   []counters.Decision
		want int
	}{
		{"no decisions", nil, -1},
		{"no rule at all", []counters.Decision{noRule, noRule}, -1},
		{"a rule among none", []counters.Decision{noRule, admitted(9, 10), noRule}, 1},
		{"the smaller part left", []counters.Decision{admitted(5, 10), admitted(30, 100), admitted(4, 10)}, 1},
		{"nothing left", []counters.Decision{admitted(1, huge), admitted(0, 10)}, 1},
		{"the first of equals", []counters.Decision{admitted(1, 2), admitted(50, 100), admitted(5, 10)}, 0},
		{"a part too small for whole per cents", []counters.Decision{admitted(huge-1, huge), admitted(huge-3, huge)},
			1},
		{"products beyond 64 bits", []counters.Decision{admitted(1<<39, huge), admitted(1<<38, huge)}, 1},
		{"a denial before any admission", []counters.Decision{admitted(0, 10), denied(time.Second), noRule}, 1},
		{"the longest wait", []counters.Decision{denied(time.Second), denied(time.Minute), denied(time.Millisecond)},
			1},
		{"never is the longest wait", []counters.Decision{denied(time.Hour), denied(counters.Never),
			denied(math.MaxInt64)}, 1},
		{"the first of those that never fit", []counters.Decision{denied(counters.Never), denied(counters.Never)}, 0},
		{"a denial although more is left of it", []counters.Decision{admitted(1, 100), denied(1), admitted(0, 10)}, 1},
	} {
		if got := counters.Governing(c.ds); got != c.want {
			t.Errorf("%s: decision %d governs, want %d", c.why, got, c.want)
		}
	}
}

// Whatever the order of the layers, the same decision governs if no two are equal.
func TestGoverningIsIndifferentToOrder(t *testing.T) {
	ds := []counters.Decision{
		{Allowed: true},
		{Allowed: true, Rule: "a", Limit: 10, Remaining: 1},
		{Allowed: true, Rule: "b", Limit: 100, Remaining: 99},
		{Rule: "c", Limit: 5, RetryAfter: time.Minute},
		{Rule: "d", Limit: 5, RetryAfter: counters.Never},
	}
	for i := range ds {
		for j := range ds {
			pair := []counters.Decision{ds[i], ds[j]}
			here, there := counters.Governing(pair), counters.Governing([]counters.Decision{pair[1], pair[0]})
			if here < 0 || i == j {
				continue
			}
			if pair[here].Rule != pair[1-there].Rule {
				t.Errorf("of %q and %q %q governs, the other way round %q", pair[0].Rule, pair[1].Rule, pair[here].Rule,
					pair[1-there].Rule)
			}
		}
	}
}

func TestVerdictOf(t *testing.T) {
	var (
		noRule = counters.Decision{Allowed: true}
		queued = counters.Decision{Allowed: true, Rule: "q", Limit: 10, Remaining: 9, Delay: 3 * time.Second}
		tight  = counters.Decision{
			Allowed: true, Rule: "t", Limit: 10, Remaining: 1, Delay: time.Second, Degraded: true,
		}
		full = counters.Decision{Rule: "f", Limit: 10, RetryAfter: time.Second}
	)
	for _, c := range []struct {
		why    string
		layers []counters.Decision
		want   counters.Verdict
	}{
		{"nothing was asked", nil, counters.Verdict{Allowed: true}},
		{"no rule", []counters.Decision{noRule, noRule}, counters.Verdict{Allowed: true}},
		{"one rule", []counters.Decision{noRule, queued}, counters.Verdict{Allowed: true, Delay: 3 * time.Second,
			Governing: queued}},
		{"the longest delay, and who governs", []counters.Decision{queued, tight},
			counters.Verdict{Allowed: true, Degraded: true, Delay: 3 * time.Second, Governing: tight}},
		{"a denial waits in no queue", []counters.Decision{queued, full, tight},
			counters.Verdict{Degraded: true, Governing: full}},
	} {
		if got := counters.VerdictOf(c.layers); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.why, got, c.want)
		}
	}
}
