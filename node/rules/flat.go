package rules

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// identityKey is the key that flat rules count by.
const identityKey = "identity"

// isFlat reports whether a document is of the flat form: a list of rules, or a rule by itself.
func isFlat(root *yaml.Node) bool {
	if root.Kind != yaml.MappingNode {
		return root.Kind == yaml.SequenceNode
	}
	flat := false
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch key := root.Content[i].Value; {
		case slices.Contains(documentKeys, key):
			return false
		case slices.Contains(flatKeys, key):
			flat = true
		}
	}
	return flat
}

func (p *parser) flatDocument(root *yaml.Node) {
	if root.Kind == yaml.MappingNode {
		p.flatRule(root)
		return
	}
	for _, item := range root.Content {
		if p.stopped {
			return
		}
		p.flatRule(item)
	}
}

// flatRule reads {rule_id, limit, window_seconds, ...}: a rule outside of all domains, with one open key.
func (p *parser) flatRule(n *yaml.Node) {
	if p.descriptors++; p.descriptors > maxDescriptors {
		p.stop(n, "there are more than %d descriptors", maxDescriptors)
		return
	}
	f, ok := p.fields(n, "a rule", flatKeys)
	if !ok {
		return
	}
	id, ok := p.required(n, f, "rule_id", "a rule")
	e := Entry{Key: identityKey}
	at := place{
		fullName: escape(id, "/="), // without a slash it is that of no rule of a domain
		path:     []Entry{e}, steps: []step{p.step(e, f)}, regions: p.regions(f["regions"], nil),
	}
	switch first, known := p.flat[id]; {
	case !ok:
		at.fullName = "?"
	case known:
		p.add(f["rule_id"], "rule %.80q was already given at %s:%d", id, first.file, first.line)
	case !p.nameFits(f["rule_id"], at):
		at.fullName = "?"
	default:
		p.flat[id] = location{p.file, f["rule_id"].Line}
	}
	r := newRule(at)
	if id != "" {
		r.Name = id
	}
	p.rule(r, &source{form: flatForm, node: n, limit: f, beside: f})
	p.set.put(r)
}
