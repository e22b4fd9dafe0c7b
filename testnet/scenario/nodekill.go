package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/testnet/load"
	"github.com/edgelimit/edgelimit/testnet/record"
)

func nodeKill() Scenario {
	c := new(nodeRun)
	s := nodeScenario("node-kill", "a node is killed under load and started again: at most one gossip interval of its counts is lost, and it begins with what the others know")
	s.Steps = []Step{
		wait("load in all regions", 8*time.Second),
		{"mark what the node has to know when it is back", markAll},
		{"kill " + faultNode, c.kill},
		wait("load without it", 3*time.Second),
		{"start it again", c.restart},
		wait("load after that", 3*time.Second),
	}
	s.Check = func(r *Run) {
		c.checkLoss(r)
		c.checkBack(r)
		r.Promise("it is warm before it is ready", c.first >= c.warm && c.warm > 0, fmt.Sprintf("it counts the %d of the others when it is first ready", c.warm), fmt.Sprint(c.first))
		c.checkSame(r)
	}
	return s
}

// checkLoss holds how far back the decisions reach that the killed node took with it: the last of its own client's, as counts are cumulative.
// Its tick may have been as late as anything else on this machine.
func (c *nodeRun) checkLoss(r *Run) {
	total := r.Admitted(r.ID("own"), "")
	lost := int(total - min(total, c.settled(r)))
	var answered []int64
	decisions, _ := r.recorded()
	for _, d := range decisions {
		if d.Allowed && d.Identity == r.ID("own") && d.Node == faultNode && d.Sent < c.ended.UnixNano() {
			answered = append(answered, d.Done)
		}
	}
	slices.Sort(answered)
	within := time.Duration(0)
	if n := len(answered); lost > n {
		within = time.Hour // more than it ever admitted
	} else if lost > 0 {
		within = time.Duration(answered[n-1] - answered[n-lost])
	}
	most := lossWithin + r.Pause
	r.Promise("what a killed node takes with it is of its last interval", within <= most && len(answered) > 0,
		fmt.Sprintf("of the last 100 ms, and of the %d ms by which this machine was late", r.Pause.Milliseconds()),
		fmt.Sprintf("%d of %d, of the last %d ms", lost, len(answered), within.Milliseconds()))
	r.Figure("lost", float64(lost))
	r.Figure("lost_ms", float64(within.Milliseconds()))
}

// markAll has something admitted that all nodes know of.
func markAll(ctx context.Context, r *Run) error { return r.Prime(ctx, r.Nodes[0].Name, r.ID("mark")) }

func (c *nodeRun) kill(ctx context.Context, r *Run) error {
	*c = nodeRun{began: time.Now()}
	err := r.Begin(ctx, record.Kill, faultNode, func(ctx context.Context) error { return r.Net.Kill(ctx, faultNode) },
		func(ctx context.Context) error { return r.Net.Restart(ctx, faultNode) })
	if err != nil {
		return err
	}
	if _, err := r.Counts(ctx, r.Nodes, r.rule.Name, r.ID("own")); err == nil {
		return fmt.Errorf("%s still answers: the kill did not take hold", faultNode)
	}
	c.ended = time.Now()
	r.Evidence("%s did not answer any more %.1f s after it was killed", faultNode, time.Since(c.began).Seconds())
	return nil
}

// restart starts the node again, and asks it what it counts as soon as it is ready.
func (c *nodeRun) restart(ctx context.Context, r *Run) error {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	first := make(chan uint64, 1)
	go func() { first <- r.firstCount(asking, faultNode, r.ID("mark")) }()
	began := time.Now()
	if err := r.End(ctx); err != nil {
		return err
	}
	c.took = time.Since(began)
	c.warm = primeCost
	select {
	case c.first = <-first:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("%s is back, but its door does not answer", faultNode)
	}
}

// firstCount is what a node counts of the identity when it is first ready.
func (r *Run) firstCount(ctx context.Context, name, identity string) uint64 {
	n := r.Node(name)
	for ctx.Err() == nil {
		if r.ready(ctx, n.Metrics) {
			if counts, err := load.Counts(ctx, r.client, targetOf(n), r.rule.Name, []string{identity}); err == nil {
				return counts[identity]
			}
		}
		_ = sleep(ctx, 5*time.Millisecond)
	}
	return 0
}
