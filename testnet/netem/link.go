package netem

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// holdBackMin delays a packet until the others of the same burst have overtaken it.
	holdBackMin = time.Millisecond
	// holdBackMax is two ticks of 100 ms: a frame held back may arrive behind the frames of the next two ticks.
	holdBackMax = 200 * time.Millisecond
)

// Link holds the properties of the way from one group to another, in that direction only. The zero value loses nothing
// and takes no time.
//
// Streams are reliable and ordered, as TCP is: only Latency and Jitter touch them.
type Link struct {
	// Latency is the one-way delay.
	Latency time.Duration
	// Jitter adds a delay that each packet draws uniformly from [0, Jitter].
	Jitter time.Duration
	// Loss is the probability, 0 to 1, that a packet is lost.
	Loss float64
	// Duplicate is the probability, 0 to 1, that a packet which is not lost arrives twice, each copy with its own
	// delay.
	Duplicate float64
	// Reorder is the probability, 0 to 1, that a copy is held back so that later ones overtake it: by Jitter and
	// another 1 to 200 ms on top of its delay.
	Reorder float64
}

// Validate reports all negative durations and all probabilities outside [0, 1].
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
		// This order refuses NaN too.
		if !(p.value >= 0 && p.value <= 1) {
			errs = append(errs, fmt.Errorf("%s is %v, give a probability from 0 to 1", p.name, p.value))
		}
	}
	return errors.Join(errs...)
}

// delay draws the delay of a packet that is not held back.
func (k Link) delay(r *rand.Rand) time.Duration {
	return k.Latency + between(r, 0, k.Jitter)
}

// delayCopy draws the delay of one copy of a packet, and whether it is held back.
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

// between draws uniformly from [low, high].
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(r.Int64N(int64(high-low)+1))
}
