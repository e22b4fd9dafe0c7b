package gossiptest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// holdBackMin keeps a packet back far enough that whatever is sent in the same burst overtakes it.
	holdBackMin = time.Millisecond
	// holdBackMax is two ticks of 100 ms: a frame held back may arrive behind the frames of the next two ticks.
	holdBackMax = 200 * time.Millisecond
)

// Link is what the way from one group to another does to what travels on it, in that direction only. The zero value is
// perfect: nothing is lost and nothing takes time.
//
// Streams are reliable and ordered, as TCP is: only Latency and Jitter touch them.
type Link struct {
	// Latency is the one-way delay of everything that arrives.
	Latency time.Duration
	// Jitter is the most that is added to Latency; each packet draws its own share of it, evenly from [0, Jitter].
	Jitter time.Duration
	// Loss is the probability, 0 to 1, that a packet vanishes.
	Loss float64
	// Duplicate is the probability, 0 to 1, that a packet which is not lost arrives twice, each copy with its own delay.
	Duplicate float64
	// Reorder is the probability, 0 to 1, that a copy is held back so that later ones overtake it: by Jitter and another
	// 1 to 200 ms on top of its delay.
	Reorder float64
}

// Validate reports everything about the link that makes no sense: negative durations, probabilities outside [0, 1].
func (k Link) Validate() error {
	var errs []error
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"latency", k.Latency}, {"jitter", k.Jitter}} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("%s is %v, give a duration of 0 or more", d.name, d.value))
		}
	}
	for _, p := range []struct {
		name  string
		value float64
	}{{"loss", k.Loss}, {"duplicate", k.Duplicate}, {"reorder", k.Reorder}} {
		// Asked this way round, NaN is refused too.
		if !(p.value >= 0 && p.value <= 1) {
			errs = append(errs, fmt.Errorf("%s is %v, give a probability from 0 to 1", p.name, p.value))
		}
	}
	return errors.Join(errs...)
}

// delay draws how long one crossing takes, nothing being held back.
func (k Link) delay(r *rand.Rand) time.Duration {
	return k.Latency + between(r, 0, k.Jitter)
}

// delayCopy draws how long one copy of a packet takes, and whether it is held back.
func (k Link) delayCopy(r *rand.Rand) (delay time.Duration, heldBack bool) {
	delay = k.delay(r)
	if !chance(r, k.Reorder) {
		return delay, false
	}
	return delay + k.Jitter + between(r, holdBackMin, holdBackMax), true
}

func chance(r *rand.Rand, p float64) bool {
	return p > 0 && r.Float64() < p
}

// between draws evenly from [low, high].
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(r.Int64N(int64(high-low)+1))
}
