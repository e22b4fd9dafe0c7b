// Command accuracy regenerates testnet/ACCURACY.md: how much more than its oracle a cluster admits, whom it rejects
// without need, what bound it exports and what it sends, in the simulator (testnet/sim), for each scenario in rows.go
// and several seeds. `make accuracy` runs it from the top of the repository.
//
//	go run ./testnet/accuracy                          everything, for minutes; writes testnet/ACCURACY.md
//	go run ./testnet/accuracy --only cut --seeds 2     sections whose title has that word; prints them only
//	go run ./testnet/accuracy --seeds 20 --first 1001  with seeds that nobody has looked at before
//
// The same seeds give the same file, whatever the machine: nothing in it is measured by a clock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("accuracy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	s := committedSeeds
	flags.IntVar(&s.count, "seeds", s.count, "how many seeds a scenario is run with")
	flags.Uint64Var(&s.first, "first", s.first, "the first of them")
	only := flags.String("only", "",
		"a word of the titles of the sections to print, instead of writing all into the file")
	out := flags.String("out", "testnet/ACCURACY.md", "where everything is written")
	single := flags.Bool("one", false, "run the simulation whose options are on standard input, and print its report, "+
		"both in gob: for the process itself")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *single {
		return one(ctx, os.Stdin, stdout)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	if s.count < 1 {
		return fmt.Errorf("%d seeds: want at least 1", s.count)
	}
	d, err := open(*only)
	if err != nil {
		return err
	}
	if err := d.simulate(ctx, s, runtime.GOMAXPROCS(0), apart, stderr); err != nil {
		return err
	}
	if *only != "" {
		return d.write(stdout)
	}
	f, err := os.Create(*out)
	if err != nil {
		return err
	}
	return errors.Join(d.write(f), f.Close())
}
