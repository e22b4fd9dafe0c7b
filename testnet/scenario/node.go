package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// rejoinWithin bounds the time from a node's return to frames from and to all others.
const rejoinWithin = 15 * time.Second

// ownRate is the rate of a client that only the harmed node serves, which tells that node's counts from the others'.
const ownRate = 100

// nodeRun is what a run with a fault of a node measures.
type nodeRun struct {
	began, ended time.Time
	took         time.Duration // to end, or to be back
	admitted     uint64        // by the node for its own client until it ended
	stopping     time.Time     // when it logged that it stops
	origin       string        // the node's, in the Redis of its region
	inRedis      uint64        // of what the node admitted
	first        uint64        // what it counted when it was first ready again
	conflicts    int           // log lines about a name conflict
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

// maxOwn returns the highest count of the own client after the run.
func (c *nodeRun) maxOwn(r *Run) (highest uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	counts, err := r.Counts(ctx, r.rule.Name, r.ID("own"))
	if err != nil {
		return 0
	}
	for _, n := range counts {
		highest = max(highest, n)
	}
	return highest
}

// checkSame asserts that all nodes count the same in the end.
func (c *nodeRun) checkSame(r *Run) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, name := range []string{"own", "shared"} {
		counts, err := r.Counts(ctx, r.rule.Name, r.ID(name))
		lowest, highest := uint64(1<<63), uint64(0)
		for _, n := range counts {
			lowest, highest = min(lowest, n), max(highest, n)
		}
		r.Assert("in the end all nodes count the same of "+name, err == nil && lowest == highest, "one count", "%v%s",
			counts, errorText(err))
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return " " + err.Error()
}

func (c *nodeRun) checkBack(r *Run) {
	r.AssertWithin("it is together with the others again", "back_s", c.took, rejoinWithin)
}

func nodeMove() Scenario {
	c := new(nodeRun)
	return nodeScenario("node-restart-new-address",
		"a node leaves under load and comes back at another address: the others take it for the same node",
		func(r *Run) {
			c.checkBack(r)
			r.Assert("no node takes it for two nodes", c.conflicts == 0, "no conflict in any log",
				"%d lines of conflicts", c.conflicts)
			c.checkSame(r)
		},
		wait("load in all regions", 6*time.Second),
		Step{"restart " + faultNode + " at another address", c.move},
		wait("load after that", 3*time.Second))
}

func (c *nodeRun) move(ctx context.Context, r *Run) error {
	*c = nodeRun{began: time.Now()}
	before := r.Node(faultNode).WAN
	// The engine stops and starts it in one command, so the record has one fault.
	err := r.Begin(ctx, record.Stop, faultNode, func(ctx context.Context, name string) error {
		moved, err := r.Cluster.Move(ctx, name)
		if err == nil && moved.WAN == before {
			err = fmt.Errorf("it is still at %s", before)
		}
		if err == nil {
			r.Observed("%s was at %s and is at %s", name, before, moved.WAN)
		}
		return err
	}, nil)
	if err != nil {
		return err
	}
	c.took = time.Since(c.began)
	if err := r.End(ctx); err != nil {
		return err
	}
	for _, n := range r.Nodes {
		logs, err := r.Cluster.Logs(ctx, n.Name)
		if err != nil {
			return err
		}
		for line := range strings.Lines(logs) {
			if strings.Contains(strings.ToLower(line), "conflict") {
				c.conflicts++
				r.log("  %s: %s", n.Name, strings.TrimSpace(line))
			}
		}
	}
	return nil
}

// pauseTime is how long a paused node is stopped.
const pauseTime = 10 * time.Second

func nodePause() Scenario {
	c := new(nodeRun)
	s := nodeScenario("pause",
		"a node stands still for 10 s (SIGSTOP) and goes on: it recovers, and the others never lose each other",
		func(r *Run) {
			r.AssertWithin("it recovers", "back_s", c.took, rejoinWithin)
			lowest, want := len(r.Nodes), len(r.Nodes)-2
			_, observations := r.recorded()
			for _, o := range observations {
				if o.Node != faultNode {
					lowest = min(lowest, o.Members)
				}
			}
			r.Assert("the others never lose each other", lowest >= want,
				fmt.Sprintf("at least %d members seen by each", want), "%d", lowest)
		},
		wait("load in all regions", 6*time.Second),
		Step{"pause " + faultNode, c.pause},
		wait("it stands still", pauseTime),
		Step{"let it go on", c.unpause},
		wait("load after that", 3*time.Second))
	// Requests to the paused node wait for it, so that no answer is lost and every decision is known.
	s.Elsewhere, s.Timeout = false, pauseTime+20*time.Second
	s.Streams, s.Only = []traffic.Stream{{Identity: "shared", Rate: 90}}, nil
	return s
}

func (c *nodeRun) pause(ctx context.Context, r *Run) error {
	*c = nodeRun{began: time.Now()}
	if err := r.Begin(ctx, record.Pause, faultNode, r.Cluster.Pause, r.Cluster.Unpause); err != nil {
		return err
	}
	if r.ready(ctx, r.Node(faultNode)) {
		return errors.New("it still answers: the pause did not take hold")
	}
	r.Observed("the process is stopped, and does not answer")
	return nil
}

func (c *nodeRun) unpause(ctx context.Context, r *Run) error {
	began := time.Now()
	err := r.End(ctx)
	c.took = time.Since(began)
	return err
}
