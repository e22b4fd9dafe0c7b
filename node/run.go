package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Run serves until ctx ends or a part fails, and then stops in order: unready, doors drained, the last counts told to the peers and
// to the store, left. It returns nil after a stop that ctx asked for. It may be called once.
func (n *Node) Run(ctx context.Context) error {
	asked := ctx
	ctx, stop := context.WithCancelCause(asked)
	defer stop(nil)
	fail := func(part string, err error) {
		if err != nil && !errors.Is(err, http.ErrServerClosed) {
			stop(fmt.Errorf("%s: %w", part, err))
		}
	}

	clock := start(func(ctx context.Context) { fail("clock", n.clock.Run(ctx)) })
	defer clock.stop()
	health := n.serve(n.health, fail)
	gossip := start(func(ctx context.Context) { fail("gossip", n.cluster.Run(ctx)) })
	n.warm(ctx)
	audit := start(func(ctx context.Context) { n.watch(ctx) })
	files := start(n.watchRules)
	pressure := start(n.watchPressure)
	store := start(n.reconcile)
	doors := []*serving{n.serve(n.http, fail), n.serve(n.grpc, fail), n.serve(n.resp, fail)}
	n.ready.Store(true)
	n.log.Info("ready", "http", n.Addr("http"), "grpc", n.Addr("grpc"), "resp", n.Addr("resp"), "health", n.Addr("health"),
		"gossip", n.Addr("lan"), "gossip_wan", n.Addr("wan"), "rules", len(n.policy.Load().set.Rules()))

	<-ctx.Done()
	n.ready.Store(false)
	n.log.Info("stopping")
	var drained sync.WaitGroup
	for _, d := range doors {
		drained.Go(func() { d.stop(min(lingerFor, n.cfg.Drain), n.cfg.Drain) })
	}
	drained.Wait()
	files.stop()
	audit.stop()
	pressure.stop()
	gossip.stop() // its last tick offers the last counts to the store
	store.stop()
	n.closeStore()
	health.stop(0, 500*time.Millisecond)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Cause(asked)) {
		return cause
	}
	return nil
}

// lingerFor is how long the doors go on serving after the node has become unready: far longer than a request takes from a client that
// has not heard of it yet, and little of the ten seconds that a node has to end.
const lingerFor = 250 * time.Millisecond

// warmWithin is how long a node that starts waits for what the regional store and its peers know, before it serves without that.
const warmWithin = 3 * time.Second

// warm takes over what is counted elsewhere, so that a node which starts again does not begin at zero.
func (n *Node) warm(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, warmWithin)
	defer cancel()
	var sources sync.WaitGroup
	sources.Go(func() {
		if err := n.cluster.Warm(ctx); err != nil {
			n.log.Warn("starting without some of the peers; what they count comes when they do", "error", err)
		}
	})
	if n.reconciler != nil {
		sources.Go(func() {
			if err := n.reconciler.Warm(ctx); err != nil {
				n.log.Warn("the regional store could not be read, starting without it", "error", err)
			}
		})
	}
	sources.Wait()
}

func (n *Node) reconcile(ctx context.Context) {
	if n.reconciler == nil {
		return
	}
	if err := n.reconciler.Run(ctx); err != nil {
		n.log.Warn("the regional store did not take the last counts", "error", err)
	}
}

// part is something of the node's that runs until it is stopped.
type part struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func start(run func(context.Context)) *part {
	ctx, cancel := context.WithCancel(context.Background())
	p := &part{cancel: cancel}
	p.done.Go(func() { run(ctx) })
	return p
}

func (p *part) stop() {
	p.cancel()
	p.done.Wait()
}
