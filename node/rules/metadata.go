package rules

import (
	"math"

	"go.yaml.in/yaml/v3"
)

// metadata reads a map of anything that JSON can say: what the rule file tells others about a rule.
func (p *parser) metadata(n *yaml.Node) map[string]any {
	if n == nil || isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		p.add(n, "metadata must be a map, not %s", describe(n))
		return nil
	}
	m, _ := p.anything(n, 0).(map[string]any)
	return m
}

// anything reads a map, a list or a scalar; depth is how deep it lies.
func (p *parser) anything(n *yaml.Node, depth int) any {
	n = p.deref(n)
	if p.stopped {
		return nil
	}
	if depth > MaxEntries {
		p.add(n, "metadata is nested more than %d deep", MaxEntries)
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key, ok := p.text(p.deref(n.Content[i]), "a key in metadata"); ok {
				m[key] = p.anything(n.Content[i+1], depth+1)
			}
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			list = append(list, p.anything(item, depth+1))
		}
		return list
	}
	return p.scalar(n)
}

func (p *parser) scalar(n *yaml.Node) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int", "!!float":
		var f float64
		if n.Decode(&f) == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
		p.add(n, "metadata holds %s, which is no number that could be told", describe(n))
		return nil
	}
	text, _ := p.text(n, "an entry of metadata")
	return text
}
