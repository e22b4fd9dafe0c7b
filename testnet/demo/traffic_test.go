package demo

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters/counterstest"
	"github.com/edgelimit/edgelimit/testnet/accesslog"
	"github.com/edgelimit/edgelimit/testnet/bubble"
)

func all(next func() (arrival, bool)) []arrival {
	var out []arrival
	for a, ok := next(); ok; a, ok = next() {
		out = append(out, a)
	}
	return out
}

// anyhow are arrivals of numbered clients at any node.
func anyhow(client string, after ...time.Duration) (out []arrival) {
	for i, d := range after {
		out = append(out, arrival{d, fmt.Sprint(client, i), anywhere})
	}
	return out
}

// Requests at 0, 0, 0, 0 and 3 s: the log spans 4 s, for each request belongs to the whole second that its time names.
func TestReplayed(t *testing.T) {
	log := func(seconds ...int64) []accesslog.Entry {
		var out []accesslog.Entry
		for i, s := range seconds {
			out = append(out, accesslog.Entry{Addr: fmt.Sprint("client", i), Time: time.Unix(1_000_000+s, 0)})
		}
		return out
	}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, test := range []struct {
		name     string
		seconds  []int64
		duration time.Duration
		want     []arrival
	}{
		{"as fast as it was", []int64{0, 0, 0, 0, 3}, ms(4000),
			anyhow("client", 0, ms(250), ms(500), ms(750), ms(3000))},
		{"sped up", []int64{0, 0, 0, 0, 3}, ms(400),
			anyhow("client", 0, ms(25), ms(50), ms(75), ms(300))},
		{"slowed down", []int64{0, 1}, ms(20_000), anyhow("client", 0, ms(10_000))},
		{"out of order", []int64{2, 0, 1, 0}, ms(3000),
			[]arrival{{0, "client1", anywhere}, {ms(500), "client3", anywhere}, {ms(1000), "client2", anywhere}, {ms(2000), "client0", anywhere}}},
		{"one request", []int64{7}, ms(5000), anyhow("client", 0)},
		{"one second", []int64{7, 7}, ms(5000), anyhow("client", 0, ms(2500))},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := all(replayed(&Options{Log: log(test.seconds...), Duration: test.duration}))
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("got  %v\nwant %v", got, test.want)
			}
		})
	}
}

// A second with very many requests costs no more than others: looking for its ends at each of them would take minutes.
func TestReplayedBusySecond(t *testing.T) {
	log := make([]accesslog.Entry, 300_000)
	for i := range log {
		log[i] = accesslog.Entry{Addr: "x", Time: time.Unix(1_000_000, 0)}
	}
	began := time.Now()
	got := all(replayed(&Options{Log: log, Duration: time.Second}))
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	if len(got) != len(log) || got[0].after != 0 || got[len(got)-1].after >= time.Second {
		t.Errorf("%d arrivals, the last after %v", len(got), got[len(got)-1].after)
	}
}

// A Poisson process of 200 requests a second: their number and the gaps between them, both within four standard deviations.
func TestPoissonRate(t *testing.T) {
	o := Options{Load: 2, Limit: 1000, Window: 10 * time.Second, Duration: 100 * time.Second}
	got := all(poisson(&o, rand.New(rand.NewPCG(1, 2))))
	if n, want := float64(len(got)), 20_000.0; math.Abs(n-want) > 4*math.Sqrt(want) {
		t.Errorf("%v requests in 100 s, want about %v", n, want)
	}
	var sum, squares float64
	last := time.Duration(0)
	for _, a := range got {
		if a.after < last || a.after >= o.Duration || a.client != "client" || a.node != anywhere {
			t.Fatalf("arrival %v after %v", a, last)
		}
		gap := (a.after - last).Seconds()
		sum, squares, last = sum+gap, squares+gap*gap, a.after
	}
	n := float64(len(got))
	mean := sum / n
	if deviation := math.Sqrt(squares/n - mean*mean); math.Abs(deviation/mean-1) > 0.05 {
		t.Errorf("gaps of %v with a deviation of %v: those of a Poisson process are alike", mean, deviation)
	}
	again := all(poisson(&o, rand.New(rand.NewPCG(1, 2))))
	other := all(poisson(&o, rand.New(rand.NewPCG(2, 2))))
	if fmt.Sprint(got) != fmt.Sprint(again) || fmt.Sprint(got) == fmt.Sprint(other) {
		t.Error("the arrivals do not follow from the seed alone")
	}
}

