package main

import (
	"context"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/node"
)

const (
	// perConnection is about what a connection takes, in bytes, buffers and stack; more while it asks for something.
	perConnection = 24 << 10
	// connectionStep is in how many connections the limit of memory changes: each change stops the process for a moment. The 96 MiB have room
	// for fewer.
	connectionStep = 256
	// followEvery is how often the connections are looked at.
	followEvery = time.Second
)

// memoryLimit is what the process may take by the budget of the counters and the connections that there are: garbage in between.
func memoryLimit(budget node.Size, connections int) int64 {
	return int64(budget) + int64(budget)/10 + 96<<20 + int64(connections/connectionStep*connectionStep*perConnection)
}

// limitMemory sets a soft limit for the whole process by the budget of the counters, and has it follow the connections until the function
// that it returns is called, unless the user has set one. Without it the garbage collector would let garbage grow to the size of the
// counters, which are all alive; one for all connections that there may be would let it grow by hundreds of MiB where there are few.
func limitMemory(budget node.Size, connections func() int) (stop func()) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	set := memoryLimit(budget, connections())
	debug.SetMemoryLimit(set)
	following.Go(func() {
		ticker := time.NewTicker(followEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if want := memoryLimit(budget, connections()); want != set {
				set = want
				debug.SetMemoryLimit(set)
			}
		}
	})
	return func() {
		cancel()
		following.Wait()
	}
}
