// Command doors measures the cost of each API of a node: the CPU time of the server per check, as a multiple of that of
// a bare server of the same protocol, which decodes the same requests and returns the same answers without deciding;
// and the latency of a check under a steady load.
//
//	go run ./doors           some four minutes; writes DOORS.md
//	go run ./doors --quick   short slices; prints the report
//
// Node and bare server are processes with the same garbage collector settings. The clients load them in turns, a slice
// each, round after round. A ratio is the median of the ratios within the rounds, so that a busy machine slows both
// down alike. The CPU time is the user and system time of the server process.
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

func main() { rig.Main("doors", run) }

// duration sets how long and how often to measure.
type duration struct {
	rounds int
	slice  time.Duration
	steady time.Duration // of the steady load
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 3 && args[0] == "serve" { // as a child
		return serve(ctx, args[1], args[2], os.Stdin, stdout)
	}
	flags := flag.NewFlagSet("doors", flag.ContinueOnError)
	flags.SetOutput(stderr)
	quick := flags.Bool("quick", false, "short slices, fewer rounds; print the report instead of writing DOORS.md")
	only := flags.String("only", "", "measure only the protocol of this `NAME`; print the report")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	d := duration{rounds: 11, slice: time.Second, steady: 10 * time.Second}
	if *quick {
		d = duration{rounds: 3, slice: 200 * time.Millisecond, steady: time.Second}
	}
	r, err := measure(ctx, d, *only, stderr)
	if err != nil {
		return err
	}
	if *quick || *only != "" {
		_, err = io.WriteString(stdout, r.markdown())
		return err
	}
	return os.WriteFile("DOORS.md", []byte(r.markdown()), 0o644)
}
