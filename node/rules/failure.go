package rules

import (
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Outage is which of the nodes that share a limit a node cannot count with.
type Outage uint8

const (
	Whole       Outage = iota // none
	Partitioned               // some are unreachable, or there may be others
	CutOff                    // half of them, or more
)

// Failure is what a rule does with requests that its node cannot decide together with most of the others.
type Failure uint8

const (
	FailLocal  Failure = iota // the node decides by what it knows, as the limit's Partition has it
	FailOpen                  // they are admitted, and counted
	FailClosed                // they are denied
)

var failures = [...]string{FailLocal: "local", FailOpen: "open", FailClosed: "closed"}

// String returns the name in rule files.
func (f Failure) String() string { return failures[min(int(f), len(failures)-1)] }

// ParseFailure returns the failure with a name in rule files.
func ParseFailure(name string) (f Failure, ok bool) {
	i := slices.Index(failures[:], name)
	return Failure(max(i, 0)), i >= 0
}

// failureRetry is when clients may try again that a failure denied: nobody knows when the nodes will meet again.
const failureRetry = 5 * time.Second

// during returns what the policy does in an outage.
func (p *Policy) during(o Outage) Failure {
	switch {
	case o == CutOff && p.OnFailure != FailLocal:
		return p.OnFailure
	case o != Whole && p.PartitionDenies:
		return FailClosed
	}
	return FailLocal
}

// Heeds reports whether outages matter to the rule, which may be nil.
func (r *Rule) Heeds() bool {
	return r != nil && r.Limit != nil && (r.OnFailure != FailLocal || r.PartitionDenies)
}

// Fail has the layer's rule follow its policy in an outage.
func (m *Match) Fail(o Outage) {
	if m.Listed == Unlisted {
		m.failure = m.Rule.during(o)
	}
}

// failed makes a charge that of a layer that has failed.
func (m *Match) failed(c counters.Charge) counters.Charge {
	switch m.failure {
	case FailOpen:
		c.Mode = counters.Shadow
	case FailClosed:
		c.Limit, c.Overdraw, c.Lender = m.Rule.blocked, false, 0
		if c.Mode == counters.Elastic || c.Mode == counters.Quota {
			c.Mode = counters.Enforce
		}
	}
	return c
}

// annotateFailure puts the rule's view into the decision of a layer that has failed.
func (m *Match) annotateFailure(ch *counters.Charge, d *counters.Decision) {
	d.Failed = !d.Allowed || d.Waived
	if m.failure == FailOpen {
		return
	}
	l := m.Rule.Limit
	d.Limit, d.Window, d.ResetAfter = l.Max()-m.Rule.Margin, l.Lasts(), failureRetry
	if !d.Allowed {
		d.RetryAfter = failureRetry
	}
}
