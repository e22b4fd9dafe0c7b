// Command bench measures the counting engine beside what people would use instead: golang.org/x/time/rate in a sync.Map,
// sethvargo/go-limiter, throttled, ulule/limiter, and redis_rate with a Redis of its own on loopback. It is a module of its own, so that
// nobody who uses edgelimit inherits its rivals.
//
//	go run .          every comparison, some five minutes; writes RESULTS.md
//	go run . --quick  the same with short slices, below a minute; writes nothing
//	go run . --only 'key given,go-limiter'  only the times of these; writes nothing
//	go run . flood    the engine in a flood of keys: resident memory, latencies, which keys it keeps
//
// How it compares: all contestants live in one process, get the same identities in the same order and are asked in turns, a short slice
// each, round after round; a ratio is the median of the ratios within the rounds, so that a machine that is busy for a while disturbs all
// alike. The rivals run as their users call them, with their own clocks. edgelimit hashes the identity with SipHash and reads a coarse
// clock, as a node does; "key given" leaves the hash out. No garbage is collected within a slice, which favours those that make some. It
// takes some 4 GB of memory.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// errMissed says that a flood broke one of its promises.
var errMissed = errors.New("a promise was missed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "flood" {
		return runFlood(ctx, args[1:], stdout, stderr)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	quick := flags.Bool("quick", false, "short slices, fewer rounds; RESULTS.md stays as it is")
	only := flags.String("only", "", "time only the contestants whose names contain one of these, separated by commas; RESULTS.md stays as it is")
	asJSON := flags.Bool("json", false, "print JSON instead of tables")
	out := flags.String("out", "RESULTS.md", "where a whole run writes its tables as Markdown")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	p := pace{rounds: 9, slice: 80 * time.Millisecond, repeats: 800, budgets: []int{64, 100}, collections: 7}
	if *quick {
		p = pace{rounds: 3, slice: 15 * time.Millisecond, repeats: 200, budgets: []int{16}, collections: 3}
	}
	r, err := compare(ctx, p, *only, stderr)
	if err != nil {
		return err
	}
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(r)
	} else {
		err = r.write(stdout, plain{})
	}
	if err != nil || *quick || *only != "" {
		return err
	}
	f, err := os.Create(*out)
	if err != nil {
		return err
	}
	return errors.Join(r.write(f, markdown{}), f.Close())
}
