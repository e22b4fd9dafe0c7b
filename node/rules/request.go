package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/edgelimit/edgelimit/counters"
)

// The maximum size of a request bounds its cost for a node.
const (
	MaxDescriptors = 32 // in a request
	MaxEntries     = 32 // in a descriptor, and so the depth of a rule file
)

// Entry is one key and value of a descriptor.
type Entry struct {
	Key   string
	Value string
}

// Quoted returns the entry for a message, shortened.
func (e Entry) Quoted() string {
	if e.Value == "" {
		return fmt.Sprintf("%.32q", e.Key)
	}
	return fmt.Sprintf("%.32q with value %.32q", e.Key, e.Value)
}

// Request is what every API asks of a node: may this pass? It names its limits either by Domain and Descriptors, as
// Envoy does, or by Rule and Identity. It is read only during the call.
type Request struct {
	// Domain and Descriptors are matched against the rules: each descriptor meets at most one rule and is one layer.
	// The request is charged in all its layers or in none.
	Domain      string
	Descriptors [][]Entry
	// Alternatives marks descriptors that are other readings of the one before, by bits from the lowest: a counter that
	// several readings of one descriptor meet is charged once.
	Alternatives uint32
	// Asks are the costs and limits of single descriptors, in place of Cost and Peek; nil: none. A parent that elastic
	// rules bring along gets the highest cost of theirs.
	Asks []Ask
	// Rule and Identity address one rule directly by its name (or its full name). They exclude Domain and Descriptors,
	// but Domain may be given to choose between rules of the same name.
	Rule     string
	Identity string
	// Cost is charged to each layer without an Ask. 0, as it is unset, means 1; a cost of nothing is a Peek.
	Cost uint64
	// Overdraw marks a cost of more than 1 as a charge after the fact, which counts though it is denied, unless the
	// rule has another [Policy].
	Overdraw bool
	// Peek asks without charging: the answer is that of a request of cost 1.
	Peek bool
	// OnFailure is what happens where the request cannot be decided as the rules want, whatever these say.
	OnFailure Failure
	// Response is that of the request, for a report: rules that charge responses, and no others, are charged then.
	Response *Response
	// Client is the address of who made the request, for its share of what the node's clients use together; not valid:
	// it has none.
	Client netip.Addr
	// Header is the request's own, of one that the node may hold back, and TargetBytes what its target and host
	// occupy beside it while it waits.
	Header      map[string][]string
	TargetBytes int
}

// Ask is the cost and the limit of one descriptor.
type Ask struct {
	// Cost is what the descriptor's layer is charged. 0 peeks: the answer is that of a cost of 1, and this layer is not
	// charged.
	Cost uint64
	// Limit replaces the rule of the descriptor, if any; nil: the rule applies. It is counted by the domain and all
	// entries of the descriptor. In an unknown domain the descriptor meets nothing.
	Limit *counters.Limit
}

// OverrideName is the name of an Ask's limit in decisions.
const OverrideName = "override"

// ParseCost reads a cost as all APIs write it: in plain digits. 0 charges nothing. A number beyond 64 bits is the
// largest: it is above any limit, too.
func ParseCost(text string) (cost uint64, err error) {
	if cost, err = strconv.ParseUint(text, 10, 64); err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, invalid("cost %.32q: give a whole number, not negative, in plain digits", text)
	}
	return cost, nil
}

// SetCost sets the cost that a caller names: of 0 the request is a peek.
func (r *Request) SetCost(cost uint64) { r.Cost, r.Peek = cost, r.Peek || cost == 0 }

// EffectiveCost returns the cost of each layer that has no Ask: 0 for a peek, otherwise at least 1.
func (r *Request) EffectiveCost() uint64 {
	if r.Peek {
		return 0
	}
	return max(r.Cost, 1)
}

// Errors of requests. APIs turn them into the refusal of their protocol.
var (
	// ErrUnknownRule: no rule has the name in the request.
	ErrUnknownRule = errors.New("unknown rule")
	// ErrInvalidRequest: the request is invalid; the error that wraps it has the reason.
	ErrInvalidRequest = errors.New("invalid request")
)

// Validate checks the request by itself, without rules. Its errors wrap ErrInvalidRequest.
func (r *Request) Validate() error { return r.validate(false) }

// validate is Validate of a request in a domain that is compatible with envoyproxy/ratelimit, or not.
func (r *Request) validate(compatible bool) error {
	switch {
	case r.Cost > counters.MaxLimit && !compatible:
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
	case compatible:
		return nil
	}
	for i, entries := range r.Descriptors {
		switch {
		case len(entries) == 0:
			return invalid("descriptor %d has no entries", i+1)
		case len(entries) > MaxEntries:
			return invalid("descriptor %d has %d entries, at most %d are allowed", i+1, len(entries), MaxEntries)
		}
		for j := range entries {
			if entries[j].Key == "" {
				return invalid("entry %d of descriptor %d has an empty key", j+1, i+1)
			}
		}
	}
	for i := range r.Asks {
		if cost := r.Asks[i].Cost; cost > counters.MaxLimit {
			return invalid("cost %d of descriptor %d is above %d", cost, i+1, uint64(counters.MaxLimit))
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalidRequest, fmt.Sprintf(format, args...))
}
