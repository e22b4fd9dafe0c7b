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
	"github.com/edgelimit/edgelimit/testnet/checker"
	"github.com/edgelimit/edgelimit/testnet/load"
	"github.com/edgelimit/edgelimit/testnet/multiregion"
	"github.com/edgelimit/edgelimit/testnet/record"
)

// Run is an attempt at a scenario. Steps use it one after the other; only its record is used by others meanwhile.
type Run struct {
	// Net is the testnet, Nodes its nodes as they were when the run began.
	Net   Net
	Nodes []multiregion.Node
	// Report and Load are there when promises are checked.
	Report *checker.Report
	Load   load.Summary
	// Pause is how long this process, and so perhaps any other of the machine, was kept from running while the load went on.
	Pause time.Duration

	name     string // of the scenario, and of this run
	rule     *rules.Rule
	rules    *rules.Set
	client   *http.Client
	progress io.Writer
	log      *journal
	faults   []fault
	result   *Result
	started  time.Time
}

// fault is one that is in force.
type fault struct {
	name, target string
	undo         func(context.Context) error
}

// ID makes a name an identity of this run, so that nobody has counted it before.
func (r *Run) ID(name string) string { return r.name + "-" + name }

// Promise notes whether something that has to hold did.
func (r *Run) Promise(what string, ok bool, expected, got string) {
	r.result.Promises = append(r.result.Promises, Promise{what, expected, got, ok})
}

// Figure notes a measure.
func (r *Run) Figure(name string, value float64) { r.result.Figures[name] = value }

// Evidence notes what shows that a fault took hold.
func (r *Run) Evidence(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.result.Evidence = append(r.result.Evidence, text)
	r.say("  %s", text)
}

func (r *Run) say(format string, args ...any) {
	fmt.Fprintf(r.progress, "%5.1f s  "+format+"\n", append([]any{time.Since(r.started).Seconds()}, args...)...)
}

// Begin makes a fault. It is in the record from before it is made, until End has undone it.
func (r *Run) Begin(ctx context.Context, name, target string, do, undo func(context.Context) error) error {
	if err := r.log.event(true, name, target); err != nil {
		return err
	}
	r.faults = append(r.faults, fault{name, target, undo})
	if err := do(ctx); err != nil {
		return fmt.Errorf("%s %s: %w", name, target, err)
	}
	return nil
}

// End undoes the fault that was made last.
func (r *Run) End(ctx context.Context) error {
	f := r.faults[len(r.faults)-1]
	if err := f.undo(ctx); err != nil {
		return fmt.Errorf("undo %s %s: %w", f.name, f.target, err)
	}
	r.faults = r.faults[:len(r.faults)-1]
	return r.log.event(false, f.name, f.target)
}

// mend undoes whatever faults are left, and makes the testnet whole again.
func (r *Run) mend(ctx context.Context) error {
	// Also after an interrupt: who stops a scenario does not want a broken testnet.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
	defer cancel()
	var errs []error
	for _, f := range slices.Backward(r.faults) {
		errs = append(errs, f.undo(ctx))
	}
	return errors.Join(append(errs, r.Net.Up(ctx))...)
}

// Take asks a node to admit a cost for the identity under any rule.
func (r *Run) Take(ctx context.Context, n multiregion.Node, rule, identity string, cost uint64) (load.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, load.DefaultTimeout)
	defer cancel()
	d := record.Decision{Sent: time.Now().UnixNano(), Node: n.Name, Region: n.Region, Identity: identity, Cost: cost}
	a, err := load.Take(ctx, r.client, targetOf(n), rule, identity, cost)
	d.Done = max(d.Sent, time.Now().UnixNano())
	if rule != r.rule.Name {
		return a, err // another rule's, and no part of the record
	}
	if err != nil {
		d.Error = err.Error()
	} else {
		d.Allowed, d.Limit, d.Remaining = a.Allowed, a.Limit, a.Remaining
	}
	return a, errors.Join(err, r.log.Write(record.Entry{Decision: &d}))
}

