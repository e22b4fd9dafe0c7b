package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/edgelimit/edgelimit/testnet/load"
	"github.com/edgelimit/edgelimit/testnet/record"
)

// pauseFor is how long a paused node stands still.
const pauseFor = 10 * time.Second

func nodePause() Scenario {
	c := new(nodeRun)
	s := nodeScenario("pause", "a node stands still for 10 s (SIGSTOP) and goes on: it recovers, and the others never lose each other")
	// What is asked of the paused node waits for it, so that no answer is lost and every decision is known.
	s.Elsewhere, s.Timeout = false, pauseFor+20*time.Second
	s.Streams = []load.Stream{{Identity: "shared", Rate: 90}}
	s.Only = nil
	s.Steps = []Step{
		wait("load in all regions", 6*time.Second),
		{"pause " + faultNode, c.pause},
		wait("it stands still", pauseFor),
		{"let it go on", c.unpause},
		wait("load after that", 3*time.Second),
	}
	s.Check = func(r *Run) {
		r.Promise("it recovers", c.took <= rejoinWithin, "within 15 s", fmt.Sprintf("%.1f s", c.took.Seconds()))
		r.Figure("back_s", c.took.Seconds())
		least := len(r.Nodes)
		_, observations := r.recorded()
		for _, o := range observations {
			if o.Node != faultNode {
				least = min(least, o.Members)
			}
		}
		r.Promise("the others never lose each other", least >= len(r.Nodes)-2, fmt.Sprintf("at least %d members seen by each", len(r.Nodes)-2), fmt.Sprint(least))
	}
	return s
}

func (c *nodeRun) pause(ctx context.Context, r *Run) error {
	*c = nodeRun{began: time.Now()}
	err := r.Begin(ctx, record.Pause, faultNode, func(ctx context.Context) error { return r.Net.Pause(ctx, faultNode) },
		func(ctx context.Context) error { return r.Net.Unpause(ctx, faultNode) })
	if err != nil {
		return err
	}
	if r.ready(ctx, r.Node(faultNode).Metrics) {
		return errors.New("it still answers: the pause did not take hold")
	}
	r.Evidence("the process is stopped, and does not answer")
	return nil
}

func (c *nodeRun) unpause(ctx context.Context, r *Run) error {
	began := time.Now()
	if err := r.End(ctx); err != nil {
		return err
	}
	c.took = time.Since(began)
	return nil
}
