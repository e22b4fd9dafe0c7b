package rules

import (
	"bytes"
	"math/bits"
	"unsafe"

	"github.com/edgelimit/edgelimit/counters"
)

// A domain may be compatible with envoyproxy/ratelimit: its requests meet the rules that they would meet there, and
// count as they would there. What is different from other domains:
//
//   - A descriptor of a file is found by its key and value in one text, as "path_/login", so that a wildcard may stand
//     in the key as well.
//   - A rule counts by the text of all keys and values, as they come: addresses are not grouped. Under a wildcard with
//     share_threshold the wildcard stands for the value, but not where the request brings its own limit. A wildcard in
//     the key is in that value as a whole: under "user*" all values of the key "user1" share a count.
//   - A rule with a fixed window counts every request (counters.Limit.Tally), each layer by itself.
//   - A limit that a request brings along counts with the rule that the descriptor meets, if both have the same window.
//   - A request may have any number of descriptors, entries and hits, and entries without a key.
//
// Each other property of a rule works as elsewhere.

// NewCompatible returns the top of the tree of a compatible domain.
func NewCompatible() *Node { return &Node{joined: new(branch)} }

// JoinedKey returns the text by which the descriptor of an entry is found in a compatible domain. Within one parent it
// is unique.
func JoinedKey(e Entry) string {
	if e.Value == "" {
		return e.Key
	}
	return e.Key + "_" + e.Value
}

// joinedChild is child in a compatible domain.
func (n *Node) joinedChild(e *Entry) *Node {
	if len(n.children) == 0 {
		return nil
	}
	var stack [stackKey]byte
	b := append(append(append(stack[:0], e.Key...), '_'), e.Value...)
	// find keeps nothing of the text, which changes no more.
	if c := n.joined.find(unsafe.String(unsafe.SliceData(b), len(b))); c != nil {
		return c
	}
	return n.joined.exact[e.Key]
}

// shares reports whether all values of an entry share the rule's count under a wildcard.
func (r *Rule) shares(entry int) bool {
	e := &r.Entries[entry]
	return !r.Steps[entry].Open && (IsWild(e.Value) || IsWild(e.Key))
}

// joinedKey is the key of a descriptor under the rule, which counts by the text of all its keys and values.
func (r *Rule) joinedKey(secret Secret, entries []Entry) counters.Key {
	var stack [stackKey]byte
	b := stack[:0]
	for i := range entries {
		if r.shares(i) {
			b = appendShared(b, entries[i].Key, r.Entries[i])
		} else {
			b = appendJoined(b, entries[i].Key, entries[i].Value)
		}
	}
	return KeyOf(secret, b)
}

// appendShared appends the key of a request and the pattern that stands for its value: the text of e without that key,
// where it begins with it.
func appendShared(b []byte, key string, e Entry) []byte {
	b = append(append(b, key...), '_')
	pattern := len(b)
	b = append(b, e.Key...)
	if e.Value != "" {
		b = append(append(b, '_'), e.Value...)
	}
	if prefix := b[pattern-len(key)-1 : pattern]; bytes.HasPrefix(b[pattern:], prefix) {
		b = append(b[:pattern], b[pattern+len(prefix):]...)
	}
	return append(b, '_')
}

// joinedOverrideKey is the key of a descriptor under a limit of the request that no rule counts.
func joinedOverrideKey(secret Secret, domain string, entries []Entry) counters.Key {
	var stack [stackKey]byte
	b := appendSized(stack[:0], domain)
	for i := range entries {
		b = appendJoined(b, entries[i].Key, entries[i].Value)
	}
	return KeyOf(secret, b)
}

func appendJoined(b []byte, key, value string) []byte {
	b = append(append(b, key...), '_')
	return append(append(b, value...), '_')
}

// tallied returns the limit of a request on a rule: the request's own number, counted with the rule's requests if both
// have the same window; nil if they do not count together.
func (r *Rule) tallied(own *counters.Limit, entries []Entry) *counters.Limit {
	if r == nil || r.Limit == nil || !r.Limit.Tallies() || r.Limit.Meter().Window != own.Meter().Window {
		return nil
	}
	for i := range r.Steps {
		if r.shares(i) && entries[i] != r.Entries[i] { // a client may ask for the wildcard itself
			return nil
		}
	}
	// a fixed window with the maximum of a limit has no error
	l, _ := r.Limit.Override(own.Max(), r.Limit.Meter().Window)
	return l
}

// Tallies reports whether the layer counts every request.
func (m *Match) Tallies(req *Request) bool {
	switch {
	case m.Rule != nil:
		return m.Rule.Limit != nil && m.Rule.Limit.Tallies()
	case m.asked != 0:
		return req.Asks[m.asked-1].Limit.Tallies()
	}
	return false
}

// times returns a cost by a rule's factor, at most counters.MaxTally.
func times(cost, factor uint64) uint64 {
	if hi, lo := bits.Mul64(cost, factor); hi == 0 {
		return min(lo, counters.MaxTally)
	}
	return counters.MaxTally
}
