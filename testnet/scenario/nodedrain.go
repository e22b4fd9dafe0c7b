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

// drainWithin bounds the time from SIGTERM to the end of the process. maxDrainLoss is the part of its counts that a
// node may take with it when it ends in order.
const (
	drainWithin  = 10 * time.Second
	maxDrainLoss = 0.001
)

func nodeDrain() Scenario {
	c := new(nodeRun)
	return nodeScenario("drain", "a node gets SIGTERM under load, clients ask elsewhere: no request in flight fails, "+
		"and its counts are with the others and in Redis",
		c.checkDrained,
		wait("load in all regions", 8*time.Second),
		Step{"find the node's counts in Redis", c.findOrigin},
		Step{"stop " + faultNode, c.stop},
		wait("load without it", 4*time.Second),
		Step{"start it again", c.restartDrained},
		wait("load after that", 2*time.Second))
}

// findOrigin finds the origin of the node's own client in the Redis of its region.
func (c *nodeRun) findOrigin(ctx context.Context, r *Run) error {
	counts, err := r.Cluster.RedisCounts(ctx, faultRegion, r.rule, r.ID("own"))
	if err != nil {
		return err
	}
	origins := slices.Collect(maps.Keys(counts))
	if len(origins) != 1 {
		return fmt.Errorf("the Redis of %s has the counts that only %s admitted from %d origins, want one: %v",
			faultRegion, faultNode, len(origins), counts)
	}
	c.origin = origins[0]
	return nil
}

func (c *nodeRun) stop(ctx context.Context, r *Run) error {
	*c = nodeRun{began: time.Now(), origin: c.origin}
	err := r.Begin(ctx, record.Stop, faultNode, r.Cluster.Stop, r.Cluster.Restart)
	c.ended = time.Now()
	c.took = c.ended.Sub(c.began)
	if err == nil && r.ready(ctx, r.Node(faultNode)) {
		err = fmt.Errorf("%s still answers: it was not stopped", faultNode)
	}
	if err == nil {
		r.Observed("%s ended by itself, with exit status 0, after %.1f s", faultNode, c.took.Seconds())
	}
	return err
}

// restartDrained reads what Redis holds of the node while it is away, and starts it again.
func (c *nodeRun) restartDrained(ctx context.Context, r *Run) error {
	c.admitted = r.Admitted(r.ID("own"), faultNode)
	counts, err := r.Cluster.RedisCounts(ctx, faultRegion, r.rule, r.ID("own"))
	if err != nil {
		return err
	}
	c.inRedis = counts[c.origin]
	logs, err := r.Cluster.Logs(ctx, faultNode)
	if err != nil {
		return err
	}
	c.stopping = lastLogged(logs, "stopping")
	return r.End(ctx)
}

// lastLogged returns when a node last logged the message; the zero time: never.
func lastLogged(log, message string) (at time.Time) {
	for line := range strings.Lines(log) {
		stamp, rest, ok := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		if ok && strings.Contains(rest, "msg="+message+" ") {
			if t, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
				at = t
			}
		}
	}
	return at
}

func (c *nodeRun) checkDrained(r *Run) {
	if c.stopping.IsZero() {
		r.Assert("it logs when it begins to stop", false, "a line with msg=stopping", "none")
	}
	inFlight, unanswered := 0, 0
	decisions, _ := r.recorded()
	for _, d := range decisions {
		if d.Error == "" || d.Node != faultNode {
			continue
		}
		unanswered++
		if d.Sent < c.stopping.UnixNano() {
			inFlight++
		}
	}
	r.Assert("no request in flight fails", inFlight == 0 && r.Load.Failed == 0, "0", "%d in flight, %d anywhere",
		inFlight, r.Load.Failed)
	r.Figure("asked_elsewhere", float64(unanswered))
	r.AssertWithin("it ends", "drain_s", c.took, drainWithin)
	total := r.Admitted(r.ID("own"), "")
	lost := total - min(total, c.maxOwn(r))
	want := fmt.Sprintf("at least 99.9 %% of its %d", c.admitted)
	r.Assert("its counts are with the others", float64(lost) <= maxDrainLoss*float64(c.admitted), want, "%d lost", lost)
	r.Assert("its counts are in Redis", float64(c.inRedis) >= (1-maxDrainLoss)*float64(c.admitted), want, "%d",
		c.inRedis)
	r.Figure("drain_lost", float64(lost))
	c.checkSame(r)
}
