package multiregion

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/edgelimit/edgelimit/testnet/docker"
)

// NodeStatus is a node, and what it says of itself.
type NodeStatus struct {
	Node
	Observation
	// Deaf tells that a one-way cut drops what other regions send it.
	Deaf bool
	// Err is why there is no observation.
	Err error
}

// RedisStatus is a Redis and how it answers.
type RedisStatus struct {
	Redis
	// Err is why it does not.
	Err error
}

// Status asks everybody how they are.
func (t *Testnet) Status(ctx context.Context) ([]NodeStatus, []RedisStatus, error) {
	v, err := t.look(ctx)
	if err != nil {
		return nil, nil, err
	}
	redises, err := t.Redises(ctx)
	if err != nil {
		return nil, nil, err
	}
	nodes, stores := make([]NodeStatus, len(v)), make([]RedisStatus, len(redises))
	var asking sync.WaitGroup
	for i, s := range v {
		nodes[i] = NodeStatus{Node: s.Node, Observation: s.Observation, Err: s.err}
		asking.Go(func() {
			if rules, err := t.deafness(ctx, s.Node); err == nil {
				nodes[i].Deaf = rules != ""
			}
			if s.err != nil && s.Running() && t.paused(ctx, s.container) {
				nodes[i].Err = errPaused
			}
		})
	}
	for i, r := range redises {
		stores[i].Redis = r
		asking.Go(func() { stores[i].Err = t.redisTrouble(ctx, r) })
	}
	asking.Wait()
	return nodes, stores, nil
}

var errPaused = errors.New("no answer: it is paused")

func (t *Testnet) redisTrouble(ctx context.Context, r Redis) error {
	switch {
	case !r.container.Running():
		return fmt.Errorf("it is not running (%s)", r.State)
	case t.paused(ctx, r.container): // or the question would hang
		return errPaused
	}
	out, err := t.redis(ctx, r.container, "PING")
	if err == nil && out != "PONG" {
		err = fmt.Errorf("it answers %q to PING", out)
	}
	return err
}

func (t *Testnet) paused(ctx context.Context, c docker.Container) bool {
	stopped, err := t.engine.Stopped(ctx, &c)
	return err == nil && stopped
}
