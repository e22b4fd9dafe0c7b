package load

import (
	"context"
	"time"
)

// pulseEvery is how often a Pulse beats.
const pulseEvery = 10 * time.Millisecond

// Pulse measures how long this process, which shares its machine with the testnet, was kept from running: until ctx ends it sleeps for
// a moment again and again, and returns by how much it overslept at most. Where that is long, timings say more of the machine than
// of the nodes.
func Pulse(ctx context.Context) (worst time.Duration) {
	ticker := time.NewTimer(pulseEvery)
	defer ticker.Stop()
	for {
		before := time.Now()
		ticker.Reset(pulseEvery)
		select {
		case <-ctx.Done():
			return max(worst, time.Since(before)-pulseEvery)
		case <-ticker.C:
			worst = max(worst, time.Since(before)-pulseEvery)
		}
	}
}
