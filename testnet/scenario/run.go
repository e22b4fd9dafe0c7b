package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/scrape"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// Run is an attempt at a scenario. Its steps are sequential; only its record is used concurrently.
type Run struct {
	Cluster Cluster
	// Nodes are the nodes without sidecars, as they were when the run began.
	Nodes []cluster.Node
	// Report and Load are set when assertions are checked.
	Report *judge.Report
	Load   traffic.Summary

	name     string // of the scenario, and of this run
	rule     *rules.Rule
	client   *http.Client
	progress io.Writer
	record   *recorder
	faults   []fault
	result   *Result
	started  time.Time

	// What the steps measure for the assertions, of the fault that they inject.
	node      nodeFault
	redis     redisFault
	partition partitionFault
	restarts  []restart
	rotation  rotation
	upgrade   upgradeRun
	blocked   map[string][]cluster.Observation // by node, while a protocol was blocked
	replaced  map[string]string                // what processes logged whose containers are gone, by node
}

// action is a fault, or its end, on a node or a region: a method of Cluster, or what uses one.
type action = func(c Cluster, ctx context.Context, target string) error

// fault is one that is in force.
type fault struct {
	name, target string
	undo         action
}

// ID makes a name an identity of this run, so that no node has counted it before.
func (r *Run) ID(name string) string { return r.name + "-" + name }

// Assert records whether something that has to hold did, with the expected and the actual value.
func (r *Run) Assert(what string, ok bool, want, got string, args ...any) {
	r.result.Assertions = append(r.result.Assertions, Assertion{what, want, fmt.Sprintf(got, args...), ok})
}

// AssertWithin asserts that something took no longer than the limit, and records its seconds as a figure.
func (r *Run) AssertWithin(what, figure string, took, limit time.Duration) {
	r.Assert(what, took <= limit, fmt.Sprintf("within %g s", limit.Seconds()), "%.2f s", took.Seconds())
	r.Figure(figure, took.Seconds())
}

// Figure records a measure.
func (r *Run) Figure(name string, value float64) { r.result.Figures[name] = value }

// Observed records what shows that a fault took hold.
func (r *Run) Observed(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.result.Observations = append(r.result.Observations, text)
	r.log("  %s", text)
}

func (r *Run) log(format string, args ...any) {
	fmt.Fprintf(r.progress, "%5.1f s  "+format+"\n", append([]any{time.Since(r.started).Seconds()}, args...)...)
}

// Begin injects a fault. The record has it from before that until End has undone it. A fault without undo ends by
// itself.
func (r *Run) Begin(ctx context.Context, name, target string, do, undo action) error {
	if err := r.record.event(true, name, target); err != nil {
		return err
	}
	if undo == nil {
		undo = func(Cluster, context.Context, string) error { return nil }
	}
	r.faults = append(r.faults, fault{name, target, undo})
	if err := do(r.Cluster, ctx, target); err != nil {
		return fmt.Errorf("%s %s: %w", name, target, err)
	}
	return nil
}

// End undoes the last fault.
func (r *Run) End(ctx context.Context) error {
	f := r.faults[len(r.faults)-1]
	if err := f.undo(r.Cluster, ctx, f.target); err != nil {
		return fmt.Errorf("undo %s %s: %w", f.name, f.target, err)
	}
	r.faults = r.faults[:len(r.faults)-1]
	return r.record.event(false, f.name, f.target)
}

// restore undoes the faults that are left and waits until the cluster is complete, also after an interrupt.
func (r *Run) restore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
	defer cancel()
	var errs []error
	for _, f := range slices.Backward(r.faults) {
		errs = append(errs, f.undo(r.Cluster, ctx, f.target))
	}
	return errors.Join(append(errs, r.Cluster.Up(ctx))...)
}

// logs returns what a node has logged, also in containers that were replaced in this run.
func (r *Run) logs(ctx context.Context, name string) (string, error) {
	text, err := r.Cluster.Logs(ctx, name)
	return r.replaced[name] + text, err
}

// Take requests a cost for the identity under any rule from a node. The record has it if the rule is the scenario's.
func (r *Run) Take(ctx context.Context, n cluster.Node, rule, identity string, cost uint64) (traffic.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, traffic.DefaultTimeout)
	defer cancel()
	d := record.Decision{Sent: time.Now().UnixNano(), Node: n.Name, Region: n.Region, Identity: identity, Cost: cost}
	a, err := traffic.Take(ctx, r.client, targetOf(n), rule, identity, cost)
	d.Done = max(d.Sent, time.Now().UnixNano())
	if rule != r.rule.Name {
		return a, err
	}
	if err != nil {
		d.Error = err.Error()
	} else {
		d.Allowed, d.Limit, d.Remaining = a.Allowed, a.Limit, a.Remaining
	}
	return a, errors.Join(err, r.record.Write(record.Entry{Decision: &d}))
}

// Prime has a node admit a cost of primeCost or more for the identity, so that it writes the identity to Redis from now
// on, and waits until all nodes count it.
func (r *Run) Prime(ctx context.Context, node, identity string, cost uint64) error {
	a, err := r.Take(ctx, r.Node(node), r.rule.Name, identity, cost)
	if err != nil || !a.Allowed {
		return fmt.Errorf("%s did not admit a cost of %d (allowed %v): %w", node, cost, a.Allowed, err)
	}
	_, err = r.AwaitCount(ctx, r.rule.Name, identity, cost, 10*time.Second)
	return err
}

// primeCost is the part of accountRule's limit from which nodes write a key to Redis: node.DefaultMinFill.
const primeCost = 1000

// Counts returns what each of the nodes counts. A node that does not answer is an error.
func (r *Run) Counts(ctx context.Context, rule, identity string) (map[string]uint64, error) {
	counts, errs := make([]map[string]uint64, len(r.Nodes)), make([]error, len(r.Nodes))
	var requests sync.WaitGroup
	for i, n := range r.Nodes {
		requests.Go(func() {
			counts[i], errs[i] = traffic.Counts(ctx, r.client, targetOf(n), rule, []string{identity})
		})
	}
	requests.Wait()
	byNode := make(map[string]uint64)
	for i, n := range r.Nodes {
		if errs[i] != nil {
			return nil, fmt.Errorf("counts of %s: %w", n.Name, errs[i])
		}
		byNode[n.Name] = counts[i][identity]
	}
	return byNode, nil
}

// AwaitCount waits until all nodes count so much of the identity, and returns the time that this took.
func (r *Run) AwaitCount(ctx context.Context, rule, identity string, want uint64, patience time.Duration) (
	time.Duration, error,
) {
	return poll(ctx, 20*time.Millisecond, patience, func() (done bool, err error) {
		counts, err := r.Counts(ctx, rule, identity)
		if err != nil {
			return false, err
		}
		for _, n := range counts {
			if n != want {
				return false, fmt.Errorf("the nodes count %v of %s, want %d", counts, identity, want)
			}
		}
		return true, nil
	})
}

// Node returns the node of that name as it was when the run began.
func (r *Run) Node(name string) cluster.Node {
	for _, n := range r.Nodes {
		if n.Name == name {
			return n
		}
	}
	return cluster.Node{Name: name}
}

func targetOf(n cluster.Node) traffic.Target {
	return traffic.Target{Node: n.Name, Region: n.Region, URL: n.HTTP, Health: n.Metrics}
}

// ready reports whether a node says that it is ready.
func (r *Run) ready(ctx context.Context, n cluster.Node) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	why, err := scrape.NotReady(ctx, r.client, n.Metrics)
	return why == "" && err == nil
}
