// Package traffic decides when requests arrive, of which client and at which node, and offers them to nodes.
//
// It is an open loop: when a request is sent depends on the clock and a seed, never on how fast others are answered. A
// generator that waits for answers asks less of a slow node, and so hides what it is to show. Where [Run] cannot keep
// up itself, the run is no measurement, and it reports [ErrBehind].
package traffic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Arrival is a request.
type Arrival struct {
	After  time.Duration // since the start
	Client string
	Node   int // by number
}

// Source returns the next arrival, in the order of time, or false at the end.
type Source func() (Arrival, bool)

// Until ends a source at a time.
func (s Source) Until(end time.Duration) Source {
	return func() (Arrival, bool) {
		a, ok := s()
		return a, ok && a.After < end
	}
}

// Merge returns the arrivals of all sources in the order of time. Of the same time, earlier sources come first.
func Merge(sources ...Source) Source {
	next, more := make([]Arrival, len(sources)), make([]bool, len(sources))
	for i, s := range sources {
		next[i], more[i] = s()
	}
	return func() (a Arrival, ok bool) {
		first := -1
		for i := range next {
			if more[i] && (first < 0 || next[i].After < next[first].After) {
				first = i
			}
		}
		if first < 0 {
			return a, false
		}
		a = next[first]
		next[first], more[first] = sources[first]()
		return a, true
	}
}

// Play calls send for each arrival when it is due. It never skips one that it is late for: that would offer less. It
// ends with the arrivals, with ctx, or when send returns false.
func Play(ctx context.Context, start time.Time, next Source, send func(a Arrival, due time.Time) bool) {
	for ctx.Err() == nil {
		a, ok := next()
		if !ok {
			return
		}
		due := start.Add(a.After)
		if wait := time.Until(due); wait > 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
		if !send(a, due) {
			return
		}
	}
}

// Spacing is how the requests of a stream follow each other.
type Spacing string

// The spacings: Poisson is what many independent clients do; Even leaves the same time between any two.
const (
	Poisson Spacing = "poisson"
	Even    Spacing = "even"
)

// Stream is the requests of one identity.
type Stream struct {
	Identity string
	Rate     float64 // requests per second, over all nodes
	Spacing  Spacing // Poisson if empty
	// Weights are the shares of the nodes; nil: all get the same, in turn where the spacing is even, else at random.
	Weights []float64
}

// Arrivals draws the stream's requests at so many nodes from r. It has no end.
func (s Stream) Arrivals(nodes int, r *rand.Rand) Source {
	interval := float64(time.Second) / s.Rate
	n, a := 0, Arrival{Client: s.Identity}
	return func() (Arrival, bool) {
		if s.Spacing == Even {
			a.After = time.Duration(float64(n) * interval)
		} else {
			a.After += time.Duration(r.ExpFloat64() * interval)
		}
		switch {
		case s.Weights != nil:
			a.Node = weighted(r.Float64(), s.Weights)
		case s.Spacing == Even:
			a.Node = n % nodes
		default:
			a.Node = r.IntN(nodes)
		}
		n++
		return a, true
	}
}

// weighted returns the place in the weights that a number from 0 to 1 falls on.
func weighted(at float64, weights []float64) int {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	last := 0
	for i, w := range weights {
		if w == 0 {
			continue
		}
		last = i
		if at -= w / sum; at < 0 {
			break
		}
	}
	return last
}

func (s *Stream) validate(nodes int) error {
	sum := 0.0
	for _, w := range s.Weights {
		if w < 0 {
			return fmt.Errorf("stream %s: a weight of %v, want at least 0", s.Identity, w)
		}
		sum += w
	}
	switch {
	case s.Identity == "":
		return errors.New("a stream without an identity")
	case !(s.Rate > 0):
		return fmt.Errorf("stream %s: a rate of %v, want more than 0", s.Identity, s.Rate)
	case s.Spacing != "" && s.Spacing != Poisson && s.Spacing != Even:
		return fmt.Errorf("stream %s: spacing %q, want %s or %s", s.Identity, s.Spacing, Poisson, Even)
	case s.Weights != nil && (len(s.Weights) != nodes || sum == 0):
		return fmt.Errorf("stream %s: %d weights with a sum of %v for %d targets", s.Identity, len(s.Weights), sum,
			nodes)
	}
	return nil
}

// Pattern is how requests are spread over the targets.
type Pattern string

// The patterns: all alike, most on one node, or all on one node.
const (
	EvenPattern Pattern = "even"
	SkewPattern Pattern = "skew"
	OnePattern  Pattern = "one"
)

// skewed is the share of the favoured node in SkewPattern.
const skewed = 0.7

// Weights returns the pattern's weights of the targets. node is the one that skew and one favour; "": the first.
func (p Pattern) Weights(targets []Target, node string) ([]float64, error) {
	at := 0
	if node != "" {
		at = slices.IndexFunc(targets, func(t Target) bool { return t.Node == node })
	}
	if at < 0 || len(targets) == 0 {
		names := make([]string, len(targets))
		for i, t := range targets {
			names[i] = t.Node
		}
		return nil, fmt.Errorf("node %q is not among the targets: %s", node, strings.Join(names, ", "))
	}
	favoured := 1.0
	switch p {
	case EvenPattern:
		return nil, nil
	case SkewPattern:
		favoured = skewed
	case OnePattern:
	default:
		return nil, fmt.Errorf("pattern %q: want %s, %s or %s", p, EvenPattern, SkewPattern, OnePattern)
	}
	weights := slices.Repeat([]float64{(1 - favoured) / float64(max(1, len(targets)-1))}, len(targets))
	weights[at] = favoured
	return weights, nil
}
