package sim

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// arrival is a request of a client at a node, by their numbers.
type arrival struct {
	after        int64 // ns since the start
	node, client int
}

// all draws the arrivals of options.
func all(t *testing.T, o Options) (out []arrival) {
	t.Helper()
	testkit.Must(t, o.Validate())
	next := arrivals(&o)
	last := int64(0)
	for drawn, ok := next(); ok; drawn, ok = next() {
		client, err := strconv.Atoi(drawn.Client)
		testkit.Must(t, err)
		a := arrival{int64(drawn.After), drawn.Node, client}
		if a.after < last || a.after >= int64(o.Duration) || a.node < 0 || a.node >= o.Total() || a.client < 0 ||
			a.client >= o.clients() {
			t.Fatalf("arrival %+v after one at %d", a, last)
		}
		last = a.after
		out = append(out, a)
	}
	return out
}

// about fails unless got is within five standard deviations of a Poisson distribution from want.
func about(t *testing.T, what string, got int, want float64) {
	t.Helper()
	if d := math.Abs(float64(got) - want); d > 5*math.Sqrt(want) {
		t.Errorf("%s: %d, want about %.0f", what, got, want)
	}
}

func perNode(o Options, arrivals []arrival, from, to time.Duration) []int {
	counts := make([]int, o.Total())
	for _, a := range arrivals {
		if time.Duration(a.after) >= from && time.Duration(a.after) < to {
			counts[a.node]++
		}
	}
	return counts
}

func TestEvenArrivals(t *testing.T) {
	o := DefaultOptions()
	o.Keys = 4
	arrivals := all(t, o)
	about(t, "all", len(arrivals), 4*2*1000*6)
	for n, c := range perNode(o, arrivals, 0, o.Duration) {
		about(t, "node", c, 48000.0/12)
		_ = n
	}
	clients := make([]int, o.Keys)
	for _, a := range arrivals {
		clients[a.client]++
	}
	for _, c := range clients {
		about(t, "client", c, 12000)
	}
}

func TestSkewArrivals(t *testing.T) {
	o := DefaultOptions()
	o.Pattern = Skew
	arrivals := all(t, o)
	busiest, rest := 0, 0
	for _, c := range perNode(o, arrivals, 0, o.Duration) {
		rest += min(busiest, c)
		busiest = max(busiest, c)
	}
	about(t, "the busiest node", busiest, 0.7*12000)
	about(t, "the others", rest, 0.3*12000)
}

func TestHotspotArrivals(t *testing.T) {
	o := DefaultOptions()
	o.Pattern, o.Load = Hotspot, 20
	arrivals := all(t, o)
	last, moved := -1, 0
	for from := time.Duration(0); from < o.Duration; from += 3 * time.Second {
		hottest := 0
		counts := perNode(o, arrivals, from, from+3*time.Second)
		for n, c := range counts {
			if c > counts[hottest] {
				hottest = n
			}
		}
		about(t, "the hottest node", counts[hottest], 0.8*6000)
		if hottest == last {
			t.Errorf("it does not move at %v", from)
		}
		last, moved = hottest, moved+1
	}
	if moved != 20 {
		t.Errorf("%d spots", moved)
	}
}

func TestFlashArrivals(t *testing.T) {
	o := DefaultOptions()
	o.Pattern = Flash
	arrivals := all(t, o)
	in := func(from, to time.Duration) (n int) {
		for _, c := range perNode(o, arrivals, from, to) {
			n += c
		}
		return n
	}
	for _, began := range []time.Duration{10, 30, 50} {
		about(t, "flash", in(began*time.Second, (began+1)*time.Second), 2000)
	}
	about(t, "before", in(0, 10*time.Second), 500)
	about(t, "between", in(11*time.Second, 30*time.Second), 950)
	about(t, "all", len(arrivals), o.requests())
}

// Clients in bursts: the twelve combinations of length and place, none of which ever asks for more than 95 % in a
// window.
func TestBurstArrivals(t *testing.T) {
	o := DefaultOptions()
	o.Pattern, o.Keys, o.Limit, o.Duration = CompliantBurst, 12, 100, 2*time.Minute
	arrivals := all(t, o)
	byClient := make([][]arrival, o.Keys)
	for _, a := range arrivals {
		byClient[a.client] = append(byClient[a.client], a)
	}
	for client, as := range byClient {
		nodes := make(map[int]bool)
		for i, a := range as {
			nodes[a.node] = true
			if i >= 95 && a.after-as[i-95].after < int64(11*time.Second) {
				t.Fatalf("client %d: request %d comes %v after that of 95 before", client, i,
					time.Duration(a.after-as[i-95].after))
			}
		}
		if got, want := len(nodes), map[int][2]int{0: {1, 1}, 1: {12, 12}, 2: {2, 12}, 3: {2,
			2}}[client/3]; got < want[0] ||
			got > want[1] {
			t.Errorf("client %d comes to %d nodes, want %v", client, got, want)
		}
		first, burst := as[0].after, 0
		for burst < len(as) && as[burst].after-first <= int64(3*time.Second) {
			burst++
		}
		if length := time.Duration(as[burst-1].after - first); burst != 95 || length > burstLengths[client%3] ||
			length < burstLengths[client%3]*8/10 {
			t.Errorf("client %d: %d requests in %v", client, burst, length)
		}
	}
}

// Gaps between requests are as random as those of many clients.
func TestArrivalsArePoisson(t *testing.T) {
	o := DefaultOptions()
	o.Load = 20
	arrivals := all(t, o)
	var sum, squares float64
	for i := 1; i < len(arrivals); i++ {
		gap := float64(arrivals[i].after - arrivals[i-1].after)
		sum, squares = sum+gap, squares+gap*gap
	}
	n := float64(len(arrivals) - 1)
	mean := sum / n
	if deviation := math.Sqrt(squares/n - mean*mean); math.Abs(deviation/mean-1) > 0.03 {
		t.Errorf("gaps of %.0f ns deviate by %.0f: want as much", mean, deviation)
	}
}
