package app

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

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
func reload(c *cli.Context, n *node.Node, started node.Config, log *slog.Logger, merged int) {
	log.Info("hangup: reading the rules and the kill switch again", "merged", merged)
	n.Reload()
	cfg, err := serveConfig(c)
	if err != nil {
		log.Error("the configuration cannot be read, the kill switch stays as it is", "error", err)
		return
	}
	n.Shadow(cfg.Shadow)
	if cfg.Shadow = started.Shadow; !reflect.DeepEqual(cfg, started) {
		log.Warn("other settings of the configuration have changed: they take effect when the node is started again")
	}
}
