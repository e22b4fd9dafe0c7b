package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// The fairness of a sliding window by itself: one node, nothing is replicated. Clients that never spend more than 95 %
// of the limit in any window are asked how often they are rejected all the same, and greedy ones how much they get.

// weighting is how much of the oldest sub-window counts, which overlaps the window by left of sub nanoseconds.
type weighting struct {
	name  string
	count func(n, even uint64, left, sub int64) float64
}

// The first is what package counters does. even is a sub-window's part of the limit, rounded up.
var weightings = []weighting{
	{"as edgelimit does",
		func(n, even uint64, left, sub int64) float64 {
			return max(overlap(n, left, sub)-1, float64(n)-float64(even), 0)
		}},
	{"by its overlap", func(n, _ uint64, left, sub int64) float64 { return overlap(n, left, sub) }},
	{"in full", func(n, _ uint64, _, _ int64) float64 { return float64(n) }},
	{"not at all", func(uint64, uint64, int64, int64) float64 { return 0 }},
}

// overlap is the part of n that overlaps the window, rounded up.
func overlap(n uint64, left, sub int64) float64 {
	return math.Ceil(float64(n) * float64(left) / float64(sub))
}

// subWindows are the numbers that are compared; 1 is the classic counter of two buckets, of which one overlaps.
var subWindows = []int{1, 5, 10, 20, 50}

const (
	fairLimit  = 1000
	fairWindow = 10 * time.Second
)

// spender is a client and how it comes.
type spender struct {
	name  string
	every time.Duration // from the beginning of a burst to that of the next
	in    time.Duration // how long a burst lasts
	max   float64       // of the limit, in a burst
}

// compliant are clients of which no rolling window holds more than 95 % of the limit.
var compliant = []spender{
	{"in 0.2 s, every W + 0.1 s", fairWindow + 100*time.Millisecond, 200 * time.Millisecond, 0.95},
	{"in 1 s, every W + 0.1 s", fairWindow + 100*time.Millisecond, time.Second, 0.95},
	{"in 3 s, every W + 0.1 s", fairWindow + 100*time.Millisecond, 3 * time.Second, 0.95},
	{"in 0.2 s, every W + 0.5 s", fairWindow + 500*time.Millisecond, 200 * time.Millisecond, 0.95},
	{"in 0.2 s, every W + 1 s", fairWindow + time.Second, 200 * time.Millisecond, 0.95},
	{"evenly", fairWindow, fairWindow, 0.95},
}

// greedy are clients that ask for more than they may have.
var greedy = []spender{
	{"twice the limit, evenly", fairWindow, fairWindow, 2},
	{"twice the limit in 0.2 s, every W + 0.1 s", fairWindow + 100*time.Millisecond, 200 * time.Millisecond, 2},
	{"twice the limit in 0.2 s, every 0.92 W", fairWindow * 92 / 100, 200 * time.Millisecond, 2},
}

// fairBursts is how many bursts there are of each client: as many as it takes to come by every place of a window.
const fairBursts = 100

func names(spenders []spender) (names []string) {
	for _, s := range spenders {
		names = append(names, s.name)
	}
	return names
}

// arrivals are the times of a client's requests. The same moments of each burst, so that no window holds more than one.
func (s *spender) arrivals() []int64 {
	r := rand.New(rand.NewPCG(1, 1))
	begin := 1_800_000_000*int64(time.Second) + r.Int64N(int64(fairWindow))
	var times []int64
	n := int64(s.max * fairLimit)
	for burst := range int64(fairBursts) {
		for i := range n {
			times = append(times, begin+burst*int64(s.every)+i*int64(s.in)/n)
		}
	}
	return times
}

// window is a sliding window counter of n sub-windows: counters' own, but for the weight of the oldest.
type window struct {
	sub    int64
	weight weighting
	ring   []uint64 // the counts of the sub-windows up to index
	index  int64
}

func newWindow(n int, w weighting) *window {
	return &window{sub: int64(fairWindow) / int64(n), weight: w, ring: make([]uint64, n+1)}
}

func (w *window) take(now int64) bool {
	size := int64(len(w.ring))
	index := now / w.sub
	for i := max(w.index, index-size) + 1; i <= index; i++ {
		w.ring[i%size] = 0
	}
	w.index = index
	oldest := (index + 1) % size
	even := (fairLimit + uint64(size-1) - 1) / uint64(size-1)
	view := w.weight.count(w.ring[oldest], even, w.sub-now%w.sub, w.sub)
	for i, n := range w.ring {
		if int64(i) != oldest {
			view += float64(n)
		}
	}
	if view+1 > fairLimit {
		return false
	}
	w.ring[index%size]++
	return true
}

// spent is what came of a client.
type spent struct {
	offered, admitted int
	peak              uint64 // the fullest rolling window
	seconds           float64
}

