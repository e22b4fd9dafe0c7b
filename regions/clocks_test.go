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
	} {
		called, answered := time.Duration(step.asked*ms), time.Duration((step.asked+step.took)*ms)
		c.compare(start+step.store*ms, called, answered)
		if ahead, ok := c.ahead(start+int64(answered), answered); !ok || ahead != time.Duration(step.want*ms) {
			t.Errorf("asked at %d: ahead by %v, want %d ms", step.asked, ahead, step.want)
		}
	}
	// The node's clock is set: the store is where it was.
	at := 5 * time.Second
	if ahead, _ := c.ahead(start+int64(at)+int64(time.Hour), at); ahead != -time.Hour-905*time.Millisecond {
		t.Errorf("after the node's clock was set by an hour: ahead by %v", ahead)
	}
	if _, ok := c.ahead(start, at+time.Minute); ok {
		t.Error("it is known for a minute")
	}
}
