package traffic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func all(next Source) []Arrival {
	var out []Arrival
	for a, ok := next(); ok; a, ok = next() {
		out = append(out, a)
	}
	return out
}

// numbered are arrivals of numbered clients at the only node.
func numbered(client string, after ...time.Duration) (out []Arrival) {
	for i, d := range after {
		out = append(out, Arrival{d, fmt.Sprint(client, i), 0})
	}
	return out
}

// A Poisson process of 200 requests a second at two nodes: their number, the gaps between them and the shares of the
// nodes, all within four standard deviations. The gaps' deviation is their mean.
func TestPoisson(t *testing.T) {
	draw := func(seed uint64) []Arrival {
		s := Stream{Identity: "client", Rate: 200}.Arrivals(2, rand.New(rand.NewPCG(seed, 2)))
		return all(s.Until(100 * time.Second))
	}
	got := draw(1)
	if n, want := float64(len(got)), 20_000.0; math.Abs(n-want) > 4*math.Sqrt(want) {
		t.Errorf("%v requests in 100 s, want about %v", n, want)
	}
	var sum, squares float64
	perNode, last := [2]int{}, time.Duration(0)
	for _, a := range got {
		if a.After < last || a.After >= 100*time.Second || a.Client != "client" {
			t.Fatalf("arrival %v after %v", a, last)
		}
		gap := (a.After - last).Seconds()
		sum, squares, last = sum+gap, squares+gap*gap, a.After
		perNode[a.Node]++
	}
	n := float64(len(got))
	mean := sum / n
	if deviation := math.Sqrt(squares/n - mean*mean); math.Abs(deviation/mean-1) > 0.05 {
		t.Errorf("gaps of %v with a deviation of %v: those of a Poisson process are alike", mean, deviation)
	}
	if math.Abs(float64(perNode[0])-n/2) > 2*math.Sqrt(n) {
		t.Errorf("per node %v", perNode)
	}
	if fmt.Sprint(got) != fmt.Sprint(draw(1)) || fmt.Sprint(got) == fmt.Sprint(draw(2)) {
		t.Error("the arrivals do not follow from the seed alone")
	}
}

func TestMerge(t *testing.T) {
	of := func(as ...Arrival) Source {
		return func() (a Arrival, ok bool) {
			if len(as) > 0 {
				a, as, ok = as[0], as[1:], true
			}
			return a, ok
		}
	}
	a, b := numbered("a", 1, 4, 5), numbered("b", 1, 2, 6, 7)
	want := "[{1ns a0 0} {1ns b0 0} {2ns b1 0} {4ns a1 0} {5ns a2 0} {6ns b2 0} {7ns b3 0}]"
	if got := fmt.Sprint(all(Merge(of(a...), of(b...)))); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := all(Merge(of(), of(b...))); len(got) != len(b) {
		t.Errorf("after an empty source %v", got)
	}
	if got := all(Merge(of(a...), of())); len(got) != len(a) {
		t.Errorf("before an empty source %v", got)
	}
	if got := all(Merge()); got != nil {
		t.Errorf("of no source %v", got)
	}
}

func TestPatterns(t *testing.T) {
	for p, want := range map[Pattern][]float64{EvenPattern: nil, SkewPattern: {1 - skewed, skewed},
		OnePattern: {0, 1}} {
		got, err := p.Weights(targets, "b")
		if err != nil || fmt.Sprintf("%.2f", got) != fmt.Sprintf("%.2f", want) {
			t.Errorf("%s: %v, %v", p, got, err)
		}
	}
	for node, p := range map[string]Pattern{"c": OnePattern, "": "odd"} {
		if _, err := p.Weights(targets, node); err == nil {
			t.Errorf("pattern %q on node %q is no error", p, node)
		}
	}
	for at, want := range map[float64]int{0: 1, 0.29: 1, 0.31: 3, 0.9999: 3} {
		if got := weighted(at, []float64{0, 3, 0, 7, 0}); got != want {
			t.Errorf("%v falls on %d, want %d", at, got, want)
		}
	}
}
