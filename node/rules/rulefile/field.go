package rulefile

import (
	"fmt"
	"iter"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/node/rules"
)

// deref resolves an alias.
func (p *parser) deref(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.AliasNode {
		return n
	}
	p.aliased += weigh(n.Alias, maxAliased)
	if p.aliased > maxAliased {
		p.stop(n, "aliases stand for more than %d nodes: write the rules out", maxAliased)
	}
	return n.Alias
}

// weigh counts the nodes of a tree, up to a little more than max. Aliases inside are counted when they are resolved.
func weigh(n *yaml.Node, max int) int {
	sum := 1
	for _, c := range n.Content {
		if sum > max {
			break
		}
		sum += weigh(c, max-sum)
	}
	return sum
}

// fields returns the values of a map by key, aliases resolved, and reports keys that are unknown or given twice. what
// names the place. It returns nil if n is no map. A merge key (<<) adds the keys of another map that n lacks.
func (p *parser) fields(n *yaml.Node, what string, known keys) map[string]*yaml.Node {
	n = p.deref(n)
	if n.Kind != yaml.MappingNode {
		p.add(n, "%s must be a map, not %s", what, describe(n))
		return nil
	}
	f := make(map[string]*yaml.Node, len(known))
	lines := make(map[string]int, len(known))
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content) && !p.stopped; i += 2 {
		key := p.deref(n.Content[i])
		switch {
		case key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge":
			merged = append(merged, n.Content[i+1])
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			p.add(key, "a key in %s must be a string, not %s", what, describe(key))
		case lines[key.Value] > 0:
			p.add(key, "key %.32q was already given in line %d", key.Value, lines[key.Value])
		case !known.has(key.Value):
			p.add(key, "%s", unknown("key", key.Value, what, known.names()))
			lines[key.Value] = key.Line
		default:
			f[key.Value] = p.deref(n.Content[i+1])
			lines[key.Value] = key.Line
		}
	}
	for _, m := range merged {
		p.merge(m, what, known, f)
	}
	return f
}

// merge adds a merge key's map, or list of maps, to f: the first that has a key wins.
func (p *parser) merge(n *yaml.Node, what string, known keys, f map[string]*yaml.Node) {
	from := []*yaml.Node{n}
	if n = p.deref(n); n.Kind == yaml.SequenceNode {
		from = n.Content
	}
	for _, m := range from {
		if p.merging++; p.stopped || p.merging > rules.MaxEntries {
			p.stop(m, "maps are merged into one another more than %d deep", rules.MaxEntries)
			return
		}
		g := p.fields(m, what, known)
		p.merging--
		for key, value := range g {
			if f[key] == nil {
				f[key] = value
			}
		}
	}
}

// required returns the text of a field that may be neither missing nor empty; "" after a problem. n is the map that
// holds it; f is nil if that is no map.
func (p *parser) required(n *yaml.Node, f map[string]*yaml.Node, key, what string) string {
	if f[key] == nil {
		if f != nil {
			p.add(n, "%s needs a %s", what, key)
		}
		return ""
	}
	s, ok := p.text(f[key], key)
	if ok && s == "" {
		p.add(f[key], "the %s is empty", key)
	}
	return s
}

// text returns the text of a scalar, "" for none. Numbers and the like stay as written: 404 as a value is the text
// "404".
func (p *parser) text(n *yaml.Node, what string) (string, bool) {
	if n == nil || isNull(n) {
		return "", true
	}
	if n.Kind == yaml.ScalarNode && slices.Contains(scalars, n.ShortTag()) {
		return n.Value, true
	}
	p.add(n, "%s must be a string, not %s", what, describe(n))
	return "", false
}

// refuse reports keys that stand where they may not.
func (p *parser) refuse(f map[string]*yaml.Node, why string, keys ...string) {
	for _, key := range keys {
		if f[key] != nil {
			p.add(f[key], "%s %s", key, why)
		}
	}
}

// flag reads a boolean, false if it is missing.
func (p *parser) flag(f map[string]*yaml.Node, key string) (yes bool) {
	n := f[key]
	if n != nil && (n.Kind != yaml.ScalarNode || isNull(n) || n.Decode(&yes) != nil) {
		p.add(n, "%s must be true or false, not %s", key, describe(n))
	}
	return yes
}

// whole reads a number within the range of its key, missing if there is none.
func (p *parser) whole(f map[string]*yaml.Node, key string, missing uint64) uint64 {
	if f[key] == nil {
		return missing
	}
	return p.inRange(f[key], key)
}

func (p *parser) inRange(n *yaml.Node, key string) (v uint64) {
	r := ranges[key]
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Decode(&v) != nil || v < r.min || v > r.max {
		p.add(n, "%s must be a whole number from %d to %d, not %s", key, r.min, r.max, describe(n))
	}
	return v
}

// number reads a number above 0, which may be fractional.
func (p *parser) number(n *yaml.Node, key, what string, max float64) (v float64) {
	isNumber := n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!int" || n.ShortTag() == "!!float")
	if !isNumber || n.Decode(&v) != nil || !(v > 0 && v <= max) {
		p.add(n, "%s must be a %s above 0, at most %.0f, not %s", key, what, max, describe(n))
	}
	return v
}

// items yields the nodes of a list until the parser stops. A missing list is empty.
func (p *parser) items(n *yaml.Node, what string) iter.Seq[*yaml.Node] {
	return func(yield func(*yaml.Node) bool) {
		if n == nil || isNull(n) {
			return
		}
		if n.Kind != yaml.SequenceNode {
			p.add(n, "%s must be a list, not %s", what, describe(n))
			return
		}
		for _, item := range n.Content {
			if p.stopped || !yield(item) {
				return
			}
		}
	}
}

// texts yields the texts of a list with their nodes. A missing list is empty.
func (p *parser) texts(n *yaml.Node, what string) iter.Seq2[*yaml.Node, string] {
	return func(yield func(*yaml.Node, string) bool) {
		for item := range p.items(n, what) {
			item = p.deref(item)
			if text, ok := p.text(item, "an entry of "+what); ok && !yield(item, text) {
				return
			}
		}
	}
}

// scalars are the tags that are accepted as text.
var scalars = []string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp"}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// describe describes a node in a message.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "empty"
	case n.ShortTag() == "!!str":
		return fmt.Sprintf("%.32q", n.Value)
	case !slices.Contains(scalars, n.ShortTag()):
		return fmt.Sprintf("a value tagged %.32s", n.ShortTag())
	}
	return fmt.Sprintf("%.32s", n.Value)
}
