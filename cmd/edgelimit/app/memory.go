package app

import (
	"os"
	"runtime/debug"
	"time"

	"github.com/edgelimit/edgelimit/node"
)

const (
	// perConnection is the memory of an idle connection in bytes, buffers and stack.
	perConnection = 24 << 10
	// connectionStep is the step in connections by which the limit changes, because each change stops the process for a
	// moment. The 96 MiB have room for fewer.
	connectionStep = 256
	// connectionsInterval is the time between two looks at the number of connections.
	connectionsInterval = time.Second
)

// memoryLimit returns the soft memory limit in bytes, garbage included:
//
//	budget of the counters * 1.1 + 96 MiB + connections * 24 KiB
func memoryLimit(budget node.Size, connections int) int64 {
	return int64(budget) + int64(budget)/10 + 96<<20 + int64(connections/connectionStep*connectionStep*perConnection)
}

// limitMemory sets the process's soft memory limit by the number of connections until the returned function is called,
// unless GOMEMLIMIT is set. Without a limit the garbage would grow to the size of the counters, which are all alive. A
// limit for the maximum of connections would let it grow by hundreds of MiB where there are few.
func limitMemory(budget node.Size, connections func() int) (stop func()) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	limit := memoryLimit(budget, connections())
	debug.SetMemoryLimit(limit)
	return background(func(ended <-chan struct{}) {
		ticker := time.NewTicker(connectionsInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			if want := memoryLimit(budget, connections()); want != limit {
				limit = want
				debug.SetMemoryLimit(limit)
			}
		}
	})
}
