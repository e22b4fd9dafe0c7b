package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/testnet/load"
	"github.com/edgelimit/edgelimit/testnet/record"
)

// What a node that comes back, and one that ends, has to do.
const (
	rejoinWithin = 15 * time.Second
	drainWithin  = 10 * time.Second
	// drainLoss is the part of its counts that a node may take with it when it ends in order.
	drainLoss = 0.001
	// lossWithin is how much of a killed node's decisions may be lost: those of one gossip interval.
	lossWithin = 100 * time.Millisecond
)

// ownRate is what the node that is harmed is asked for one client that nobody else is asked for, so that what it alone knows is told
// from what the others know.
const ownRate = 100

// nodeRun is what a run with a fault of a node finds out.
type nodeRun struct {
	began, ended time.Time
	took         time.Duration // to end, or to be together again
	admitted     uint64        // by the node for its own client, when it had ended
	stopping     time.Time     // when it said that it ends
	origin       string        // the node's, in the Redis of its region
	held         uint64        // by the Redis of its region of that
	first        uint64        // what it counted when it was first ready again
	warm         uint64        // what it should have
	conflicts    int
}

// nodeScenario is what the scenarios with a fault of a node have in common.
func nodeScenario(name, what string) Scenario {
	return Scenario{
		Name: name, What: what, Rule: accounts, Elsewhere: true, Takes: 45 * time.Second,
		Streams: []load.Stream{{Identity: "own", Rate: ownRate, Spacing: load.Even}, {Identity: "shared", Rate: 60}},
		Only:    map[string]string{"own": faultNode},
	}
}

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

// settled is the most that a node counts of the own client now that all is quiet.
func (c *nodeRun) settled(r *Run) (most uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	counts, err := r.Counts(ctx, r.Nodes, r.rule.Name, r.ID("own"))
	if err != nil {
		return 0
	}
	for _, n := range counts {
		most = max(most, n)
	}
	return most
}

// checkSame holds that all nodes count the same in the end.
func (c *nodeRun) checkSame(r *Run) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, name := range []string{"own", "shared"} {
		counts, err := r.Counts(ctx, r.Nodes, r.rule.Name, r.ID(name))
		least, most := uint64(1<<63), uint64(0)
		for _, n := range counts {
			least, most = min(least, n), max(most, n)
		}
		r.Promise("in the end all nodes count the same of "+name, err == nil && least == most, "one count", fmt.Sprintf("%v %v", counts, errorText(err)))
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (c *nodeRun) checkBack(r *Run) {
	r.Promise("it is together with the others again", c.took <= rejoinWithin, "within 15 s", fmt.Sprintf("%.1f s", c.took.Seconds()))
	r.Figure("back_s", c.took.Seconds())
}

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

func (r *Run) ready(ctx context.Context, metrics string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, metrics+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func nodeMove() Scenario {
	c := new(nodeRun)
	s := nodeScenario("node-restart-new-address", "a node leaves under load and comes back at another address: the others take it for the same node")
	s.Steps = []Step{
		wait("load in all regions", 6*time.Second),
		{"restart " + faultNode + " at another address", c.move},
		wait("load after that", 3*time.Second),
	}
	s.Check = func(r *Run) {
		c.checkBack(r)
		r.Promise("nobody takes it for two nodes", c.conflicts == 0, "no conflict in any log", fmt.Sprintf("%d lines of conflicts", c.conflicts))
		c.checkSame(r)
	}
	return s
}

func (c *nodeRun) move(ctx context.Context, r *Run) error {
	*c = nodeRun{began: time.Now()}
	before := r.Node(faultNode).WAN
	// To end in order and to start elsewhere are one thing to the engine, and one fault in the record.
	err := r.Begin(ctx, record.Stop, faultNode, func(ctx context.Context) error {
		moved, err := r.Net.Move(ctx, faultNode)
		if err == nil && moved.WAN == before {
			err = fmt.Errorf("it is still at %s", before)
		}
		if err == nil {
			r.Evidence("%s was at %s and is at %s", faultNode, before, moved.WAN)
		}
		return err
	}, func(context.Context) error { return nil })
	if err != nil {
		return err
	}
	c.took = time.Since(c.began)
	if err := r.End(ctx); err != nil {
		return err
	}
	for _, n := range r.Nodes {
		said, err := r.Net.Said(ctx, n.Name)
		if err != nil {
			return err
		}
		for line := range strings.Lines(said) {
			if strings.Contains(strings.ToLower(line), "conflict") {
				c.conflicts++
				r.say("  %s: %s", n.Name, strings.TrimSpace(line))
			}
		}
	}
	return nil
}

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