// Prime has a node admit so much for the identity that it is worth telling Redis from now on, and waits until all count it.
func (r *Run) Prime(ctx context.Context, node, identity string) error {
	a, err := r.Take(ctx, r.Node(node), r.rule.Name, identity, primeCost)
	if err != nil || !a.Allowed {
		return fmt.Errorf("%s did not admit a cost of %d (allowed %v): %w", node, primeCost, a.Allowed, err)
	}
	_, err = r.AwaitCount(ctx, r.rule.Name, identity, primeCost, 10*time.Second)
	return err
}

// primeCost is the part of per_account's limit from which nodes tell Redis of it: node.DefaultMinFill.
const primeCost = 1000

// Counts asks all nodes given, at once, what they count. A node that does not answer is an error.
func (r *Run) Counts(ctx context.Context, nodes []multiregion.Node, rule, identity string) (map[string]uint64, error) {
	counts := make([]map[string]uint64, len(nodes))
	errs := make([]error, len(nodes))
	var asking sync.WaitGroup
	for i, n := range nodes {
		asking.Go(func() { counts[i], errs[i] = load.Counts(ctx, r.client, targetOf(n), rule, []string{identity}) })
	}
	asking.Wait()
	out := make(map[string]uint64)
	for i, n := range nodes {
		if errs[i] != nil {
			return nil, fmt.Errorf("counts of %s: %w", n.Name, errs[i])
		}
		out[n.Name] = counts[i][identity]
	}
	return out, nil
}

// AwaitCount waits until all nodes count so much of the identity, and returns how long that took.
func (r *Run) AwaitCount(ctx context.Context, rule, identity string, want uint64, patience time.Duration) (time.Duration, error) {
	began := time.Now()
	for {
		counts, err := r.Counts(ctx, r.Nodes, rule, identity)
		if err == nil && !slices.ContainsFunc(r.Nodes, func(n multiregion.Node) bool { return counts[n.Name] != want }) {
			return time.Since(began), nil
		}
		if took := time.Since(began); took > patience {
			return took, errors.Join(fmt.Errorf("after %v the nodes count %v of %s, want %d", patience, counts, identity, want), err)
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return time.Since(began), err
		}
	}
}

// Node returns the node of that name as it was when the run began.
func (r *Run) Node(name string) multiregion.Node {
	for _, n := range r.Nodes {
		if n.Name == name {
			return n
		}
	}
	return multiregion.Node{Name: name}
}

// Others are the nodes but for one.
func (r *Run) Others(name string) (others []multiregion.Node) {
	for _, n := range r.Nodes {
		if n.Name != name {
			others = append(others, n)
		}
	}
	return others
}

func targetOf(n multiregion.Node) load.Target {
	return load.Target{Node: n.Name, Region: n.Region, URL: n.HTTP}
}

// journal is the record of a run, in its file and in memory.
type journal struct {
	file *record.Writer

	mu           sync.Mutex
	decisions    []record.Decision
	observations []record.Observation
}

// Write implements load.Sink.
func (j *journal) Write(e record.Entry) error {
	j.mu.Lock()
	switch {
	case e.Decision != nil:
		j.decisions = append(j.decisions, *e.Decision)
	case e.Observation != nil:
		j.observations = append(j.observations, *e.Observation)
	}
	j.mu.Unlock()
	return j.file.Write(e)
}

func (j *journal) event(began bool, name, target string) error {
	return j.file.Write(record.Entry{Event: &record.Event{At: time.Now().UnixNano(), Began: began, Name: name, Target: target}})
}

// Admitted is the cost that was answered as admitted for the identity, by the node or, if that is empty, by all.
func (r *Run) Admitted(identity, node string) (total uint64) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	for _, d := range r.log.decisions {
		if d.Allowed && d.Identity == identity && (node == "" || d.Node == node) {
			total += d.Cost
		}
	}
	return total
}

// recorded returns the decisions and observations that were recorded.
func (r *Run) recorded() ([]record.Decision, []record.Observation) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return slices.Clone(r.log.decisions), slices.Clone(r.log.observations)
}
