package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// settleTime is how long nodes are observed after the last request: longer than the 5 s within which they have to
// agree.
const settleTime = 6500 * time.Millisecond

// FindRule returns the rule of that name, which has to have a limit, in a folder of rule files.
func FindRule(folder, name string) (*rules.Rule, error) {
	set, err := rulefile.Load(folder)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, r := range set.Rules() {
		if r.Name == name && r.Limit != nil {
			return r, nil
		}
		names = append(names, r.Name)
	}
	return nil, fmt.Errorf("there is no rule %q with a limit in %s, there are %v", name, folder, names)
}

// CreateRecord creates the file of a run's record.
func CreateRecord(file string, rule *rules.Rule, nodes []cluster.Node) (*record.Writer, error) {
	h := record.Header{Rule: record.NewRule(rule.Limit), Started: time.Now().UnixNano()}
	for _, n := range nodes {
		h.Nodes = append(h.Nodes, record.Node{ID: n.Name, Region: n.Region})
	}
	return record.Create(file, h)
}

// Offer offers the load and observes the nodes until settleTime after the last request. The load ends with steps; if
// they are nil, with its duration or, without an error, with ctx.
func Offer(ctx context.Context, o traffic.Options, w Watch, sink traffic.Sink, steps func(context.Context) error) (
	traffic.Summary, error,
) {
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	loading, stopLoading := context.WithCancel(ctx)
	defer stopLoading()
	var summary traffic.Summary
	var watched, loaded, stepped error
	var watcher, loader sync.WaitGroup
	watcher.Go(func() { watched = w.Run(watching, sink) })
	loader.Go(func() { summary, loaded = traffic.Run(loading, o, sink) })
	if steps != nil {
		stepped = steps(ctx)
		stopLoading()
	}
	loader.Wait()
	if stepped == nil {
		if err := sleep(ctx, settleTime); steps != nil {
			stepped = err
		}
	}
	stopWatching()
	watcher.Wait()
	return summary, errors.Join(stepped, loaded, watched)
}

// recorder is the record of a run, in its file and in memory.
type recorder struct {
	file *record.Writer

	mu           sync.Mutex
	decisions    []record.Decision
	observations []record.Observation
}

// Write implements traffic.Sink.
func (c *recorder) Write(e record.Entry) error {
	c.mu.Lock()
	switch {
	case e.Decision != nil:
		c.decisions = append(c.decisions, *e.Decision)
	case e.Observation != nil:
		c.observations = append(c.observations, *e.Observation)
	}
	c.mu.Unlock()
	return c.file.Write(e)
}

func (c *recorder) event(began bool, name, target string) error {
	e := &record.Event{At: time.Now().UnixNano(), Began: began, Name: name, Target: target}
	return c.file.Write(record.Entry{Event: e})
}

// Admitted returns the cost that a node admitted for the identity; without a node, the cost that all admitted.
func (r *Run) Admitted(identity, node string) (total uint64) {
	for _, d := range r.decisions(func(d record.Decision) bool {
		return d.Allowed && d.Identity == identity && (node == "" || d.Node == node)
	}) {
		total += d.Cost
	}
	return total
}

// decisions returns those so far that keep accepts; nil: all.
func (r *Run) decisions(keep func(record.Decision) bool) (all []record.Decision) {
	r.record.mu.Lock()
	defer r.record.mu.Unlock()
	for _, d := range r.record.decisions {
		if keep == nil || keep(d) {
			all = append(all, d)
		}
	}
	return all
}