func spend(s spender, w *window) spent {
	var log oracle.Rolling
	times := s.arrivals()
	out := spent{offered: len(times), seconds: (fairBursts * s.every).Seconds()}
	for _, at := range times {
		if w.take(at) {
			out.admitted++
			log.Add(at, 1)
		}
	}
	out.peak = log.Peak(fairWindow)
	return out
}

// trial is one way to count a window, and what came of each client.
type trial struct {
	weight     string
	subWindows int
	bytes      float64 // a key takes
	compliant  []spent
	greedy     []spent
}

// measureFairness tries every weighting with every number of sub-windows.
func measureFairness() (trials []trial, err error) {
	for _, weight := range weightings {
		for _, n := range subWindows {
			t := trial{weight: weight.name, subWindows: n}
			if t.bytes, err = bytesOfKey(n); err != nil {
				return nil, err
			}
			for _, s := range compliant {
				t.compliant = append(t.compliant, spend(s, newWindow(n, weight)))
			}
			for _, s := range greedy {
				t.greedy = append(t.greedy, spend(s, newWindow(n, weight)))
			}
			trials = append(trials, t)
		}
	}
	return trials, nil
}

// meterOf is a sliding window of so many sub-windows.
func meterOf(n int) counters.Meter {
	return counters.Meter{
		Rule: "fair", Algorithm: counters.SlidingWindow, Window: fairWindow, Sub: fairWindow / time.Duration(n),
	}
}

// bytesOfKey is how many bytes of a full table's budget a key takes.
func bytesOfKey(n int) (float64, error) {
	const budget = 64 << 20
	limit, err := counters.NewLimit(meterOf(n), fairLimit)
	if err != nil {
		return 0, err
	}
	table := counters.NewTable(counters.Config{Origin: 1, Memory: budget})
	keys := rand.New(rand.NewPCG(2, 2))
	for now := int64(fairWindow); ; {
		for range 1 << 14 {
			table.Take(limit, counters.Key(keys.Uint64()), 1, now)
		}
		if stats := table.Stats(); stats.Evicted > uint64(stats.Keys)/4 { // every shard is full
			return budget / float64(stats.Keys), nil
		}
	}
}

const fairnessNote = `One node, a limit of %d per %v; nothing is replicated. Clients that spend 95 %% of the limit
as the columns say, of which no rolling window ever holds more: %% of their requests rejected. The oldest
sub-window counts by its overlap, in full, or not at all; edgelimit counts it by its overlap, rounded down, and at
least what exceeds an even share of it. Bytes a key: of the budget of a full table.

A burst that comes again after W and a sub-window is never rejected. One that comes sooner meets itself in the
oldest sub-window. More sub-windows mend that, at 8 bytes and more each; the default is as many as fit into 160
bytes a key. In full would be less fair to everybody, an even client included. Not at all would be fair, but then
the limit is that of a shorter window: the next table shows who would use it. By the overlap alone bursts are
rejected less, but a window may hold up to twice the limit, and an even client of a limit below twenty is rejected
now and then. As edgelimit counts, no even client is ever rejected, whatever the limit L, and no window holds more
than L and the even share of a sub-window, rounded up.`

func fairnessSheet(trials []trial) sheet {
	s := sheet{title: fairnessTitle, note: fmt.Sprintf(fairnessNote, fairLimit, fairWindow),
		head: append([]string{"oldest sub-window", "sub-windows", "bytes a key"}, names(compliant)...)}
	for _, t := range trials {
		line := []string{t.weight, t.name(), number(math.Round(t.bytes))}
		for _, out := range t.compliant {
			line = append(line, number(100*float64(out.offered-out.admitted)/float64(out.offered)))
		}
		s.rows = append(s.rows, line)
	}
	return s
}

const greedyNote = `The same windows, asked for more than the limit: what the client gets, in % of one limit a window;
its fullest rolling window, % over the limit.`

func greedySheet(trials []trial) sheet {
	s := sheet{title: "The window and the greedy", note: greedyNote,
		head: append([]string{"oldest sub-window", "sub-windows"}, names(greedy)...)}
	for _, t := range trials {
		line := []string{t.weight, t.name()}
		for _, out := range t.greedy {
			share := 100 * float64(out.admitted) / (fairLimit * out.seconds / fairWindow.Seconds())
			line = append(line, fmt.Sprintf("%s; %s", number(share), number(100*(float64(out.peak)/fairLimit-1))))
		}
		s.rows = append(s.rows, line)
	}
	return s
}

func (t *trial) name() string {
	switch t.subWindows {
	case 1:
		return "1 (two buckets)"
	case counters.DefaultSubWindows:
		return fmt.Sprintf("%d (the default)", t.subWindows)
	}
	return fmt.Sprint(t.subWindows)
}
