package app

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/edgelimit/edgelimit/node"
)

// background runs f in a goroutine until the returned function is called, which closes ended and waits for f.
func background(f func(ended <-chan struct{})) (stop func()) {
	var running sync.WaitGroup
	ended := make(chan struct{})
	running.Go(func() { f(ended) })
	return func() {
		close(ended)
		running.Wait()
	}
}

// endLingerOnSignal ends the linger of n at the next signal after the one that ended ctx, until the returned function
// is called. The signal after that ends the process at once, as the second does without a linger.
func endLingerOnSignal(ctx context.Context, n *node.Node) (stop func()) {
	return background(func(ended <-chan struct{}) {
		select {
		case <-ended:
			return
		case <-ctx.Done():
		}
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(signals)
		select {
		case <-ended:
		case <-signals:
			n.EndLinger()
		}
	})
}

// reloadInterval is the shortest time between two reloads. SIGHUPs within it are merged into one.
const reloadInterval = 100 * time.Millisecond

// notifyHangups returns the channel of SIGHUPs. It is never stopped, because a SIGHUP must not end the process, not
// even while it exits.
func notifyHangups() <-chan os.Signal {
	hangups := make(chan os.Signal, 1024)
	signal.Notify(hangups, syscall.SIGHUP)
	return hangups
}

// onHangup calls reload after SIGHUPs, with their number, until the returned function is called.
func onHangup(hangups <-chan os.Signal, reload func(merged int)) (stop func()) {
	return background(func(ended <-chan struct{}) {
		for {
			select {
			case <-ended:
				return
			case <-hangups:
				merged := 1
				for ; len(hangups) > 0; merged++ { // nobody else receives
					<-hangups
				}
				reload(merged)
			}
			select {
			case <-ended:
				return
			case <-time.After(reloadInterval):
			}
		}
	})
}

// reload reads the rules and the kill switch of the configuration again. If the configuration is invalid, the switch
// stays as it is.
func reload(n *node.Node, read func() (node.Config, error), started node.Config, log *slog.Logger, merged int) {
	log.Info("hangup: reading the rules and the kill switch again", "merged", merged)
	n.Reload()
	cfg, err := read()
	if err != nil {
		log.Error("the configuration cannot be read, the kill switch stays as it is", "error", err)
		return
	}
	n.Shadow(cfg.Shadow)
	if cfg.Shadow = started.Shadow; !reflect.DeepEqual(cfg, started) {
		log.Warn("other settings of the configuration have changed: they take effect when the node is started again")
	}
}

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
	return background(func(ended <-chan struct{}) {
		ticker := time.NewTicker(connectionsInterval)
		defer ticker.Stop()
		for limit := int64(0); ; {
			if want := memoryLimit(budget, connections()); want != limit {
				limit = want
				debug.SetMemoryLimit(limit)
			}
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
		}
	})
}
