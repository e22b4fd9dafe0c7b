package record

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Version is the version of the format that is written, and the only one that is read.
const Version = 1

// Header says what a record is about.
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

// Counted returns the rule as the limit that an oracle decides by.
func (r Rule) Counted() (*counters.Limit, error) {
	algorithm, ok := counters.ParseAlgorithm(r.Algorithm)
	switch {
	case !ok:
		return nil, fmt.Errorf("rule %s: unknown algorithm %q", r.Name, r.Algorithm)
	case algorithm != counters.SlidingWindow:
		// When a node decided is known only to within a request's time, and what that means is worked out by sub-windows.
		return nil, fmt.Errorf("rule %s: a record of %q cannot be judged, only one of %q", r.Name, algorithm, counters.SlidingWindow)
	}
	if r.Limit == 0 {
		return nil, fmt.Errorf("rule %s: a limit of 0 admits nothing, and there is nothing to judge", r.Name)
	}
	return counters.NewLimit(counters.Meter{Rule: r.Name, Algorithm: algorithm, Window: r.Window, Sub: r.Sub}, r.Limit)
}

// Node is a node of the testnet.
type Node struct {
	ID     string `json:"id"`
	Region string `json:"region"`
}

// Validate reports everything that is wrong with the header, but for its version.
func (h *Header) Validate() error {
	var errs []error
	if _, err := h.Rule.Counted(); err != nil {
		errs = append(errs, err)
	}
	if len(h.Nodes) == 0 {
		errs = append(errs, errors.New("no nodes: name every node of the testnet"))
	}
	seen := make(map[string]bool)
	for _, n := range h.Nodes {
		if n.ID == "" || n.Region == "" || seen[n.ID] {
			errs = append(errs, fmt.Errorf("node %q of region %q: give each an id of its own and a region", n.ID, n.Region))
		}
		seen[n.ID] = true
	}
	if h.Started < 0 || h.Started > latest {
		errs = append(errs, fmt.Errorf("started at %d, which is no time in Unix nanoseconds", h.Started))
	}
	return errors.Join(errs...)
}

// latest is the last time that a record may tell: far from now, and from where sums of times would overflow.
const latest = math.MaxInt64 / 4

// Entry is one line after the header: just one of its fields is set.
type Entry struct {
	Decision    *Decision    `json:"decision,omitempty"`
	Event       *Event       `json:"event,omitempty"`
	Observation *Observation `json:"observation,omitempty"`
}

// Decision is a request and what became of it. When the node decided is not known, but that it was between Sent and Done.
type Decision struct {
	Sent     int64  `json:"sent"` // Unix ns, read before the request was sent
	Done     int64  `json:"done"` // Unix ns, read when the answer had come, or when it was given up
	Node     string `json:"node"`
	Region   string `json:"region"`
	Identity string `json:"identity"`
	Cost     uint64 `json:"cost"` // at least 1: a peek is no decision
	Allowed  bool   `json:"allowed"`
	// Error says why there was no decision; "" where there was one. The node may have admitted the request all the same.
	Error string `json:"error,omitempty"`
	// Limit and Remaining are what the answer told. A Limit of 0 means that it told neither.
	Remaining uint64 `json:"remaining,omitempty"`
	Limit     uint64 `json:"limit,omitempty"`
}

// Names of faults that mean something to a checker. Others are noted and shown.
const (
	Partition = "partition" // the target, a region or a node, is cut off from all others
	Kill      = "kill"      // the target, a node or all of a region, died at once
	Stop      = "stop"      // it was told to end
	Pause     = "pause"     // it stands still
)

// Event is the beginning or the end of a fault.
type Event struct {
	At     int64  `json:"at"`    // Unix ns: a fault begins before it is brought about, and ends when it is undone
	Began  bool   `json:"began"` // false: it ended
	Name   string `json:"name"`
	Target string `json:"target,omitempty"` // a region, a node, or whatever the fault acts on
}

// Fault is the event's name and target, as in "partition eu-west".
func (e *Event) Fault() string {
	if e.Target == "" {
		return e.Name
	}
	return e.Name + " " + e.Target
}

// Observation is what a node said of itself.
type Observation struct {
	Sent      int64         `json:"sent"` // Unix ns, read before the node was asked
	Done      int64         `json:"done"` // Unix ns, read when all answers had come
	Node      string        `json:"node"`
	Boot      string        `json:"boot"`  // differs after a restart of the node
	Bound     float64       `json:"bound"` // exported over-admission bound, as a part of the limit
	Staleness time.Duration `json:"staleness_ns"`
	Members   int           `json:"members"`           // other nodes in its membership
	Breaker   string        `json:"breaker,omitempty"` // state of the circuit breaker to the region's store
	// Counts is how much of an identity's window the node took as used, by identity: limit less remaining of a peek. A count at the
	// limit says "that or more". Identities that are missing were not asked for.
	Counts map[string]uint64 `json:"counts,omitempty"`
}
