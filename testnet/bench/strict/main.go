// Command strict measures what a strict check costs Redis and the process that asks, beside redis_rate and the INCRBY
// and EXPIRE of envoyproxy/ratelimit, and how much longer it takes than a bare round trip.
//
//	go run ./strict           some four minutes; writes STRICT.md
//	go run ./strict --quick   short slices; prints the report
//
// All share one redis-server, which the program starts, and load it in turns, a slice each, round after round. A ratio
// or a difference is the median of those within the rounds, so that a busy machine slows all down alike.
package main

import (
	"context"
	"io"
	"runtime/debug"
	"time"

	"github.com/edgelimit/edgelimit/testnet/bench/rig"
)

func main() {
	p := rig.Program{Name: "strict", File: "STRICT.md", Measure: measureAll}
	p.Main()
}

// duration sets how long and how often to measure.
type duration struct {
	rounds int
	slice  time.Duration // of a turn in which all clients ask as fast as they can
	steady time.Duration // of a turn of the steady load
}

func measureAll(ctx context.Context, quick bool, _ string, progress io.Writer) (string, error) {
	d := duration{rounds: 6, slice: 400 * time.Millisecond, steady: 2 * time.Second}
	if quick {
		d = duration{rounds: 2, slice: 100 * time.Millisecond, steady: 200 * time.Millisecond}
	}
	// The smaller a heap, the more often it is collected. All contestants share one.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(256 << 20)
	r, err := measure(ctx, d, progress)
	if err != nil {
		return "", err
	}
	return r.markdown(), nil
}
