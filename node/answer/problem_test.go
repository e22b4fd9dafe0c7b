package answer

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// A denial in an outage does not say that the client used its limit up.
func TestAdvice(t *testing.T) {
	d := counters.Decision{Rule: "r", Limit: 20, Window: time.Minute, RetryAfter: 5 * time.Second}
	failed, never, blocked := d, d, d
	failed.Failed = true
	never.RetryAfter = counters.Never
	blocked.RetryAfter, blocked.Limit = counters.Never, 0
	for want, d := range map[string]counters.Decision{
		`rule "r" admits 20 per 1 min: try again in 6 s`:                                             d,
		`rule "r" cannot be decided now, and admits nothing meanwhile: try again in 6 s`:             failed,
		`the cost is above the whole limit of 20 per 1 min of rule "r": no wait helps, ask for less`: never,
		`rule "r" admits nothing here: no wait helps`:                                                blocked,
	} {
		if got := Advice(&d, 6); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
