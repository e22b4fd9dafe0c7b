package regions

import (
	"testing"
	"time"
)

// The quickest answer of the last seconds counts; it tells the store's clock to half of what it took.
func TestClocks(t *testing.T) {
	const ms = int64(time.Millisecond)
	start := int64(1_800_000_000) * int64(time.Second)
	var c clocks
	for _, step := range []struct {
		asked, took, store int64 // ms since start; by the store's clock
		want               int64
	}{
		{0, 100, 50 + 300, 300},
		{100, 20, 110 + 340, 340},    // quicker
		{200, 100, 300 + 300, 340},   // slower
		{4121, 100, 4171 + 60, 60},   // slower, but the other is too old
		{4300, 50, 4320 - 900, -905}, // set
		{4400, -10, 5000, -905},      // the own clock was set within the call
		{1000, 90, 1045 + 77, 77},    // and went back
	} {
		c.compare(start+step.store*ms, start+step.asked*ms, start+(step.asked+step.took)*ms)
		if c.ahead != time.Duration(step.want*ms) {
			t.Errorf("asked at %d: ahead by %v, want %d ms", step.asked, c.ahead, step.want)
		}
	}
}
