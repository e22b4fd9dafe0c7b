// Command bench compares the counting engine with the alternatives: golang.org/x/time/rate in a sync.Map,
// sethvargo/go-limiter, throttled, ulule/limiter, and redis_rate with its own Redis on loopback. It is a module of its
// own, so that users of edgelimit do not inherit these dependencies.
//
//	go run .          everything, some five minutes; writes RESULTS.md
//	go run . --quick  the same with short slices, below a minute; prints the tables
//	go run . --only 'key given,go-limiter'  only the times of these; prints the tables
//
// All contestants live in one process and get the same identities in the same order, in turns of a short slice, round
// after round. A ratio is the median of the ratios within the rounds, so that a busy machine slows all down alike. The
// rivals use their own clocks, as in production. edgelimit hashes the identity with SipHash and reads a coarse clock,
// as a node does; "key given" omits the hash. No garbage is collected within a slice, which favors contestants that
// allocate. A run takes some 4 GB of memory.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/edgelimit/edgelimit/testnet/bench/rig"
)

func main() { rig.Main("bench", run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	quick := flags.Bool("quick", false, "short slices, fewer rounds; print the tables instead of writing RESULTS.md")
	only := flags.String("only", "", "time only contestants whose name contains one of these `PARTS`, separated by "+
		"commas; print the tables")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	d := duration{rounds: 9, slice: 80 * time.Millisecond, repeats: 800, budgets: []int{64, 100}, collections: 7}
	if *quick {
		d = duration{rounds: 3, slice: 15 * time.Millisecond, repeats: 200, budgets: []int{16}, collections: 3}
	}
	r, err := compare(ctx, d, *only, stderr)
	if err != nil {
		return err
	}
	if *quick || *only != "" {
		_, err = io.WriteString(stdout, r.markdown())
		return err
	}
	return os.WriteFile("RESULTS.md", []byte(r.markdown()), 0o644)
}
