package scenario

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/edgelimit/edgelimit/testnet/load"
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
