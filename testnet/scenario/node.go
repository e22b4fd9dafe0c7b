package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

const (
	// ownRate is the rate of a client that only the harmed node serves: its counts are that node's.
	ownRate = 100

	// rejoinWithin bounds the time from a node's return to frames from and to all others.
	rejoinWithin = 15 * time.Second

	// drainWithin bounds the time from SIGTERM to the end of the process. maxDrainLoss is the part of its counts that a
	// node may take with it when it ends in order.
	drainWithin  = 10 * time.Second
	maxDrainLoss = 0.001

	// lossWithin bounds the age of the decisions that a killed node takes with it: one gossip interval, and the time
	// that an answer and a last frame may be under way on this machine.
	lossWithin = 100*time.Millisecond + 50*time.Millisecond

	// pauseTime is how long a paused node is stopped.
	pauseTime = 10 * time.Second
)

// nodeFault is what a run with a fault of a node measures.
type nodeFault struct {
	ended     time.Time     // when it had taken hold
	took      time.Duration // to end, or to be back
	admitted  uint64        // by the node for its own client until it ended
	stopping  time.Time     // when it logged that it stops
	origin    string        // the node's, in the Redis of its region
	inRedis   uint64        // of what the node admitted
	first     uint64        // what it counted when it was first ready again
	conflicts int           // log lines about a name conflict
}

// nodeScenario returns what the scenarios with a fault of a node have in common.
func nodeScenario(name, what string, check func(r *Run), steps ...Step) Scenario {
	return Scenario{
		Name: name, What: what, Rule: accountRule, Elsewhere: true, Takes: 45 * time.Second,
		Streams: []traffic.Stream{{Identity: "own", Rate: ownRate, Spacing: traffic.Even},
			{Identity: "shared", Rate: 60}},
		Only:  map[string]string{"own": faultNode},
		Steps: steps, Check: check,
	}
}

func nodeKill() Scenario {
	return nodeScenario("node-kill", "a node is killed under load and started again: at most one gossip interval of "+
		"its counts is lost, and it begins with what the others know",
		func(r *Run) {
			checkLoss(r)
			checkBack(r)
			r.Assert("it is warm before it is ready", r.node.first >= primeCost,
				fmt.Sprintf("it counts the %d of the others when it is first ready", primeCost), "%d", r.node.first)
			checkSame(r)
		},
		wait("load in all regions", 8*time.Second),
		Step{"admit what the node has to count when it is back", func(ctx context.Context, r *Run) error {
			return r.Prime(ctx, r.Nodes[0].Name, r.ID("mark"), primeCost)
		}},
		harm("kill "+faultNode, record.Kill, Cluster.Kill, Cluster.Restart,
			faultNode+" did not answer any more %.1f s after it was killed"),
		wait("load without it", 3*time.Second),
		Step{"start it again", restartKilled},
		wait("load after that", 3*time.Second))
}

func nodeDrain() Scenario {
	return nodeScenario("drain", "a node gets SIGTERM under load, clients ask elsewhere: no request in flight fails, "+
		"and its counts are with the others and in Redis",
		checkDrained,
		wait("load in all regions", 8*time.Second),
		Step{"find the node's counts in Redis", findOrigin},
		harm("stop "+faultNode, record.Stop, Cluster.Stop, Cluster.Restart,
			faultNode+" ended by itself, with exit status 0, after %.1f s"),
		wait("load without it", 4*time.Second),
		Step{"start it again", restartDrained},
		wait("load after that", 2*time.Second))
}

func nodeMove() Scenario {
	return nodeScenario("node-restart-new-address",
		"a node leaves under load and comes back at another address: the others take it for the same node",
		func(r *Run) {
			checkBack(r)
			r.Assert("no node takes it for two nodes", r.node.conflicts == 0, "no conflict in any log",
				"%d lines of conflicts", r.node.conflicts)
			checkSame(r)
		},
		wait("load in all regions", 6*time.Second),
		Step{"restart " + faultNode + " at another address", move},
		wait("load after that", 3*time.Second))
}

