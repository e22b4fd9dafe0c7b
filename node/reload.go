package node

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
)

// SetRules puts the rules of a set in force in place of all others, for every request that comes after: none is lost, and none meets half
// of the one and half of the other. Counts of a rule go on as long as it stands at the same place and has the same window and
// algorithm, whatever becomes of its limit; so do its metrics. The log says what has changed. It may be called from anywhere, also before
// Run. Where the node has rule files, these take over again when they change.
func (n *Node) SetRules(set *rules.Set) {
	before, after := n.enforce(set)
	n.loads.succeed()
	n.tellChanges(rules.Diff(before.set, after.set), len(after.tallies))
}

// Reload has the rule files read again, whether they have changed or not. It does not wait for that: log and metrics say what came of it.
// It may be called from anywhere; before Run it takes effect when that begins.
func (n *Node) Reload() {
	if n.files == nil {
		n.log.Info("there are no rule files to read again")
		return
	}
	n.files.Reload()
}

// loads is what came of reading rules.
type loads struct {
	ok, failed atomic.Uint64
	good       atomic.Bool // the last time
}

func (l *loads) succeed() {
	l.good.Store(true)
	l.ok.Add(1)
}

func (l *loads) fail() {
	l.good.Store(false)
	l.failed.Add(1)
}

func (n *Node) watchRules(ctx context.Context) {
	if n.files != nil {
		n.files.Run(ctx, n.loaded)
	}
}

// loaded takes what came of reading the rule files. Unless all of them are good, the rules in force stay.
func (n *Node) loaded(set *rules.Set, err error) {
	if err != nil {
		n.loads.fail()
		n.tellProblems(rules.Problems(err))
		return
	}
	n.SetRules(set)
}

// mostLines is how many changes or problems of rules are told one by one.
const mostLines = 100

func (n *Node) tellChanges(changes []rules.Change, count int) {
	for _, c := range changes[:min(len(changes), mostLines)] {
		n.log.Info("rule changed", "change", c.Kind, "rule", c.Rule, "counts", c.Counts, "old", c.Old, "new", c.New)
	}
	n.log.Info("rules in force", "rules", count, "changes", len(changes))
}

func (n *Node) tellProblems(problems []error) {
	for _, p := range problems[:min(len(problems), mostLines)] {
		n.log.Error("rules refused", "problem", p)
	}
	n.log.Error("the last good rules stay in force", "problems", len(problems), "since", n.policy.Load().since.Format(time.RFC3339))
}
