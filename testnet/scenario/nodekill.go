package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// lossWithin bounds the age of the decisions that a killed node takes with it: one gossip interval, and the time that
// an answer and a last frame may be under way on this machine.
const lossWithin = 100*time.Millisecond + 50*time.Millisecond

func nodeKill() Scenario {
	c := new(nodeRun)
	return nodeScenario("node-kill", "a node is killed under load and started again: at most one gossip interval of "+
		"its counts is lost, and it begins with what the others know",
		func(r *Run) {
			c.checkLoss(r)
			c.checkBack(r)
			r.Assert("it is warm before it is ready", c.first >= primeCost,
				fmt.Sprintf("it counts the %d of the others when it is first ready", primeCost), "%d", c.first)
			c.checkSame(r)
		},
		wait("load in all regions", 8*time.Second),
		Step{"admit what the node has to count when it is back", func(ctx context.Context, r *Run) error {
			return r.Prime(ctx, r.Nodes[0].Name, r.ID("mark"))
		}},
		Step{"kill " + faultNode, c.kill},
		wait("load without it", 3*time.Second),
		Step{"start it again", c.restart},
		wait("load after that", 3*time.Second))
}

// checkLoss asserts the age of the decisions that the killed node took with it. Counts are cumulative, so these are the
// last of its own client.
func (c *nodeRun) checkLoss(r *Run) {
	total := r.Admitted(r.ID("own"), "")
	lost := int(total - min(total, c.maxOwn(r)))
	var answered []int64
	decisions, _ := r.recorded()
	for _, d := range decisions {
		if d.Allowed && d.Identity == r.ID("own") && d.Node == faultNode && d.Sent < c.ended.UnixNano() {
			answered = append(answered, d.Done)
		}
	}
	slices.Sort(answered)
	age := time.Duration(0)
	if n := len(answered); lost > n {
		age = time.Hour // more than it ever admitted
	} else if lost > 0 {
		age = time.Duration(answered[n-1] - answered[n-lost])
	}
	r.Assert("what a killed node takes with it is of its last interval", age <= lossWithin && len(answered) > 0,
		fmt.Sprintf("of the last %d ms", lossWithin.Milliseconds()), "%d of %d, of the last %d ms", lost, len(answered),
		age.Milliseconds())
	r.Figure("lost", float64(lost))
	r.Figure("lost_ms", float64(age.Milliseconds()))
}

func (c *nodeRun) kill(ctx context.Context, r *Run) error {
	*c = nodeRun{began: time.Now()}
	if err := r.Begin(ctx, record.Kill, faultNode, r.Cluster.Kill, r.Cluster.Restart); err != nil {
		return err
	}
	if _, err := r.Counts(ctx, r.rule.Name, r.ID("own")); err == nil {
		return fmt.Errorf("%s still answers: the kill did not take hold", faultNode)
	}
	c.ended = time.Now()
	r.Observed("%s did not answer any more %.1f s after it was killed", faultNode, time.Since(c.began).Seconds())
	return nil
}

// restart starts the node again and reads its count as soon as it is ready.
func (c *nodeRun) restart(ctx context.Context, r *Run) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	first := make(chan uint64, 1)
	go func() { first <- r.firstCount(reading, faultNode, r.ID("mark")) }()
	began := time.Now()
	if err := r.End(ctx); err != nil {
		return err
	}
	c.took = time.Since(began)
	select {
	case c.first = <-first:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("%s is back, but its HTTP API does not answer", faultNode)
	}
}

// firstCount returns what a node counts of the identity when it is first ready.
func (r *Run) firstCount(ctx context.Context, name, identity string) uint64 {
	n := r.Node(name)
	for ctx.Err() == nil {
		if r.ready(ctx, n) {
			if counts, err := traffic.Counts(ctx, r.client, targetOf(n), r.rule.Name, []string{identity}); err == nil {
				return counts[identity]
			}
		}
		_ = sleep(ctx, 5*time.Millisecond)
	}
	return 0
}
