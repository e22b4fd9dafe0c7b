// Command bench compares the counting engine with the alternatives: golang.org/x/time/rate in a sync.Map,
// sethvargo/go-limiter, throttled, ulule/limiter, and redis_rate with its own Redis on loopback. It is a module of its
// own, so that users of edgelimit do not inherit these dependencies.
//
//	go run .          everything, some five minutes; writes RESULTS.md
//	go run . --quick  the same with short slices, below a minute; prints the tables
//	go run . --only 'key given,go-limiter'  only the times of these; prints the tables
//
// All contestants live in one process and get the same identities in the same order, in turns of a short slice, round
// after round. A ratio is the median of the ratios within the rounds, so that a busy machine slows all down alike.
// Goals are for the fastest slices, as no other program makes one faster. The rivals use their own clocks, as in
// production. edgelimit hashes the identity with SipHash and reads a coarse clock, as a node does; "key given" omits
// the hash. No garbage is collected within a slice, which favors contestants that allocate. A run takes some 4 GB of
// memory.
package main

import (
	"context"
	"io"
	"time"

	"github.com/edgelimit/edgelimit/testnet/bench/rig"
)

func main() {
	p := rig.Program{Name: "bench", File: "RESULTS.md", Measure: measureAll,
		Only: "time only contestants whose name contains one of these `PARTS`, separated by commas"}
	p.Main()
}

func measureAll(ctx context.Context, quick bool, only string, progress io.Writer) (string, error) {
	d := duration{rounds: 9, slice: 80 * time.Millisecond, repeats: 800, budgets: []int{64, 100}, collections: 7}
	if quick {
		d = duration{rounds: 3, slice: 15 * time.Millisecond, repeats: 200, budgets: []int{16}, collections: 3}
	}
	r, err := compare(ctx, d, only, progress)
	if err != nil {
		return "", err
	}
	return r.markdown(), nil
}
