package traffic

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/testnet/scrape"
)

// How often a balancer asks each node whether it is ready, and how long an answer may take. Within the sum it has
// noticed that a node is unready: a node that stops has to linger longer than that.
const (
	ReadyInterval = 100 * time.Millisecond
	ReadyTimeout  = 500 * time.Millisecond
)

// balancer polls the readiness of targets, and moves what is meant for one that is unready within its region, as a load
// balancer does. Its methods are safe for concurrent use.
type balancer struct {
	targets []Target
	unready []atomic.Bool
}

// startBalancer returns a balancer that has asked every target once, and goes on until stop.
func startBalancer(client *http.Client, targets []Target) (b *balancer, stop func()) {
	b = &balancer{targets: targets, unready: make([]atomic.Bool, len(targets))}
	ctx, cancel := context.WithCancel(context.Background())
	var asked, polling sync.WaitGroup
	asked.Add(len(targets))
	for i := range targets {
		polling.Go(func() {
			late := b.ask(ctx, client, i, false)
			asked.Done()
			ticker := time.NewTicker(ReadyInterval)
			defer ticker.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
					late = b.ask(ctx, client, i, late)
				}
			}
		})
	}
	asked.Wait()
	return b, func() { cancel(); polling.Wait() }
}

// ask finds out whether a target is ready, and returns whether its answer is late. One that is late once, which the
// machine may be to blame for, is as it was before.
func (b *balancer) ask(ctx context.Context, client *http.Client, i int, wasLate bool) (late bool) {
	ctx, cancel := context.WithTimeout(ctx, ReadyTimeout)
	defer cancel()
	why, err := scrape.NotReady(ctx, client, b.targets[i].Health)
	if late = errors.Is(err, context.DeadlineExceeded); !late || wasLate {
		b.unready[i].Store(err != nil || why != "")
	}
	return late
}

// pick returns the target if it is ready, or the next one of its region that is; without any, the target itself.
func (b *balancer) pick(target int) int {
	for i := range b.targets {
		at := (target + i) % len(b.targets)
		if b.targets[at].Region == b.targets[target].Region && !b.unready[at].Load() {
			return at
		}
	}
	return target
}
