package rules

import (
	"slices"

	"github.com/edgelimit/edgelimit/counters"
)

// borrows reports whether the layer may borrow from its rule's parent. Listed clients do not.
func (m *Match) borrows() bool {
	return m.Rule != nil && m.Rule.parent != nil && m.Rule.Mode == counters.Elastic && m.Listed == Unlisted
}

// findLender finds the layer that the elastic layer i borrows from, among those from first on. A parent that the
// request does not meet itself is appended as one more layer if its key is known: that of an ancestor follows from the
// entries, that of a rule with one count for everybody is constant. A parent that another rule replaces is not met.
func findLender(dst []Match, first, i int, entries []Entry, secret Secret, alternatives uint32) ([]Match, error) {
	layers, child := dst[first:], dst[first+i].Rule
	parent := child.parent
	met := Match{Rule: parent}
	if child.brings {
		met.Key = parent.key(secret, entries)
		if parent.Lists != nil { // then its last key is open, and the parent an ancestor
			met.Listed = parent.listing(entries[len(parent.Entries)-1].Value)
		}
	}
	at := slices.IndexFunc(layers,
		func(m Match) bool { return m.Rule == parent && (!child.brings || m.Key == met.Key) })
	switch {
	case at >= 0:
	case !child.brings || replacedBy(parent, -1, layers, alternatives) != nil:
		return dst, nil
	case len(layers) == MaxDescriptors:
		return dst, invalid("it meets more than %d limits, with the parents of elastic rules: send fewer descriptors",
			MaxDescriptors)
	default:
		at = len(layers)
		dst = append(dst, met)
	}
	dst[first+i].lender = uint8(at + 1)
	return dst, nil
}

// Borrow sets the parent of an elastic rule. Both are in a Set that is not used yet.
func (r *Rule) Borrow(parent *Rule) {
	r.parent, r.Parent = parent, parent.FullName
	r.brings = len(parent.open) == 0 ||
		len(parent.Entries) < len(r.Entries) && slices.Equal(parent.Entries, r.Entries[:len(parent.Entries)])
}
