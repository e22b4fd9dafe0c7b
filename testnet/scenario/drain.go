package scenario

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/testnet/record"
)

func nodeDrain() Scenario {
	c := new(nodeRun)
	s := nodeScenario("drain", "a node is told to end under load (SIGTERM), clients ask elsewhere: no request in flight fails, and its counts are with the others and in Redis")
	s.Steps = []Step{
		wait("load in all regions", 8*time.Second),
		{"find the node's counts in Redis", c.findOrigin},
		{"tell " + faultNode + " to end", c.stop},
		wait("load without it", 4*time.Second),
		{"start it again", c.restartDrained},
		wait("load after that", 2*time.Second),
	}
	s.Check = c.checkDrained
	return s
}

func (c *nodeRun) stop(ctx context.Context, r *Run) error {
	*c = nodeRun{began: time.Now(), origin: c.origin}
	err := r.Begin(ctx, record.Stop, faultNode, func(ctx context.Context) error { return r.Net.Stop(ctx, faultNode) },
		func(ctx context.Context) error { return r.Net.Restart(ctx, faultNode) })
	c.ended = time.Now()
	c.took = c.ended.Sub(c.began)
	if err == nil && r.ready(ctx, r.Node(faultNode).Metrics) {
		err = fmt.Errorf("%s still answers: it was not told to end", faultNode)
	}
	if err == nil {
		r.Evidence("%s ended by itself, with exit status 0, after %.1f s", faultNode, c.took.Seconds())
	}
	return err
}

// findOrigin looks under which origin the Redis of its region has what the node alone was asked for.
func (c *nodeRun) findOrigin(ctx context.Context, r *Run) error {
	counts, err := r.Net.RedisCounts(ctx, faultRegion, r.rule, r.ID("own"))
	if err != nil {
		return err
	}
	origins := slices.Collect(maps.Keys(counts))
	if len(origins) != 1 {
		return fmt.Errorf("the Redis of %s has what only %s was asked for from %d origins, want one: %v", faultRegion, faultNode, len(origins), counts)
	}
	c.origin = origins[0]
	return nil
}

// restartDrained looks what Redis holds of the node while it is away, and starts it again.
func (c *nodeRun) restartDrained(ctx context.Context, r *Run) error {
	c.admitted = r.Admitted(r.ID("own"), faultNode)
	counts, err := r.Net.RedisCounts(ctx, faultRegion, r.rule, r.ID("own"))
	if err != nil {
		return err
	}
	c.held = counts[c.origin]
	said, err := r.Net.Said(ctx, faultNode)
	if err != nil {
		return err
	}
	c.stopping = lastSaid(said, "stopping")
	return r.End(ctx)
}

// lastSaid is when a node last logged the message: between the signal and its effect. The zero time: never.
func lastSaid(log, message string) (at time.Time) {
	for line := range strings.Lines(log) {
		if stamp, rest, ok := strings.Cut(strings.TrimPrefix(line, "time="), " "); ok && strings.Contains(rest, "msg="+message+" ") {
			if t, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
				at = t
			}
		}
	}
	return at
}

func (c *nodeRun) checkDrained(r *Run) {
	inFlight, lost := 0, 0
	if c.stopping.IsZero() {
		r.Promise("it says when it begins to end", false, "a line with msg=stopping", "none")
	}
	decisions, _ := r.recorded()
	for _, d := range decisions {
		if d.Error == "" || d.Node != faultNode {
			continue
		}
		lost++
		if d.Sent < c.stopping.UnixNano() {
			inFlight++
		}
	}
	r.Promise("no request in flight fails", inFlight == 0 && r.Load.Failed == 0, "0", fmt.Sprintf("%d in flight, %d anywhere", inFlight, r.Load.Failed))
	r.Figure("asked_elsewhere", float64(lost))
	r.Promise("it ends", c.took <= drainWithin, "within 10 s", fmt.Sprintf("%.1f s", c.took.Seconds()))
	r.Figure("drain_s", c.took.Seconds())
	total := r.Admitted(r.ID("own"), "")
	gone := total - min(total, c.settled(r))
	r.Promise("its counts are with the others", float64(gone) <= drainLoss*float64(c.admitted), fmt.Sprintf("at least 99.9 %% of its %d", c.admitted), fmt.Sprintf("%d lost", gone))
	r.Promise("its counts are in Redis", float64(c.held) >= (1-drainLoss)*float64(c.admitted), fmt.Sprintf("at least 99.9 %% of its %d", c.admitted), fmt.Sprint(c.held))
	r.Figure("drain_lost", float64(gone))
	c.checkSame(r)
}
