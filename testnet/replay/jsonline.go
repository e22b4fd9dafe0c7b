package replay

import (
	"encoding/json"
	"fmt"
	"strings"
)

// branch is a node in the tree of the paths that are wanted from a JSON object.
type branch struct {
	children map[string]*branch
	targets  []target
}

// target is whose value stands at the end of a path.
type target struct {
	number        int
	rank          int                 // of several paths to the same value the lowest counts
	part, convert func(string) string // are applied in this order, unless nil
}

// at returns the branch at the end of a path, whose steps are separated by dots. A dot within a step is written as \. .
func (b *branch) at(path string) *branch {
	step, rest, more := path, "", false
	for i := 0; i < len(path); i++ {
		if path[i] == '\\' {
			i++
		} else if path[i] == '.' {
			step, rest, more = path[:i], path[i+1:], true
			break
		}
	}
	step = strings.ReplaceAll(step, `\.`, ".")
	if b.children == nil {
		b.children = make(map[string]*branch)
	}
	child := b.children[step]
	if child == nil {
		child = new(branch)
		b.children[step] = child
	}
	if more {
		return child.at(rest)
	}
	return child
}

// maxDepth is how deep a line may nest.
const maxDepth = 64

// jsonLine takes wanted values out of an object without building the rest. It accepts what encoding/json does, if it is an object and does
// not nest deeper than maxDepth. Of a list the first element counts; of a key that is given twice the last.
type jsonLine struct {
	s      string
	i      int
	values []string
	ranks  []int
}

// parse reads the line into values, which are empty before. Strings share its memory.
func (p *jsonLine) parse(line string, wanted *branch, values []string) error {
	p.s, p.i, p.values, p.ranks = line, 0, values, p.ranks[:0]
	for range values {
		p.ranks = append(p.ranks, int(^uint(0)>>1))
	}
	p.space()
	ok := p.peek() == '{' && p.value(wanted, 0)
	if p.space(); !ok || p.i < len(p.s) {
		return fmt.Errorf("not a JSON object: it makes no sense at byte %d", p.i+1)
	}
	return nil
}

func (p *jsonLine) value(b *branch, depth int) bool {
	start := p.i
	switch c := p.peek(); {
	case c == '{':
		return depth < maxDepth && p.object(b, depth+1)
	case c == '[':
		return depth < maxDepth && p.list(b, depth+1)
	case c == '"':
		s, ok := p.str(b != nil && len(b.targets) > 0)
		if ok {
			p.found(b, s)
		}
		return ok
	case c == '-' || digit(c):
		if !p.numeral() {
			return false
		}
		p.found(b, p.s[start:p.i])
		return true
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if strings.HasPrefix(p.s[p.i:], word) {
			if p.i += len(word); word != "null" {
				p.found(b, word)
			}
			return true
		}
	}
	return false
}

// found hands a value to those who want it. A dash is how servers write nothing.
func (p *jsonLine) found(b *branch, s string) {
	if b == nil {
		return
	}
	for _, t := range b.targets {
		v := s
		if t.part != nil {
			v = t.part(v)
		}
		if t.convert != nil {
			v = t.convert(v)
		}
		if v != "" && v != "-" && t.rank <= p.ranks[t.number] {
			p.values[t.number], p.ranks[t.number] = v, t.rank
		}
	}
}

func (p *jsonLine) object(b *branch, depth int) bool {
	p.i++
	if p.space(); p.peek() == '}' {
		p.i++
		return true
	}
	for {
		if p.space(); p.peek() != '"' {
			return false
		}
		key, ok := p.str(true)
		if !ok {
			return false
		}
		if p.space(); p.peek() != ':' {
			return false
		}
		p.i++
		p.space()
		var child *branch
		if b != nil {
			child = b.children[key]
		}
		if !p.value(child, depth) {
			return false
		}
		if more, ok := p.next('}'); !more {
			return ok
		}
	}
}

func (p *jsonLine) list(b *branch, depth int) bool {
	p.i++
	if p.space(); p.peek() == ']' {
		p.i++
		return true
	}
	for {
		p.space()
		if !p.value(b, depth) {
			return false
		}
		b = nil
		if more, ok := p.next(']'); !more {
			return ok
		}
	}
}

// next steps over what follows an element: a comma, or the end.
func (p *jsonLine) next(end byte) (more, ok bool) {
	p.space()
	c := p.peek()
	if c != ',' && c != end {
		return false, false
	}
	p.i++
	return c == ',', true
}

// str reads a string; escapes are resolved only for who wants it.
func (p *jsonLine) str(want bool) (string, bool) {
	start, escaped := p.i, false
	for p.i++; p.i < len(p.s); p.i++ {
		switch c := p.s[p.i]; {
		case c == '"':
			p.i++
			if !escaped || !want {
				return p.s[start+1 : p.i-1], true
			}
			var s string
			return s, json.Unmarshal([]byte(p.s[start:p.i]), &s) == nil
		case c < ' ':
			return "", false
		case c == '\\':
			escaped = true
			if !p.escape() {
				return "", false
			}
		}
	}
	return "", false
}

// escape checks what follows a backslash, and stops at its last character.
func (p *jsonLine) escape() bool {
	p.i++
	switch c := p.peek(); {
	case c == 'u':
		for range 4 {
			p.i++
			if c := p.peek(); !digit(c) && (c|0x20 < 'a' || c|0x20 > 'f') {
				return false
			}
		}
		return true
	default:
		return c != 0 && strings.IndexByte(`"\/bfnrt`, c) >= 0
	}
}

// numeral steps over a number.
func (p *jsonLine) numeral() bool {
	if p.peek() == '-' {
		p.i++
	}
	if p.peek() == '0' {
		p.i++
	} else if !p.digits() {
		return false
	}
	if p.peek() == '.' {
		if p.i++; !p.digits() {
			return false
		}
	}
	if p.peek()|0x20 == 'e' {
		p.i++
		if c := p.peek(); c == '+' || c == '-' {
			p.i++
		}
		return p.digits()
	}
	return true
}

func (p *jsonLine) digits() bool {
	start := p.i
	for digit(p.peek()) {
		p.i++
	}
	return p.i > start
}

func (p *jsonLine) space() {
	for p.i < len(p.s) && (p.s[p.i] == ' ' || p.s[p.i] == '\t' || p.s[p.i] == '\n' || p.s[p.i] == '\r') {
		p.i++
	}
}

// peek is the next byte, 0 at the end: no place of an object may have one outside of strings.
func (p *jsonLine) peek() byte {
	if p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

func digit(c byte) bool { return '0' <= c && c <= '9' }
