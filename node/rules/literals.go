package rules

import (
	"slices"
	"strings"
	"sync"
)

// literals finds many literals in a text in one pass, with the Aho-Corasick automaton. Without it a long value costs
// its length for each literal of each pattern. It knows the first literalBytes bytes of each literal, which bounds its
// memory: it returns where a literal may be.
type literals struct {
	states []state // the root is 0
	edges  []edge  // of all states, those of one in order
	lens   []int32 // of the literals as they are known, by number
	marks  sync.Pool
}

const literalBytes = 16

// state is a prefix of some literal that the text ends with.
type state struct {
	firstEdge, edges int32
	shorter          int32 // the state of the longest proper suffix
	literal          int32 // that ends here, counted from 1; 0: none
	suffix           int32 // the next state on the way over shorter ones at which a literal ends, 0: none
}

type edge struct {
	to int32
	by byte
}

// marks are where the literals of one text begin: the first and the last time; -1: never.
type marks struct{ first, last []int32 }

// newLiterals numbers the literals from 0 in the order of arrival; equal ones share a number.
type newLiterals struct {
	literals
	numbers map[string]int32
	next    []map[byte]int32 // of each state
}

// number adds a literal that is not empty.
func (b *newLiterals) number(literal string) int32 {
	literal = literal[:min(len(literal), literalBytes)]
	if n, ok := b.numbers[literal]; ok {
		return n
	}
	if b.numbers == nil {
		b.numbers, b.states, b.next = make(map[string]int32), make([]state, 1), make([]map[byte]int32, 1)
	}
	n, at := int32(len(b.lens)), int32(0)
	for i := range len(literal) {
		to := b.next[at][literal[i]]
		if to == 0 {
			to = int32(len(b.states))
			b.states, b.next = append(b.states, state{}), append(b.next, nil)
			if b.next[at] == nil {
				b.next[at] = make(map[byte]int32, 1)
			}
			b.next[at][literal[i]] = to
		}
		at = to
	}
	b.numbers[literal], b.lens = n, append(b.lens, int32(len(literal)))
	b.states[at].literal = n + 1
	return n
}

// build returns the automaton of the added literals, at least one.
func (b *newLiterals) build() *literals {
	l := &b.literals
	for queue := []int32{0}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		s := &l.states[at]
		s.firstEdge, s.edges = int32(len(l.edges)), int32(len(b.next[at]))
		for by, to := range b.next[at] {
			l.edges = append(l.edges, edge{to, by})
		}
		edges := l.edges[s.firstEdge:]
		slices.SortFunc(edges, func(a, b edge) int { return int(a.by) - int(b.by) })
		for _, e := range edges {
			queue = append(queue, e.to)
			if at == 0 {
				continue
			}
			child := &l.states[e.to]
			child.shorter = l.step(s.shorter, e.by)
			if child.suffix = child.shorter; l.states[child.shorter].literal == 0 {
				child.suffix = l.states[child.shorter].suffix
			}
		}
	}
	l.marks.New = func() any { return &marks{make([]int32, len(l.lens)), make([]int32, len(l.lens))} }
	return l
}

// step returns the state after one more byte.
func (l *literals) step(at int32, by byte) int32 {
	for {
		s := &l.states[at]
		low, high := s.firstEdge, s.firstEdge+s.edges
		for low < high {
			if mid := (low + high) / 2; l.edges[mid].by < by {
				low = mid + 1
			} else {
				high = mid
			}
		}
		if low < s.firstEdge+s.edges && l.edges[low].by == by {
			return l.edges[low].to
		}
		if at == 0 {
			return 0
		}
		at = s.shorter
	}
}

// find marks the literals in a text. The caller returns the marks to l.marks.
func (l *literals) find(text string) *marks {
	m := l.marks.Get().(*marks)
	for i := range m.first {
		m.first[i], m.last[i] = -1, -1
	}
	at := int32(0)
	for i := range len(text) {
		at = l.step(at, text[i])
		for s := at; s != 0; s = l.states[s].suffix {
			if n := l.states[s].literal - 1; n >= 0 {
				m.last[n] = int32(i+1) - l.lens[n]
				if m.first[n] < 0 {
					m.first[n] = m.last[n]
				}
			}
		}
	}
	return m
}

// fit reports whether a pattern may match a text of that length, whose first bytes (prefix) and last literal are its
// own: each literal between them has to begin after the one before.
func (m *marks) fit(p *pattern, length, prefix int) bool {
	begin, end := prefix, length-len(p.rest[len(p.rest)-1])
	for i, n := range p.inner {
		if n < 0 {
			continue
		}
		if int(m.last[n]) < begin {
			return false
		}
		if begin = max(begin, int(m.first[n])) + len(p.rest[i]); begin > end {
			return false
		}
	}
	return true
}

// longSearch is the product of a value's length and the number of patterns with inner literals from which on one search
// for all literals is cheaper.
const longSearch = 16 << 10

// search marks the inner literals of the patterns in a value; nil where that is not worth it.
func (w *wildcards) search(value string) *marks {
	if w.inside*len(value) < longSearch {
		return nil
	}
	w.prepare.Do(func() {
		var b newLiterals
		for _, list := range w.begin {
			for i := range list {
				p := &list[i]
				for _, literal := range p.rest[:len(p.rest)-1] {
					n := int32(-1)
					if literal != "" {
						if n = b.number(literal); p.lead == 0 {
							p.lead = n + 1
						}
					}
					p.inner = append(p.inner, n)
				}
			}
		}
		w.literals = b.build()
	})
	return w.literals.find(value)
}

// hasInside reports whether the pattern has a literal between two wildcards.
func (p *pattern) hasInside() bool { return strings.Join(p.rest[:len(p.rest)-1], "") != "" }
