// Command doors measures what each door of a node costs: the processor time of the server for a check, as a multiple of that of a bare
// server of the same protocol, which decodes the same requests and returns the same answers without deciding; and how long a check takes
// under a steady load.
//
//	go run ./doors           some three minutes; writes DOORS.md
//	go run ./doors --quick   short slices; writes nothing
//
// Node and bare server are processes of their own, with the same settings for garbage collection, and are asked in turns, a slice each,
// round after round; a ratio is the median of those within the rounds, so that a machine that is busy for a while disturbs both alike. Their
// time is what the system says that the process used, on both sides of the system call.
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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "doors:", err)
		os.Exit(1)
	}
}

// pace is how long and how often is measured.
type pace struct {
	rounds int
	slice  time.Duration
	steady time.Duration // of the steady load
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 2 && args[0] == "serve" { // as a child
		return serve(ctx, args[1], os.Stdin, stdout)
	}
	flags := flag.NewFlagSet("doors", flag.ContinueOnError)
	flags.SetOutput(stderr)
	quick := flags.Bool("quick", false, "short slices, fewer rounds; DOORS.md stays as it is")
	only := flags.String("only", "", "measure only the protocol of this `NAME`; DOORS.md stays as it is")
	asJSON := flags.Bool("json", false, "print JSON instead of tables")
	out := flags.String("out", "DOORS.md", "`FILE` for the tables of a whole run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	p := pace{rounds: 11, slice: time.Second, steady: 10 * time.Second}
	if *quick {
		p = pace{rounds: 3, slice: 200 * time.Millisecond, steady: time.Second}
	}
	r, err := measure(ctx, p, *only, stderr)
	if err != nil {
		return err
	}
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(r)
	} else {
		err = r.write(stdout)
	}
	if err != nil || *quick || *only != "" {
		return err
	}
	f, err := os.Create(*out)
	if err != nil {
		return err
	}
	return errors.Join(r.write(f), f.Close())
}
