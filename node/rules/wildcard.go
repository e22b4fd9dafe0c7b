package rules

import (
	"slices"
	"strings"
)

// pattern is a value with wildcards, each of which matches any number of characters, also none. The literal before the
// first one is the pattern's key in wildcards.begin.
type pattern struct {
	order  int      // place among its siblings in the file
	rest   []string // the literals after the first wildcard, at least one; what is between them is open
	inner  []int32  // the numbers of the literals of rest but for the last one, -1 of empty ones
	minLen int      // bytes of all literals
	node   *Node
}

// newPattern takes a value with wildcards apart.
func newPattern(value string, order int, n *Node) (prefix string, p pattern) {
	parts := strings.Split(value, "*")
	return parts[0], pattern{order: order, rest: parts[1:], minLen: len(value) - (len(parts) - 1), node: n}
}

// matches reports whether the value, which begins with the pattern's first literal, fits: it ends with the last one,
// and those between follow one another. The leftmost position of each literal leaves the longest rest for those after
// it.
func (p *pattern) matches(value string, prefix int) bool {
	last := p.rest[len(p.rest)-1]
	if len(value) < p.minLen || !strings.HasSuffix(value, last) {
		return false
	}
	open := value[prefix : len(value)-len(last)]
	for _, literal := range p.rest[:len(p.rest)-1] {
		i := strings.Index(open, literal)
		if i < 0 {
			return false
		}
		open = open[i+len(literal):]
	}
	return true
}

// matchWildcards reports whether a value fits a value with wildcards.
func matchWildcards(wild, value string) bool {
	prefix, p := newPattern(wild, 0, nil)
	return strings.HasPrefix(value, prefix) && p.matches(value, len(prefix))
}

// wildcards finds the first of many patterns, in the order of the file, that a value fits. It looks patterns up by the
// beginnings of the value.
type wildcards struct {
	lengths []beginnings         // the shortest first, each once
	begin   map[string][]pattern // by first literal, in the order of the file

	inside   int      // patterns with a literal between two wildcards
	literals literals // those
}

// longSearch is the product of a value's length and the number of patterns with inner literals from which on one search
// for all literals is cheaper.
const longSearch = 16 << 10

// beginnings are the first literals of one length.
type beginnings struct {
	length int
	last   [4]uint64 // a bit for each byte that one of them ends with, as most values can be told apart by it
}

// mayBegin reports whether one of the literals may begin the value, which is long enough.
func (b *beginnings) mayBegin(value string) bool {
	if b.length == 0 {
		return true
	}
	c := value[b.length-1]
	return b.last[c/64]&(1<<(c%64)) != 0
}

func (w *wildcards) add(value string, order int, n *Node) {
	prefix, p := newPattern(value, order, n)
	inside := 0
	for _, literal := range p.rest[:len(p.rest)-1] {
		number := int32(-1)
		if literal != "" {
			number, inside = w.literals.number(literal), 1
		}
		p.inner = append(p.inner, number)
	}
	w.inside += inside
	if w.begin == nil {
		w.begin = make(map[string][]pattern)
	}
	w.begin[prefix] = append(w.begin[prefix], p)
	i, known := slices.BinarySearchFunc(w.lengths, len(prefix),
		func(b beginnings, length int) int { return b.length - length })
	if !known {
		w.lengths = slices.Insert(w.lengths, i, beginnings{length: len(prefix)})
	}
	if prefix != "" {
		c := prefix[len(prefix)-1]
		w.lengths[i].last[c/64] |= 1 << (c % 64)
	}
}

// find returns the node of the first pattern that the value fits, nil for none.
func (w *wildcards) find(value string) *Node {
	var best *pattern
	var seen *marks // nil where that is not worth it
	if w.inside*len(value) >= longSearch {
		seen = w.literals.find(value)
		defer w.literals.marks.Put(seen)
	}
	for i := range w.lengths {
		b := &w.lengths[i]
		if b.length > len(value) {
			break
		}
		if !b.mayBegin(value) {
			continue
		}
		list := w.begin[value[:b.length]]
		for i := range list {
			p := &list[i]
			if best != nil && p.order > best.order {
				break
			}
			if seen != nil && !seen.fit(p, len(value), b.length) {
				continue
			}
			if p.matches(value, b.length) {
				best = p
				break
			}
		}
	}
	if best == nil {
		return nil
	}
	return best.node
}
