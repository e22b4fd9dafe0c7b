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
	"io"
	"os"
	"time"

	"github.com/edgelimit/edgelimit/testnet/bench/rig"
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == "serve" { // as a child
		rig.Exit("doors", func(ctx context.Context) error {
			return serve(ctx, os.Args[2], os.Args[3], os.Stdin, os.Stdout)
		})
		return
	}
	p := rig.Program{Name: "doors", File: "DOORS.md", Measure: measureAll,
		Only: "measure only the protocol of this `NAME`"}
	p.Main()
}

// duration sets how long and how often to measure.
type duration struct {
	rounds int
	slice  time.Duration
	steady time.Duration // of the steady load
}

func measureAll(ctx context.Context, quick bool, only string, progress io.Writer) (string, error) {
	d := duration{rounds: 11, slice: time.Second, steady: 10 * time.Second}
	if quick {
		d = duration{rounds: 3, slice: 200 * time.Millisecond, steady: time.Second}
	}
	r, err := measure(ctx, d, only, progress)
	if err != nil {
		return "", err
	}
	return r.markdown(), nil
}
