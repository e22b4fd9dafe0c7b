package gossip

import (
	"math/rand/v2"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// What the simulated world does to its replicas.

// weather is what happens to messages on their way between places.
type weather struct {
	loss, duplicate, reorder float64
	delay                    time.Duration // the most that a packet takes
	failing                  float64       // how many of the streams break without a cut
	cuts                     map[way]int   // how many cuts hold a way closed
}

// way is one direction between two places.
type way struct{ from, to int }

func newWeather(r *rand.Rand) weather {
	return weather{
		loss: 0.3 * r.Float64(), duplicate: 0.2 * r.Float64(), reorder: 0.2 * r.Float64(),
		delay:   time.Duration(r.IntN(300)) * time.Millisecond,
		failing: 0.3 * r.Float64(),
		cuts:    make(map[way]int),
	}
}

func (y *weather) cut(from, to int) bool { return y.cuts[way{from, to}] > 0 }

// packet returns when the copies of a packet arrive that leaves now.
func (y *weather) packet(r *rand.Rand, from, to int) (delays []time.Duration) {
	if y.cut(from, to) || r.Float64() < y.loss {
		return nil
	}
	copies := 1
	if r.Float64() < y.duplicate {
		copies = 2
	}
	for range copies {
		d := time.Duration(r.Int64N(int64(y.delay) + 1))
		if r.Float64() < y.reorder {
			d += time.Duration(r.Int64N(int64(time.Second)))
		}
		delays = append(delays, d)
	}
	return delays
}

// stream returns how long a stream takes that is opened now, and whether it can be.
func (y *weather) stream(r *rand.Rand, from, to int) (time.Duration, bool) {
	d := 20*time.Millisecond + 2*y.delay + time.Duration(r.Int64N(int64(time.Second)))
	return d, !y.cut(from, to) && !y.cut(to, from) && r.Float64() >= y.failing
}

// fault schedules one fault after the other, until the time is over.
func (w *world) faults(until int64) {
	pause := time.Duration(200+w.rand.IntN(1500)) * time.Millisecond
	if w.now+int64(pause) >= until {
		return
	}
	w.after(pause, func() {
		switch n := w.nodes[w.rand.IntN(len(w.nodes))]; w.rand.IntN(7) {
		case 0, 1:
			w.partition()
		case 2:
			w.crash(n)
		case 3, 4:
			w.flap(n)
		case 5:
			w.pushPull(n, w.nodes[w.rand.IntN(len(w.nodes))])
		case 6:
			w.burst(n)
		}
		w.faults(until)
	})
}

// burst is a crowd of clients, too many for one frame.
func (w *world) burst(n *simNode) {
	if !n.up || w.seed%4 != 0 {
		return
	}
	for range 200 {
		w.take(n, counters.Key(1000+w.rand.IntN(1000)), 1, w.limits[0])
	}
}

// partition cuts some places off from the others for a while, in one direction or both.
func (w *world) partition() {
	side := make([]bool, len(w.nodes))
	for i := range side {
		side[i] = w.rand.IntN(2) == 0
	}
	bothWays := w.rand.IntN(2) == 0
	var cut []way
	for a := range side {
		for b := range side {
			if side[a] != side[b] && (side[a] || bothWays) {
				cut = append(cut, way{a, b})
			}
		}
	}
	for _, c := range cut {
		w.weather.cuts[c]++
	}
	w.after(time.Duration(w.rand.Int64N(6*second)), func() {
		for _, c := range cut {
			w.weather.cuts[c] = max(0, w.weather.cuts[c]-1)
		}
	})
}

// flap makes a node take a member for failed, and find it again.
func (w *world) flap(n *simNode) {
	other := w.nodes[w.rand.IntN(len(w.nodes))]
	o, boot := other.origin, n.boot
	if !n.members[o] {
		return
	}
	w.leave(n, o, false)
	w.after(time.Duration(w.rand.Int64N(4*second)), func() {
		if n.boot == boot && other.origin == o {
			w.join(n, o)
		}
	})
}

// crash ends a node without a word. After a while it starts again at the same place, as another origin.
func (w *world) crash(n *simNode) {
	if !n.up || len(w.up()) <= 2 {
		return
	}
	n.up = false
	w.crashes++
	old := n.origin
	for _, other := range w.nodes {
		// Some notice the crash, some only the restart.
		if boot := other.boot; w.rand.IntN(2) == 0 {
			w.after(time.Duration(w.rand.Int64N(5*second)), func() {
				if other.boot == boot {
					w.leave(other, old, false)
				}
			})
		}
	}
	w.after(time.Duration(100*1e6+w.rand.Int64N(4*second)), func() {
		if !w.calmed {
			w.restart(n)
		}
	})
}

func (w *world) restart(n *simNode) {
	old := n.origin
	before := w.viewsOf(n)
	w.start(n)
	for _, other := range w.nodes {
		if other == n {
			continue
		}
		w.join(n, other.origin) // of a boot that is over, if the other one is down
		boot, o := other.boot, n.origin
		news := func() {
			if other.boot == boot && n.origin == o {
				w.leave(other, old, true)
				w.join(other, o)
			}
		}
		if w.rand.IntN(3) > 0 {
			news()
		} else {
			w.after(time.Duration(w.rand.Int64N(5*second)), news) // some hear of it much later
		}
	}
	if w.rand.IntN(2) == 0 {
		w.pushPull(n, w.nodes[w.rand.IntN(len(w.nodes))])
	}
	w.checkRestart(n, before)
}

// calm ends all faults but delay, duplication and reordering, and all traffic. Every node that runs gets the membership right.
func (w *world) calm() {
	w.calmed = true
	w.rate, w.weather.loss, w.weather.failing = 0, 0, 0
	clear(w.weather.cuts)
	for _, n := range w.nodes {
		for _, other := range w.nodes {
			switch {
			case n == other:
			case other.up:
				w.join(n, other.origin)
			default:
				w.leave(n, other.origin, false)
			}
		}
		for o := range n.members {
			if w.nodes[w.home[o]].origin != o {
				w.leave(n, o, true)
			}
		}
	}
}
