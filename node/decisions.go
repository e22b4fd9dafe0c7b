package node

import (
	"context"
	"fmt"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/decisionlog"
	"github.com/edgelimit/edgelimit/node/telemetry"
)

// openDecisionLog opens the decision log, if the configuration has a file for it.
func (n *Node) openDecisionLog() (err error) {
	if n.cfg.DecisionLog.File == "" {
		return nil
	}
	if n.decisions, err = decisionlog.Open(n.cfg.DecisionLog, n.log); err != nil {
		return fmt.Errorf("decision_log: %w", err)
	}
	return nil
}

// runDecisionLog writes the decision log, if there is one, until ctx ends.
func (n *Node) runDecisionLog(ctx context.Context) {
	if n.decisions != nil {
		n.decisions.Run(ctx)
	}
}

func (n *Node) closeDecisionLog() {
	if n.decisions != nil {
		n.decisions.Close()
	}
}

// logDecision logs a decision that was counted with an outcome, if it is one of those to be logged.
func (n *Node) logDecision(rule string, key counters.Key, cost uint64, d *Decision, outcome string) {
	if n.decisions != nil && outcome != "" && n.decisions.Wants(!d.Allowed) {
		n.decisions.Add(&decisionlog.Entry{At: n.clock.Coarse(), Rule: rule, Identity: key, Outcome: outcome,
			Cost: cost, Decision: *d})
	}
}

// writeDecisionLog writes how much is logged of decisions: zeros without a log.
func (n *Node) writeDecisionLog(w telemetry.Writer) {
	var s decisionlog.Stats
	if n.decisions != nil {
		s = n.decisions.Stats()
	}
	w.Counter("decision_log_lines_total", "Lines of the decision log.", s.Written)
	w.Counter("decision_log_dropped_total", "Decisions to be logged that were dropped, beyond max_per_second.",
		s.Dropped)
	w.Counter("decision_log_errors_total", "Failed writes to the decision log, whose lines are lost.", s.Failures)
}
