// Package record keeps what happened in one run of a testnet: every decision, every fault, and once a second what each
// node exported. Package judge judges it.
//
// # Format
//
// A record is lines of JSON, compressed with gzip where the file's name ends in ".gz". Every line ends in a newline and
// is an object with just one of these members:
//
//	{"header":{"version":1,"rule":{...},"nodes":[...],"started":...}}    the first line, and no other
//	{"decision":{"sent":...,"done":...,"node":"us-east-1",...}}          see Decision
//	{"event":{"at":...,"name":"partition","target":"eu-west",...}}       see Event
//	{"observation":{"sent":...,"done":...,"node":"us-east-1",...}}       see Observation
//
// Lines after the header come in any order. Members are only ever appended, and readers skip those that they do not
// know. Times are Unix nanoseconds of one clock, that of the recorder.
//
// A last line without its newline, or a compressed file without its end, was truncated: the run or its machine broke
// down. That is [ErrTruncated], and not a shorter record.
package record

import (
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Version is the version of the format that is written, and the only one that is read.
const Version = 1

// Header describes the run of a record.
type Header struct {
	Version int    `json:"version"` // filled in by writers
	Rule    Rule   `json:"rule"`
	Nodes   []Node `json:"nodes"`
	Started int64  `json:"started"` // Unix ns; nothing in the record is earlier
}

// Rule is the one limit that all requests of a run meet. Each identity has a count of its own.
type Rule struct {
	Name      string        `json:"name"`
	Limit     uint64        `json:"limit"`     // cost per window and identity, over all nodes
	Window    time.Duration `json:"window_ns"` //
	Sub       time.Duration `json:"sub_ns"`    // length of a sub-window
	Algorithm string        `json:"algorithm"` // as counters.Algorithm names it
}

// NewRule returns the rule of a limit.
func NewRule(l *counters.Limit) Rule {
	m := l.Meter()
	return Rule{Name: m.Rule, Limit: l.Max(), Window: m.Window, Sub: m.Sub, Algorithm: m.Algorithm.String()}
}

// Node is a node of the testnet.
type Node struct {
	ID     string `json:"id"`
	Region string `json:"region"`
}

// Regions returns the region of each node, by its ID.
func (h *Header) Regions() map[string]string {
	out := make(map[string]string, len(h.Nodes))
	for _, n := range h.Nodes {
		out[n.ID] = n.Region
	}
	return out
}

// Entry is one line after the header: just one of its fields is set.
type Entry struct {
	Decision    *Decision    `json:"decision,omitempty"`
	Event       *Event       `json:"event,omitempty"`
	Observation *Observation `json:"observation,omitempty"`
}

// Decision is a request and its outcome. The node decided at some time between Sent and Done.
type Decision struct {
	Sent     int64  `json:"sent"` // Unix ns, read before the request was sent
	Done     int64  `json:"done"` // Unix ns, read when the answer had come, or the request was given up
	Node     string `json:"node"`
	Region   string `json:"region"`
	Identity string `json:"identity"`
	Cost     uint64 `json:"cost"` // at least 1: a peek is no decision
	Allowed  bool   `json:"allowed"`
	// Error says why there was no answer; "" if there was one. The node may have admitted the request all the same.
	Error string `json:"error,omitempty"`
	// Limit and Remaining are the answer's. A Limit of 0 means that it had neither.
	Remaining uint64 `json:"remaining,omitempty"`
	Limit     uint64 `json:"limit,omitempty"`
}

// Names of faults that the judge understands. It shows all others.
const (
	Partition = "partition" // the target, a region or a node, cannot reach any other
	Kill      = "kill"      // the target, a node or all of a region, died at once
	Stop      = "stop"      // the target was shut down in order
	Pause     = "pause"     // the target does not run
)

// Event is the beginning or the end of a fault.
type Event struct {
	At     int64  `json:"at"`    // Unix ns: before a fault is made, and after it is undone
	Began  bool   `json:"began"` // false: it ended
	Name   string `json:"name"`
	Target string `json:"target,omitempty"` // a region, a node, or whatever the fault acts on
}

// Fault returns the event's name and target, as in "partition eu-west".
func (e *Event) Fault() string {
	if e.Target == "" {
		return e.Name
	}
	return e.Name + " " + e.Target
}

// Observation is what a node reported of itself.
type Observation struct {
	Sent      int64         `json:"sent"` // Unix ns, read before the node was asked
	Done      int64         `json:"done"` // Unix ns, read when all answers had come
	Node      string        `json:"node"`
	Boot      string        `json:"boot"`  // differs after a restart of the node
	Bound     float64       `json:"bound"` // exported over-admission bound, as a part of the limit
	Staleness time.Duration `json:"staleness_ns"`
	Members   int           `json:"members"`           // other nodes in its membership
	Breaker   string        `json:"breaker,omitempty"` // state of the circuit breaker to the region's store
	// Counts is how much of an identity's window the node counted as used, by identity: limit less remaining of a peek.
	// A count at the limit says "that or more". Identities that are missing were not asked for.
	Counts map[string]uint64 `json:"counts,omitempty"`
}

// Span returns when the entry began and ended, in Unix nanoseconds; both are the same for an event.
func (e *Entry) Span() (from, to int64) {
	switch {
	case e.Decision != nil:
		return e.Decision.Sent, e.Decision.Done
	case e.Observation != nil:
		return e.Observation.Sent, e.Observation.Done
	}
	return e.Event.At, e.Event.At
}