func nodePause() Scenario {
	s := nodeScenario("pause",
		"a node stands still for 10 s (SIGSTOP) and goes on: it recovers, and the others never lose each other",
		func(r *Run) {
			r.AssertWithin("it recovers", "back_s", r.node.took, rejoinWithin)
			lowest, want := len(r.Nodes), len(r.Nodes)-2
			for _, o := range r.record.observations {
				if o.Node != faultNode {
					lowest = min(lowest, o.Members)
				}
			}
			r.Assert("the others never lose each other", lowest >= want,
				fmt.Sprintf("at least %d members seen by each", want), "%d", lowest)
		},
		wait("load in all regions", 6*time.Second),
		harm("pause "+faultNode, record.Pause, Cluster.Pause, Cluster.Unpause,
			"the process is stopped, and does not answer, after %.1f s"),
		wait("it stands still", pauseTime),
		Step{"let it go on", endTimed},
		wait("load after that", 3*time.Second))
	// Requests to the paused node wait for it, so that no answer is lost and every decision is known.
	s.Elsewhere, s.Timeout = false, pauseTime+20*time.Second
	s.Streams, s.Only = []traffic.Stream{{Identity: "shared", Rate: 90}}, nil
	return s
}

// harm is a step that injects a fault of the node, which must not be ready afterwards. observed has a place for the
// seconds that the fault took.
func harm(what, name string, do, undo action, observed string) Step {
	return Step{what, func(ctx context.Context, r *Run) error {
		began := time.Now()
		if err := r.Begin(ctx, name, faultNode, do, undo); err != nil {
			return err
		}
		r.node.ended = time.Now()
		r.node.took = r.node.ended.Sub(began)
		if r.ready(ctx, r.Node(faultNode)) {
			return fmt.Errorf("%s still answers: the %s did not take hold", faultNode, name)
		}
		r.Observed(observed, r.node.took.Seconds())
		return nil
	}}
}

// endTimed ends the fault and measures how long that takes.
func endTimed(ctx context.Context, r *Run) error {
	began := time.Now()
	err := r.End(ctx)
	r.node.took = time.Since(began)
	return err
}

func move(ctx context.Context, r *Run) error {
	before := r.Node(faultNode).WAN
	began := time.Now()
	// The engine stops and starts it in one command, so the record has one fault.
	err := r.Begin(ctx, record.Stop, faultNode, func(c Cluster, ctx context.Context, name string) error {
		moved, err := c.Move(ctx, name)
		if err == nil && moved.WAN == before {
			err = fmt.Errorf("it is still at %s", before)
		}
		if err == nil {
			r.Observed("%s was at %s and is at %s", name, before, moved.WAN)
		}
		return err
	}, nil)
	r.node.took = time.Since(began)
	if err == nil {
		err = r.End(ctx)
	}
	if err != nil {
		return err
	}
	for _, n := range r.Nodes {
		logs, err := r.Cluster.Logs(ctx, n.Name)
		if err != nil {
			return err
		}
		for line := range strings.Lines(logs) {
			if strings.Contains(strings.ToLower(line), "conflict") {
				r.node.conflicts++
				r.log("  %s: %s", n.Name, strings.TrimSpace(line))
			}
		}
	}
	return nil
}

// restartKilled starts the node again and reads its count as soon as it is ready.
func restartKilled(ctx context.Context, r *Run) error {
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	first := make(chan uint64, 1)
	go func() { first <- r.firstCount(reading, r.Node(faultNode), r.ID("mark")) }()
	if err := endTimed(ctx, r); err != nil {
		return err
	}
	select {
	case r.node.first = <-first:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("%s is back, but its HTTP API does not answer", faultNode)
	}
}

// firstCount returns what a node counts of the identity when it is first ready.
func (r *Run) firstCount(ctx context.Context, n cluster.Node, identity string) (count uint64) {
	_, _ = poll(ctx, 5*time.Millisecond, time.Hour, func() (done bool, err error) {
		if !r.ready(ctx, n) {
			return false, errors.New("not ready")
		}
		counts, err := traffic.Counts(ctx, r.client, targetOf(n), r.rule.Name, []string{identity})
		count = counts[identity]
		return err == nil, err
	})
	return count
}

