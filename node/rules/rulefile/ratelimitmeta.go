package rulefile

import (
	"math"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/node/rules"
)

// metadata reads the metadata of a descriptor, which goes over the keys that it already has.
func (r *ratelimitMap) metadata(n *yaml.Node) *yaml.Node {
	m := mapNode(n)
	if before := r.get("metadata"); before != nil {
		m.Content = append(m.Content, before.Content...)
	}
	m.Content = append(m.Content, r.parser.anything11(n, 0).Content...)
	return m
}

// anything11 reads a map, a list or a scalar of metadata into one that this package reads in the same way.
func (p *parser) anything11(n *yaml.Node, depth int) *yaml.Node {
	if depth == rules.MaxEntries+1 {
		p.warn(n, "metadata is nested more than %d deep", rules.MaxEntries)
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := mapNode(n)
		p.pairs(n, false, func(kv pair) {
			name := p.utf8Node(kv.key, keyText(read11(kv.key), depth))
			p.within(kv.value, func(v *yaml.Node) { m.Content = append(m.Content, name, p.anything11(v, depth+1)) })
		})
		return m
	case yaml.SequenceNode:
		l := listNode(n)
		for _, item := range n.Content {
			p.within(item, func(item *yaml.Node) { l.Content = append(l.Content, p.anything11(item, depth+1)) })
		}
		return l
	}
	return p.scalar11(n)
}

// keyText is a key of metadata as text: at the top as written, deeper down as what YAML 1.1 makes of it.
func keyText(s scalar11, depth int) string {
	switch {
	case depth == 0 && s.kind == nullScalar:
		return ""
	case depth == 0:
		return s.text
	case s.kind == nullScalar:
		return "<nil>"
	case s.kind == boolScalar:
		return strconv.FormatBool(s.yes)
	case s.kind == wholeScalar:
		return strconv.FormatInt(s.whole, 10)
	case s.kind == numberScalar:
		return strconv.FormatFloat(s.number, 'g', -1, 64)
	}
	return s.text
}

// scalar11 reads a scalar of metadata.
func (p *parser) scalar11(n *yaml.Node) *yaml.Node {
	switch s := read11(n); s.kind {
	case nullScalar:
		return scalarNode(n, "!!null", "")
	case boolScalar:
		return flagNode(n, s.yes)
	case wholeScalar, numberScalar:
		if math.IsNaN(s.number) || math.IsInf(s.number, 0) {
			p.warn(n, "metadata holds %s, which counts as text", describe(n))
			return textNode(n, n.Value)
		}
		return scalarNode(n, "!!float", strconv.FormatFloat(s.number, 'g', -1, 64))
	default:
		return p.utf8Node(n, s.text)
	}
}

// utf8Node returns a node of text, which only !!binary can make anything but UTF-8.
func (p *parser) utf8Node(n *yaml.Node, text string) *yaml.Node {
	if !utf8.ValidString(text) {
		p.add(n, "metadata holds text that is not UTF-8")
	}
	return textNode(n, text)
}
