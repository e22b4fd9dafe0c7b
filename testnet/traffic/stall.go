package traffic

import (
	"context"
	"time"
)

// stallCheck is the sleep that LongestStall repeats.
const stallCheck = 10 * time.Millisecond

// LongestStall sleeps for a moment again and again until ctx ends, and returns the most by which it overslept: how long
// this process was kept from running, and others of the machine as far as they share its processors. Where that is
// long, timings say more of the machine than of what was timed.
func LongestStall(ctx context.Context) (worst time.Duration) {
	timer := time.NewTimer(stallCheck)
	defer timer.Stop()
	for {
		before := time.Now()
		timer.Reset(stallCheck)
		select {
		case <-ctx.Done():
			return max(worst, time.Since(before)-stallCheck)
		case <-timer.C:
			worst = max(worst, time.Since(before)-stallCheck)
		}
	}
}
