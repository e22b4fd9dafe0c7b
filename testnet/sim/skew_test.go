package sim

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Nodes know how far their clocks are apart, over lossy ways of 75 ms that differ from packet to packet.
func TestNodesKnowTheirSkew(t *testing.T) {
	for _, skew := range []time.Duration{2 * time.Second, 0, 100 * time.Millisecond, time.Hour} {
		o := DefaultOptions()
		o.Skew, o.Duration = skew, 10*time.Second
		c, err := newCluster(o, noHooks())
		testkit.Must(t, err)
		testkit.Must(t, c.offer(t.Context(), func(time.Duration) {}))
		var worst time.Duration
		for _, n := range c.nodes {
			for _, p := range n.replica.Peers(c.clock(n)) {
				truth := time.Duration(c.home[p.Origin].skew - n.skew)
				if off := (p.Ahead - truth).Abs(); !p.Timed || off > 10*time.Millisecond {
					t.Errorf("skew %v: node %d holds %d to be %v ahead (known: %v), it is %v", skew, n.place,
						c.home[p.Origin].place, p.Ahead, p.Timed, truth)
				} else {
					worst = max(worst, off)
				}
			}
		}
		t.Logf("skew %v: wrong by %v at most", skew, worst)
	}
}

// The clock of a region's store is one more voice.
func TestNodesKnowTheStoresClock(t *testing.T) {
	o := DefaultOptions()
	o.Skew, o.Duration, o.Store = time.Second, 5*time.Second, true
	c, err := newCluster(o, noHooks())
	testkit.Must(t, err)
	testkit.Must(t, c.offer(t.Context(), func(time.Duration) {}))
	for _, n := range c.nodes {
		if ahead, ok := n.reconciler.ClockAhead(); !ok || int64(ahead) != -n.skew {
			t.Errorf("node %d is %v ahead, and holds the store to be %v ahead (known: %v)", n.place,
				time.Duration(n.skew), ahead, ok)
		}
	}
}

// Counts of nodes whose clocks are ahead arrive all the same, soon after time has come to them: also those of keys that
// nobody asks for any more. Otherwise all agree only when the window has passed.
func TestNodesWithWrongClocksAgreeSoon(t *testing.T) {
	for _, window := range []time.Duration{5 * time.Second, 10 * time.Second} {
		for seed := uint64(1); seed <= 5; seed++ {
			o := DefaultOptions()
			o.Limit, o.Window, o.Skew, o.Keys, o.Load, o.Seed, o.Duration = 200, window, time.Second, 50, 0.1, seed,
				12*time.Second
			if r := run(t, o); r.AgreeMillis < 0 || r.AgreeMillis > 3500 {
				t.Errorf("window %v, seed %d: they agree %v ms after the last request", window, seed, r.AgreeMillis)
			}
		}
	}
}

// A node whose clock jumps by an hour, either way: clients that keep to 95 % of the limit are never rejected, and
// nobody is admitted more than twice the limit in a window.
func TestAClockThatJumps(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		for _, pattern := range []Pattern{CompliantBurst, Even} {
			o := DefaultOptions()
			o.Pattern, o.Limit, o.Duration, o.Seed = pattern, 200, 35*time.Second, 3
			if pattern == CompliantBurst {
				o.Keys = 12
			}
			c, err := newCluster(o, noHooks())
			testkit.Must(t, err)
			c.after(lead+14*time.Second, func() { c.nodes[5].skew += int64(jump) })
			testkit.Must(t, c.offer(t.Context(), func(time.Duration) {}))
			r := c.report(c.settle())
			if r.FalseRejections > 0 || r.PeakOverLimitPct > 100 {
				t.Errorf("%v, %v: %d false rejections, %.1f %% over the limit", jump, pattern, r.FalseRejections,
					r.PeakOverLimitPct)
			}
		}
	}
}
