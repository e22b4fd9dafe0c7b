package traffic

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/replay"
	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// replayed is what a log makes at one node.
func replayed(log []replay.Entry, duration time.Duration) []Arrival {
	return all(Replay(log, duration, 1, rand.New(rand.NewPCG(1, 1))))
}

// Requests at 0, 0, 0, 0 and 3 s: the log spans 4 s, for each request belongs to the whole second that its time names.
func TestReplay(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, test := range []struct {
		name     string
		seconds  []int64
		duration time.Duration
		want     []Arrival
	}{
		{"as it was", []int64{0, 0, 0, 0, 3}, ms(4000), numbered("client", 0, ms(250), ms(500), ms(750), ms(3000))},
		{"sped up", []int64{0, 0, 0, 0, 3}, ms(400), numbered("client", 0, ms(25), ms(50), ms(75), ms(300))},
		{"slowed down", []int64{0, 1}, ms(20_000), numbered("client", 0, ms(10_000))},
		{"one request", []int64{7}, ms(5000), numbered("client", 0)},
		{"one second", []int64{7, 7}, ms(5000), numbered("client", 0, ms(2500))},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log []replay.Entry
			for i, s := range test.seconds {
				log = append(log, replay.Entry{Addr: fmt.Sprint("client", i), Time: time.Unix(1_000_000+s, 0)})
			}
			if got := replayed(log, test.duration); fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("got  %v\nwant %v", got, test.want)
			}
		})
	}
}

// A second with very many requests costs no more than others: looking for its ends at each of them would take minutes.
func TestReplayOfABusySecond(t *testing.T) {
	log := make([]replay.Entry, 300_000)
	for i := range log {
		log[i] = replay.Entry{Addr: "x", Time: time.Unix(1_000_000, 0)}
	}
	began := time.Now()
	got := replayed(log, time.Second)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	if len(got) != len(log) || got[0].After != 0 || got[len(got)-1].After >= time.Second {
		t.Errorf("%d arrivals, the last after %v", len(got), got[len(got)-1].After)
	}
}

// The oracle never counts the compliant client above 95 %, also where its requests come somewhat late; in its fullest
// window it asks for nine tenths, partly at once, and no node is left out.
func TestCompliant(t *testing.T) {
	for _, test := range []struct {
		name   string
		limit  uint64
		window time.Duration
		nodes  int
	}{
		{"the demo", 1000, 10 * time.Second, 6},
		{"a short window", 1000, time.Second, 6},
		{"a small limit", 5, 10 * time.Second, 6},
		{"many nodes", 1000, 10 * time.Second, 64},
		{"one node", 1000, 10 * time.Second, 1},
	} {
		limit, err := counters.NewLimit(counters.NewMeter("r", counters.SlidingWindow, test.window), test.limit)
		if err != nil {
			t.Fatal(err)
		}
		share := uint64(CompliantShare * float64(test.limit))
		for seed := range uint64(5) {
			tracker, late := judge.NewTracker(limit, judge.ClockLag), rand.New(rand.NewPCG(seed, 1))
			var offered oracle.Rolling
			asked, burst, last := make(map[int]bool), 0, time.Duration(0)
			for _, a := range all(Compliant("x", test.limit, test.window, test.nodes).Until(80 * test.window)) {
				if a.After < last || a.Client != "x" || a.Node < 0 || a.Node >= test.nodes {
					t.Fatalf("%s: arrival %+v after %v", test.name, a, last)
				}
				if a.After-last < test.window/100 {
					burst++
				}
				last = a.After
				asked[a.Node] = true
				delay := time.Duration(late.Int64N(int64(test.window / 100)))
				at := time.Unix(1_000_000, 0).Add(a.After + delay).UnixNano()
				offered.Add(at, 1)
				tracker.Add(a.Client, 1, at, at, true)
			}
			got := tracker.Fairness()
			if got != (judge.Fairness{CompliantClients: 1, CompliantOffered: got.CompliantOffered}) ||
				got.CompliantOffered < 50*share {
				t.Errorf("%s: %+v", test.name, got)
			}
			if offered.Peak(test.window) != share {
				t.Errorf("%s: at most %d in a window, want %d", test.name, offered.Peak(test.window), share)
			}
			if len(asked) != test.nodes || test.limit > 100 && burst == 0 {
				t.Errorf("%s: it asks %d nodes, %d requests at once", test.name, len(asked), burst)
			}
		}
	}
	if got := all(Compliant("x", 1, time.Second, 6)); len(got) != 0 {
		t.Error("nobody can ask for nine tenths of one request")
	}
}
