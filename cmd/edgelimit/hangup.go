package main

import (
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"sync"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
)

// notifyHangups returns where SIGHUPs arrive from now on. They are never given back: none is to end the process, at its very end neither.
func notifyHangups() <-chan os.Signal {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return hangups
}

// obey calls reload for each hangup, until the returned function is called.
func obey(hangups <-chan os.Signal, reload func()) (stop func()) {
	var obeying sync.WaitGroup
	ended := make(chan struct{})
	obeying.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-hangups:
				reload()
			}
		}
	})
	return func() {
		close(ended)
		obeying.Wait()
	}
}

// reload reads again what a running node takes in: its rules, and the kill switch of its configuration. Where the configuration cannot be
// read, the switch stays as it is.
func reload(c *cli.Context, n *node.Node, started node.Config, log *slog.Logger) {
	log.Info("hangup: reading the rules and the kill switch again")
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
