package demo

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/replay"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Each request is offered at its time, and the nodes get equal parts.
func TestOffer(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Duration, o.Seed = 60*time.Second, 3
		want, next := 0, o.arrivals()
		for a, ok := next(); ok; a, ok = next() {
			if a.Client != compliant {
				want++
			}
		}
		start := time.Now()
		var offered int
		var last time.Duration
		nodes := make([]int, o.Regions*o.Nodes)
		offer(t.Context(), &o, start, func(node int, client string) {
			if client == compliant {
				return
			}
			nodes[node]++
			offered++
			last = time.Since(start)
		})
		if offered != want || math.Abs(float64(offered)-o.planned()) > 4*math.Sqrt(o.planned()) {
			t.Errorf("%d requests of %d, want about %.0f", offered, want, o.planned())
		}
		if last >= o.Duration || last < o.Duration-time.Second || time.Since(start) > o.Duration+time.Second {
			t.Errorf("the last after %v, and over after %v of %v", last, time.Since(start), o.Duration)
		}
		for i, n := range nodes {
			if part := float64(n) / float64(offered) * 6; part < 0.9 || part > 1.1 {
				t.Errorf("node %d got %v of its part", i, part)
			}
		}
	})
}

func TestOfferReplays(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Duration = 8 * time.Second
		for _, i := range []int{1, 0, 2, 5, 3, 4, 7, 6} { // a log is in the order of the answers
			o.Log = append(o.Log, replay.Entry{Addr: fmt.Sprint(i), Time: time.Unix(int64(1000+i*60), 0)})
		}
		start := time.Now()
		i := 0
		offer(t.Context(), &o, start, func(_ int, client string) {
			want := time.Duration(float64(i*60) / 421 * float64(o.Duration))
			if client != fmt.Sprint(i) || time.Since(start) != want {
				t.Errorf("client %s after %v, want %d after %v", client, time.Since(start), i, want)
			}
			i++
		})
		if i != 8 {
			t.Errorf("%d of 8 requests", i)
		}
	})
}

func TestOfferEnds(t *testing.T) {
	t.Run("with its context", func(t *testing.T) {
		testkit.VirtualTime(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			o, start := DefaultOptions(), time.Now()
			offer(ctx, &o, start, func(int, string) {})
			if took := time.Since(start); took != 5*time.Second {
				t.Errorf("it ended after %v", took)
			}
		})
	})
	t.Run("with its context, when it is behind", func(t *testing.T) {
		testkit.VirtualTime(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o, calls := DefaultOptions(), 0
			offer(ctx, &o, time.Now().Add(-o.Duration), func(int, string) {
				if calls++; calls == 3 {
					cancel()
				}
			})
			if calls != 3 {
				t.Errorf("%d requests, 3 before it was cancelled", calls)
			}
		})
	})
	t.Run("when the machine cannot keep up", func(t *testing.T) {
		testkit.VirtualTime(t, func(t *testing.T) {
			o, start := DefaultOptions(), time.Now()
			o.Limit, o.Window, o.Load = 1_000_000, time.Second, 1000 // a thousand million requests a second
			offer(t.Context(), &o, start, func(int, string) { time.Sleep(time.Millisecond) })
			if took := time.Since(start); took < o.Duration || took > o.Duration+2*maxLate {
				t.Errorf("it ended after %v", took)
			}
		})
	})
}
