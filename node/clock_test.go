package node

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/telemetry"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/testnet/oracle"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A clock that is off shows within ten seconds: in decisions, in the log, in what the node says of itself.
func TestAClockThatIsOffShows(t *testing.T) {
	for _, test := range []struct {
		behind time.Duration // the store's clock
		off    bool
	}{{1200 * time.Millisecond, true}, {40 * time.Millisecond, false}} {
		testkit.VirtualTime(t, func(t *testing.T) {
			var book testkit.Log
			cfg := quiet(perClient)
			cfg.Logger = book.Logger()
			cfg.Store = regions.NewEmbedded(0, func() time.Time { return time.Now().Add(-test.behind) })
			n := launch(t, cfg).ready(t)
			var last Decision
			for range 10 {
				takeSome(t, n.Node, "per_client", "x", 80)
				time.Sleep(time.Second)
				last = take(t, n.Node, Request{Rule: "per_client", Identity: "y"})
			}
			if got := n.monitor.Skew(); got != (telemetry.Skew{Ahead: test.behind, Clocks: 1}) {
				t.Errorf("%v ahead of its store, it says %+v", test.behind, got)
			}
			if last.Degraded != test.off || book.HasLine("WARN", "this node's clock is off", "ahead=1.2s") != test.off {
				t.Errorf("%v ahead of its store: degraded %v, log:\n%s", test.behind, last.Degraded, book.String())
			}
		})
	}
}

// Time is coarse on the way of a request, and waits are exact all the same: nobody is told to come back too early or
// denied after.
func TestWaitsAreExact(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		n := launch(t, quiet(single("rate_limit: {window: 10s, requests_per_unit: 30}"))).ready(t)
		time.Sleep(300 * time.Microsecond)
		request, other := ask(by("client", "x")), ask(by("client", "y"))
		request.Cost = 30
		take(t, n.Node, request)
		request.Cost = 2 // there is room once a thirtieth of the second has left
		time.Sleep(1700 * time.Microsecond)
		d := take(t, n.Node, request)
		if d.Allowed {
			t.Fatalf("the 32nd of 30: %+v", d)
		}
		ends := n.clock.Coarse() + int64(d.RetryAfter)
		for left := ends - 1 - n.clock.Now(); left > 0; left = ends - 1 - n.clock.Now() {
			time.Sleep(min(time.Duration(left), 100*time.Millisecond))
			take(t, n.Node, other) // so that the coarse time is kept
		}
		if d := take(t, n.Node, request); d.Allowed {
			t.Errorf("a nanosecond before: %+v", d)
		}
		time.Sleep(time.Nanosecond)
		if coarse := n.clock.Coarse(); coarse >= ends {
			t.Fatalf("the coarse time is exact here: that shows nothing")
		}
		if d := take(t, n.Node, request); !d.Allowed {
			t.Errorf("after the wait that was told: %+v", d)
		}
	})
}

const tenPerMinute = `
domain: test
descriptors:
  - {key: client, rate_limit: {name: client, unit: minute, requests_per_unit: 10}}
  - {key: quick, rate_limit: {name: quick, window: 10s, requests_per_unit: 10}}
`

// The machine's wall clock is set by an hour, and set back: in no window is more than twice the limit admitted, the
// store of the region keeps what lies there, nobody takes that for a loss, and a node that starts counts what was left.
func TestTheMachinesClockIsSet(t *testing.T) {
	for _, test := range []struct {
		name  string
		step  time.Duration
		alone bool // the store does not answer its time
	}{
		{"forth", time.Hour, false},
		{"back", -time.Hour, false},
		{"forth, alone", time.Hour, true},
		{"back, alone", -time.Hour, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			testkit.VirtualTime(t, func(t *testing.T) { setTheMachinesClock(t, test.step, test.alone) })
		})
	}
}

// timeless does not answer its time, so that the node has nobody to compare its clock with.
type timeless struct{ regions.Store }

func (s timeless) Merge(ctx context.Context, slots []counters.Slot, now int64) (regions.Merged, error) {
	merged, err := s.Store.Merge(ctx, slots, now)
	merged.Time = time.Time{}
	return merged, err
}

func setTheMachinesClock(t *testing.T, step time.Duration, alone bool) {
	store := regions.Store(regions.NewEmbedded(0, time.Now))
	if alone {
		store = timeless{store}
	}
	var set atomic.Int64
	var book testkit.Log
	cfg := quiet(tenPerMinute)
	cfg.Logger, cfg.Store, cfg.Redis.MinWindow, cfg.Redis.MinFill = book.Logger(), store, 0, 0
	cfg.Gossip.Interval = time.Second
	cfg.wallClock = func() time.Time { return time.Now().Add(time.Duration(set.Load())) }
	n := launch(t, cfg).ready(t)

	began := time.Now()
	admitted := map[string]*oracle.Rolling{"client": {}, "quick": {}}
	minutes := func(d int) {
		for range d * 10 {
			for rule, rolling := range admitted {
				for range 5 {
					if take(t, n.Node, ask(by(rule, "x"))).Allowed {
						rolling.Add(int64(time.Since(began)), 1)
					}
				}
			}
			time.Sleep(6 * time.Second)
		}
	}
	minutes(3)
	set.Store(int64(step))
	minutes(12) // the node follows within ten seconds, or within ten of them where the store's clock agrees with it
	set.Store(0)
	time.Sleep(46 * time.Minute) // there is an hour between two jumps
	minutes(14)
	for rule, window := range map[string]time.Duration{"client": time.Minute, "quick": 10 * time.Second} {
		if peak := admitted[rule].Peak(window); peak > 20 {
			t.Errorf("%s: %d of a limit of 10 were admitted in a window", rule, peak)
		}
	}
	if jumps := strings.Count(book.String(), "clock jumped"); jumps != 2 {
		t.Errorf("the node's clock followed %d times, want twice: that shows little. Its log:\n%s", jumps,
			book.String())
	}
	if s := n.reconciler.Stats(); s.Lost != 0 || book.HasLine("lost data") || book.HasLine("loses data") {
		t.Errorf("%d losses of a store that lost nothing:\n%s", s.Lost, book.String())
	}

	last := spent(t, n.Node, "client", "x")
	testkit.Must(t, n.stop())
	cfg.NodeID = "b"
	// the time of a stop and a start later
	if got := spent(t, launch(t, cfg).ready(t).Node, "client", "x"); got+1 < last {
		t.Errorf("a node that starts counts %d of %d", got, last)
	}
}
