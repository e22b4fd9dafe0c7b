package replay

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/tidwall/gjson"
)

// branch is a node of the tree of paths that are read from a JSON object.
type branch struct {
	children map[string]*branch
	targets  []target
}

// target is a value that a path sets.
type target struct {
	index         int                 // in the line's values
	rank          int                 // of several paths to one value the lowest wins
	part, convert func(string) string // applied in this order, unless nil
}

// at returns the branch at the end of a path. Dots separate its steps; \. is a dot within a step.
func (b *branch) at(path string) *branch {
	for step := range strings.SplitSeq(strings.ReplaceAll(path, `\.`, "\x00"), ".") {
		step = strings.ReplaceAll(step, "\x00", ".")
		child := b.children[step]
		if child == nil {
			if b.children == nil {
				b.children = make(map[string]*branch)
			}
			child = new(branch)
			b.children[step] = child
		}
		b = child
	}
	return b
}

// maxDepth is the deepest nesting of a line that is read.
const maxDepth = 64

// jsonLine reads the values at wanted paths of an object. Of an array it reads the first element, of a repeated key the
// last value.
type jsonLine struct {
	values []string
	ranks  []int // of the path that set each value
}

// parse sets values, which must be empty. They share the line's memory.
func (p *jsonLine) parse(line string, wanted *branch, values []string) error {
	if strings.Count(line, "{")+strings.Count(line, "[") > maxDepth && depth(line) > maxDepth {
		return fmt.Errorf("not a JSON object: it nests deeper than %d levels", maxDepth)
	}
	object := gjson.Parse(line)
	if !object.IsObject() || !gjson.Valid(line) {
		err := json.Unmarshal([]byte(line), new(map[string]json.RawMessage)) // says what is wrong
		return fmt.Errorf("not a JSON object: %w", cmp.Or(err, errors.New("it is null")))
	}
	p.values, p.ranks = values, p.ranks[:0]
	for range values {
		p.ranks = append(p.ranks, math.MaxInt)
	}
	p.read(object, wanted)
	return nil
}

func (p *jsonLine) read(v gjson.Result, b *branch) {
	switch {
	case v.IsObject():
		v.ForEach(func(key, child gjson.Result) bool {
			if b := b.children[key.Str]; b != nil {
				p.read(child, b)
			}
			return true
		})
	case v.IsArray():
		v.ForEach(func(_, first gjson.Result) bool {
			p.read(first, b)
			return false
		})
	case v.Type == gjson.String:
		p.set(b.targets, text(v))
	case v.Type != gjson.Null:
		p.set(b.targets, v.Raw)
	}
}

// text returns a string's value. gjson resolves invalid escapes of surrogates otherwise than encoding/json.
func text(v gjson.Result) string {
	if !strings.Contains(v.Raw, `\u`) {
		return v.Str
	}
	var s string
	_ = json.Unmarshal([]byte(v.Raw), &s) // a valid string
	return s
}

// set sets the targets to s. Servers write "-" for an empty value.
func (p *jsonLine) set(targets []target, s string) {
	for _, t := range targets {
		v := s
		if t.part != nil {
			v = t.part(v)
		}
		if t.convert != nil {
			v = t.convert(v)
		}
		if v != "" && v != "-" && t.rank <= p.ranks[t.index] {
			p.values[t.index], p.ranks[t.index] = v, t.rank
		}
	}
}

// depth returns the deepest nesting of objects and arrays in a line.
func depth(line string) (deepest int) {
	level, quoted := 0, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return deepest
}
