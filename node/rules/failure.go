package rules

import (
	"cmp"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Outage is which of the nodes that share a limit a node cannot count with.
type Outage uint8

const (
	Whole       Outage = iota // none
	Partitioned               // some are unreachable, or there may be others
	CutOff                    // half of them, or more; or the store, for a node that knows no other
)

// Failure is what happens to a request that its node cannot decide as the rules want: it reaches too few of the nodes
// that share a limit, no rules have come, or the decision failed. Of what the request, its rule and its node set, in
// this order, the first counts; of a strict rule see [Policy.WithoutStore]. In text it is empty, local, open or closed.
type Failure uint8

const (
	FailUnset  Failure = iota // no word
	FailOpen                  // it is admitted, and counted where it can be
	FailClosed                // it is denied
	FailLocal                 // the node decides by what it knows, as the limit's Partition has it
)

var failures = [...]string{FailUnset: "", FailOpen: "open", FailClosed: "closed", FailLocal: "local"}

// String returns the word.
func (f Failure) String() string { return failures[min(int(f), len(failures)-1)] }

// ParseFailure returns the failure of a word.
func ParseFailure(word string) (f Failure, ok bool) {
	i := slices.Index(failures[:], word)
	return Failure(max(i, 0)), i >= 0
}

// UnmarshalYAML implements yaml.Unmarshaler of a configuration.
func (f *Failure) UnmarshalYAML(unmarshal func(any) error) error {
	var word string
	if unmarshal(&word) == nil {
		var ok bool
		if *f, ok = ParseFailure(word); ok {
			return nil
		}
	}
	type Failure struct{} // no word fits: the error has the line
	return unmarshal(new(Failure))
}

// failureRetry is when clients may try again that a failure denied: nobody knows when the nodes will meet again.
const failureRetry = 5 * time.Second

// UnavailableName is the name in decisions that no rule made, of requests that could not be decided.
const UnavailableName = "unavailable"

// Undecided returns the decision on a request that cannot be decided; ok is false where nothing asks for one.
func (f Failure) Undecided() (d counters.Decision, ok bool) {
	switch f {
	case FailOpen:
		return counters.Decision{Allowed: true, Waived: true, Failed: true, Degraded: true}, true
	case FailClosed:
		return counters.Decision{Rule: UnavailableName, Failed: true, Degraded: true, Window: failureRetry,
			RetryAfter: failureRetry, ResetAfter: failureRetry}, true
	}
	return d, false
}

// During returns what the policy does in an outage, with the on_failure of the request and the node.
func (p *Policy) During(o Outage, request, node Failure) Failure {
	on := cmp.Or(request, p.OnFailure, node)
	switch {
	case o == CutOff && (on == FailOpen || on == FailClosed):
		return on
	case o != Whole && p.PartitionDenies:
		return FailClosed
	}
	return FailLocal
}

// WithoutStore returns what a strict rule does with a request that its store does not decide on: what the rule itself
// sets, and without that FailClosed. So nothing but the rule opens it. A request may close it.
func (p *Policy) WithoutStore(request Failure) Failure {
	if request == FailClosed || p.OnFailure == FailUnset {
		return FailClosed
	}
	return p.OnFailure
}

// Heeds reports whether the rule itself has a word on outages.
func (r *Rule) Heeds() bool {
	return r.Limit != nil && (r.OnFailure == FailOpen || r.OnFailure == FailClosed || r.PartitionDenies)
}

// Fail has the layer follow what its request, its rule and its node want in an outage. A strict layer has one when its
// store does not answer.
func (m *Match) Fail(o Outage, request, node Failure) {
	switch {
	case m.Listed != Unlisted || m.Rule.Limit == nil:
	case m.Rule.Strict:
		m.failure = m.Rule.WithoutStore(request)
	default:
		m.failure = m.Rule.During(o, request, node)
	}
}

// StoreFailed reports whether the store of a strict layer could not decide.
func (m *Match) StoreFailed() bool { return m.failure != FailUnset && m.Rule.Strict }

// FailsOpen reports whether the layer lets a request pass as its store could not decide.
func (m *Match) FailsOpen() bool { return m.failure == FailOpen && m.Rule.Strict }

// failed makes a charge that of a layer that has failed, or that a manual ban or a debt denies.
func (m *Match) failed(c counters.Charge) counters.Charge {
	switch {
	case m.failure == FailOpen && m.banned == 0:
		c.Mode = counters.Shadow
	case m.failure == FailClosed || m.banned > 0 || m.owes > 0:
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
