package rules

import (
	"errors"
	"fmt"

	"github.com/edgelimit/edgelimit/counters"
)

// How large a request may be: enough for any sensible set of layers, and a bound on what one request can cost a node.
const (
	MaxDescriptors = 32 // in a request
	MaxEntries     = 32 // in a descriptor, and so the depth of a rule file
)

// Entry is one key and value of a descriptor.
type Entry struct {
	Key   string
	Value string
}

// Request is what every door asks of a node: may this pass? It names its limits either by Domain and Descriptors, as Envoy
// does, or by Rule and Identity. A Request is read only; it may be used again once the call returned.
type Request struct {
	// Domain and Descriptors are matched against the rules: each descriptor meets at most one rule and is one layer. The
	// request is charged in all its layers or in none.
	Domain      string
	Descriptors [][]Entry
	// Asks say for each descriptor what it asks for by itself, whatever Cost and Peek say; nil: nothing. A parent that elastic rules bring
	// along is asked for the most that they are.
	Asks []Ask
	// Rule and Identity address one rule directly by its name (or its full name). They exclude Domain and Descriptors, but
	// Domain may be given to choose between rules of the same name.
	Rule     string
	Identity string
	// Cost is what the request is charged; 0 means 1.
	Cost uint64
	// Peek asks without charging: the answer is that of a request of cost 1, and no trace is left.
	Peek bool
}

// Ask is what one descriptor of a request asks for by itself.
type Ask struct {
	// Cost is what the descriptor's layer is charged. 0 peeks: the answer is that of a cost of 1, and this layer is not charged.
	Cost uint64
	// Limit takes the place of the rule that the descriptor meets, or would meet if there were one; nil: the rule is asked. It is counted for
	// the domain and all entries of the descriptor, in a domain that is known; in another one the descriptor meets nothing.
	Limit *counters.Limit
}

// OverrideName is what decisions call the limit of an Ask, which has no rule.
const OverrideName = "override"

// EffectiveCost is what the request charges each of its layers that has no Ask: 0 for a peek, otherwise at least 1.
func (r *Request) EffectiveCost() uint64 {
	if r.Peek {
		return 0
	}
	return max(r.Cost, 1)
}

// What may be wrong with a request. Doors turn these into the refusal of their protocol.
var (
	// ErrUnknownRule says that no rule has the name that the request gives.
	ErrUnknownRule = errors.New("unknown rule")
	// ErrInvalidRequest says that the request makes no sense; the error that wraps it says why.
	ErrInvalidRequest = errors.New("invalid request")
)

// Validate says what is wrong with the request whatever the rules are. Its errors wrap ErrInvalidRequest.
func (r *Request) Validate() error {
	switch {
	case r.Cost > counters.MaxLimit:
		return invalid("cost %d is above %d", r.Cost, uint64(counters.MaxLimit))
	case r.Rule != "" && len(r.Descriptors) > 0:
		return invalid("give either a rule and an identity, or a domain and descriptors, not both")
	case r.Asks != nil && len(r.Asks) != len(r.Descriptors):
		return invalid("%d asks for %d descriptors", len(r.Asks), len(r.Descriptors))
	case r.Rule != "":
		return nil
	case r.Identity != "":
		return invalid("an identity needs the rule that it is counted under")
	case r.Domain == "" && len(r.Descriptors) == 0:
		return invalid("give a domain and descriptors, or a rule and an identity")
	case r.Domain == "":
		return invalid("the domain is empty: give that of the rules")
	case len(r.Descriptors) == 0:
		return invalid("there are no descriptors")
	case len(r.Descriptors) > MaxDescriptors:
		return invalid("%d descriptors, at most %d are allowed", len(r.Descriptors), MaxDescriptors)
	}
	for i, entries := range r.Descriptors {
		if err := validateEntries(i+1, entries); err != nil {
			return err
		}
	}
	for i := range r.Asks {
		if cost := r.Asks[i].Cost; cost > counters.MaxLimit {
			return invalid("cost %d of descriptor %d is above %d", cost, i+1, uint64(counters.MaxLimit))
		}
	}
	return nil
}

// validateEntries checks the descriptor with the number n, counted from 1.
func validateEntries(n int, entries []Entry) error {
	switch {
	case len(entries) == 0:
		return invalid("descriptor %d has no entries", n)
	case len(entries) > MaxEntries:
		return invalid("descriptor %d has %d entries, at most %d are allowed", n, len(entries), MaxEntries)
	}
	for i := range entries {
		if entries[i].Key == "" {
			return invalid("entry %d of descriptor %d has an empty key", i+1, n)
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalidRequest, fmt.Sprintf(format, args...))
}