// findOrigin finds the origin of the node's own client in the Redis of its region.
func findOrigin(ctx context.Context, r *Run) error {
	counts, err := r.Cluster.RedisCounts(ctx, faultRegion, r.rule, r.ID("own"))
	if err != nil {
		return err
	}
	// A request that its node did not answer may have been asked elsewhere: most are the node's.
	most := uint64(0)
	for origin, count := range counts {
		if count > most {
			r.node.origin, most = origin, count
		}
	}
	if most == 0 {
		return fmt.Errorf("the Redis of %s has no count of what %s admitted: %v", faultRegion, faultNode, counts)
	}
	return nil
}

// restartDrained reads what Redis holds of the node while it is away, and starts it again.
func restartDrained(ctx context.Context, r *Run) error {
	r.node.admitted = r.Admitted(r.ID("own"), faultNode)
	counts, err := r.Cluster.RedisCounts(ctx, faultRegion, r.rule, r.ID("own"))
	if err != nil {
		return err
	}
	r.node.inRedis = counts[r.node.origin]
	logs, err := r.Cluster.Logs(ctx, faultNode)
	if err != nil {
		return err
	}
	r.node.stopping = lastLogged(logs, "stopping")
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

// lost returns how much of what was admitted for the own client no node counts after the run.
func (r *Run) lost() uint64 {
	counts, _ := r.Counts(context.Background(), r.rule.Name, r.ID("own"))
	total := r.Admitted(r.ID("own"), "")
	return total - min(total, slices.Max(append(slices.Collect(maps.Values(counts)), 0)))
}

func checkBack(r *Run) {
	r.AssertWithin("it is together with the others again", "back_s", r.node.took, rejoinWithin)
}

// checkSame asserts that all nodes count the same in the end.
func checkSame(r *Run) {
	for _, name := range []string{"own", "shared"} {
		counts, err := r.Counts(context.Background(), r.rule.Name, r.ID(name))
		different := slices.Compact(slices.Sorted(maps.Values(counts)))
		r.Assert("in the end all nodes count the same of "+name, len(different) == 1, "one count", "%v%s", counts,
			errorText(err))
	}
}

// checkLoss asserts the age of the decisions that the killed node took with it. Counts are cumulative, so these are the
// last of its own client.
func checkLoss(r *Run) {
	lost := int(r.lost())
	var answered []int64
	for _, d := range r.decisions(func(d record.Decision) bool {
		return d.Allowed && d.Identity == r.ID("own") && d.Node == faultNode && d.Sent < r.node.ended.UnixNano()
	}) {
		answered = append(answered, d.Done)
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

func checkDrained(r *Run) {
	n := &r.node
	if n.stopping.IsZero() {
		r.Assert("it logs when it begins to stop", false, "a line with msg=stopping", "none")
	}
	unanswered := r.decisions(func(d record.Decision) bool { return d.Error != "" && d.Node == faultNode })
	inFlight := 0
	for _, d := range unanswered {
		if d.Sent < n.stopping.UnixNano() {
			inFlight++
		}
	}
	r.Assert("no request in flight fails", inFlight == 0 && r.Load.Failed == 0, "0", "%d in flight, %d anywhere",
		inFlight, r.Load.Failed)
	r.Figure("asked_elsewhere", float64(len(unanswered)))
	r.AssertWithin("it ends", "drain_s", n.took, drainWithin)
	lost, want := r.lost(), fmt.Sprintf("at least 99.9 %% of its %d", n.admitted)
	r.Assert("its counts are with the others", float64(lost) <= maxDrainLoss*float64(n.admitted), want, "%d lost", lost)
	r.Assert("its counts are in Redis", float64(n.inRedis) >= (1-maxDrainLoss)*float64(n.admitted), want, "%d",
		n.inRedis)
	r.Figure("drain_lost", float64(lost))
	checkSame(r)
}