// Each request is offered at its time, and the nodes get equal parts.
func TestOffer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Duration, o.Seed = 60*time.Second, 3
		want := all(poisson(&o, rand.New(rand.NewPCG(o.Seed, 2)))) // only the number counts: nodes are drawn between
		start := time.Now()
		var offered int
		var last time.Duration
		nodes := make([]int, o.Regions*o.Nodes)
		offer(t.Context(), &o, start, func(node int, client string) {
			if client == modest {
				return
			}
			nodes[node]++
			offered++
			last = time.Since(start)
		})
		if math.Abs(float64(offered-len(want))) > 4*math.Sqrt(float64(len(want))) {
			t.Errorf("%d requests, want about %d", offered, len(want))
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

// The oracle never counts the client beside the load above 95 %, also where its requests come somewhat late; in its fullest window it asks
// for nine tenths, partly at once, and no node is left out.
func TestBeside(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Options)
	}{
		{"the demo", func(*Options) {}},
		{"a short window", func(o *Options) { o.Window = time.Second }},
		{"a small limit", func(o *Options) { o.Limit = 5 }},
		{"many nodes", func(o *Options) { o.Regions, o.Nodes = 8, 8 }},
		{"one node", func(o *Options) { o.Regions, o.Nodes = 1, 1 }},
	} {
		for seed := range uint64(5) {
			o := DefaultOptions()
			test.change(&o)
			o.Duration = 80 * o.Window
			rule, _, err := ruleFor(&o)
			if err != nil {
				t.Fatal(err)
			}
			g, late := newLedger(rule.Limit, o.Regions*o.Nodes), rand.New(rand.NewPCG(seed, 1))
			var offered counterstest.Rolling
			asked, burst, last := make(map[int]bool), 0, time.Duration(0)
			for _, a := range all(beside(&o)) {
				if a.after < last || a.client != modest || a.node < 0 || a.node >= o.Regions*o.Nodes {
					t.Fatalf("%s: arrival %+v after %v", test.name, a, last)
				}
				if a.after-last < o.Window/100 {
					burst++
				}
				last = a.after
				asked[a.node] = true
				at := at(0).Add(a.after + time.Duration(late.Int64N(int64(o.Window/100))))
				offered.Add(at.UnixNano(), 1)
				g.book.Note(a.client, 1, at.UnixNano(), true)
			}
			want := Fairness{CompliantClients: 1, CompliantOffered: g.book.Fairness().CompliantOffered}
			if got := g.book.Fairness(); got != want || got.CompliantOffered < 50*uint64(modestShare*float64(o.Limit)) {
				t.Errorf("%s: %+v", test.name, got)
			}
			if most := uint64(modestShare * float64(o.Limit)); offered.Peak(o.Window) != most {
				t.Errorf("%s: at most %d in a window, want %d", test.name, offered.Peak(o.Window), most)
			}
			if len(asked) != o.Regions*o.Nodes || o.Limit > 100 && burst == 0 {
				t.Errorf("%s: it asks %d nodes, %d requests at once", test.name, len(asked), burst)
			}
		}
	}
	o := DefaultOptions()
	if o.Limit = 1; len(all(beside(&o))) != 0 {
		t.Error("nobody can ask for nine tenths of one request")
	}
}

func TestMerged(t *testing.T) {
	of := func(as ...arrival) func() (arrival, bool) {
		return func() (arrival, bool) {
			if len(as) == 0 {
				return arrival{}, false
			}
			a := as[0]
			as = as[1:]
			return a, true
		}
	}
	a, b := anyhow("a", 1, 4, 5), anyhow("b", 1, 2, 6, 7)
	want := "[{1 a0 -1} {1 b0 -1} {2 b1 -1} {4 a1 -1} {5 a2 -1} {6 b2 -1} {7 b3 -1}]"
	if got := fmt.Sprint(all(merged(of(a...), of(b...)))); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := all(merged(of(), of(b...))); len(got) != len(b) {
		t.Errorf("with nobody else %v", got)
	}
	if got := all(merged(of(a...), of())); len(got) != len(a) {
		t.Errorf("beside nobody %v", got)
	}
}

func TestOfferReplays(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Duration = 8 * time.Second
		for i := range 8 {
			o.Log = append(o.Log, accesslog.Entry{Addr: fmt.Sprint(i), Time: time.Unix(int64(1000+i*60), 0)})
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
		bubble.Test(t, func(t *testing.T) {
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
		bubble.Test(t, func(t *testing.T) {
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
		bubble.Test(t, func(t *testing.T) {
			o, start := DefaultOptions(), time.Now()
			o.Limit, o.Window, o.Load = 1_000_000, time.Second, 1000 // a thousand million requests a second
			offer(t.Context(), &o, start, func(int, string) { time.Sleep(time.Millisecond) })
			if took := time.Since(start); took < o.Duration || took > o.Duration+2*late {
				t.Errorf("it ended after %v", took)
			}
		})
	})
}
