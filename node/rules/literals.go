package rules

import (
	"bytes"
	"sync"
)

// literals finds where many literals begin in a text, in one pass. Without it a long value costs its length for each
// literal of each pattern. It knows the first literalBytes bytes of each literal, which bounds the time of a pass: it
// returns where a literal may be.
type literals struct {
	root  prefix
	count int32
	marks sync.Pool
}

const literalBytes = 16

// prefix is a node of a trie.
type prefix struct {
	literal  int32 // that ends here, counted from 1; 0: none
	bytes    []byte
	children []*prefix // after each of bytes
}

// child returns the node after one more byte; nil for none.
func (p *prefix) child(c byte) *prefix {
	if i := bytes.IndexByte(p.bytes, c); i >= 0 {
		return p.children[i]
	}
	return nil
}

// number adds a literal that is not empty. Equal ones share a number, from 0.
func (l *literals) number(literal string) int32 {
	at := &l.root
	for i := range min(len(literal), literalBytes) {
		next := at.child(literal[i])
		if next == nil {
			next = new(prefix)
			at.bytes, at.children = append(at.bytes, literal[i]), append(at.children, next)
		}
		at = next
	}
	if at.literal == 0 {
		l.count++
		at.literal = l.count
	}
	return at.literal - 1
}

// marks are where the literals of one text begin: the first and the last time; -1: never.
type marks struct{ first, last []int32 }

// find marks the literals in a text. The caller returns the marks to l.marks.
func (l *literals) find(text string) *marks {
	m, ok := l.marks.Get().(*marks)
	if !ok {
		m = &marks{make([]int32, l.count), make([]int32, l.count)}
	}
	for i := range m.first {
		m.first[i], m.last[i] = -1, -1
	}
	for i := range len(text) {
		at := l.root.child(text[i])
		for j := i + 1; at != nil; j++ {
			if n := at.literal - 1; n >= 0 {
				if m.last[n] = int32(i); m.first[n] < 0 {
					m.first[n] = int32(i)
				}
			}
			if j == len(text) {
				break
			}
			at = at.child(text[j])
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
