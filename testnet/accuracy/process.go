package main

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/edgelimit/edgelimit/testnet/sim"
)

// apartFrom is the number of nodes from which a simulation gets a process of its own. Tables hardly touch their memory,
// but in a process that simulated others before, it has to be cleared first: 1,500 nodes would take 20 GB.
const apartFrom = 200

// apart is sim.Run, in a process of its own where there are many nodes. It reports no progress.
func apart(ctx context.Context, o sim.Options, progress func(time.Duration)) (*sim.Report, error) {
	if o.Total() < apartFrom {
		return sim.Run(ctx, o, progress)
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var in, out bytes.Buffer
	if err := gob.NewEncoder(&in).Encode(o); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "--one")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("a simulation of %d nodes: %w", o.Total(), err)
	}
	r := new(sim.Report)
	return r, gob.NewDecoder(&out).Decode(r)
}

// one runs the simulation whose options in holds, and writes its report.
func one(ctx context.Context, in io.Reader, out io.Writer) error {
	var o sim.Options
	if err := gob.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	sim.CollectSoon()
	r, err := sim.Run(ctx, o, nil)
	if err != nil {
		return err
	}
	return gob.NewEncoder(out).Encode(r)
}
