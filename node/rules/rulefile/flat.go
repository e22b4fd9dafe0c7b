package rulefile

import (
	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/node/rules"
)

// identityKey is the key by which flat rules count.
const identityKey = "identity"

// isFlat reports whether a document is of the flat form: a list of rules, or one rule.
func isFlat(root *yaml.Node) bool {
	if root.Kind != yaml.MappingNode {
		return root.Kind == yaml.SequenceNode
	}
	flat := false
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch key := root.Content[i].Value; {
		case documentKeys.has(key):
			return false
		case flatKeys.has(key):
			flat = true
		}
	}
	return flat
}

func (p *parser) flatDocument(root *yaml.Node) {
	p.compatible = false
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

// isFlat reports whether a document is of the flat form. Where files are those of envoyproxy/ratelimit, there is a rule
// with a rule_id in it.
func (p *parser) isFlat(root *yaml.Node) bool {
	if p.opt.Compatibility == "" || root.Kind != yaml.SequenceNode && root.Kind != yaml.MappingNode {
		return isFlat(root)
	}
	first := root
	if root.Kind == yaml.SequenceNode && len(root.Content) > 0 {
		first = root.Content[0]
	}
	for i := 0; i+1 < len(first.Content); i += 2 {
		if first.Content[i].Value == "rule_id" {
			return isFlat(root)
		}
	}
	return false
}

// flatRule reads {rule_id, limit, window_seconds, ...}: a rule outside of all domains, with one open key.
func (p *parser) flatRule(n *yaml.Node) {
	if p.descriptors++; p.descriptors > maxDescriptors {
		p.stop(n, "there are more than %d descriptors", maxDescriptors)
		return
	}
	f := p.fields(n, "a rule", flatKeys)
	if f == nil {
		return
	}
	id := p.required(n, f, "rule_id", "a rule")
	e := rules.Entry{Key: identityKey}
	at := rules.Place{
		FullName: rules.Component(rules.Entry{Key: id}), // without a slash no rule of a domain has this name
		Entries:  []rules.Entry{e}, Steps: []rules.Step{p.step(e, f)}, Regions: p.regions(f["regions"], nil),
	}
	switch first, known := p.flat[id]; {
	case id == "":
		at.FullName = "?"
	case known:
		p.add(f["rule_id"], "rule %.32q was already given at %s:%d", id, first.file, first.line)
	case !p.nameFits(f["rule_id"], &at):
		at.FullName = "?"
	default:
		p.flat[id] = location{p.from.file, f["rule_id"].Line}
	}
	r := rules.NewRule(at)
	r.Given = id
	p.rule(r, at.Steps[0], &source{form: flatForm, node: n, limit: f, beside: f})
	p.set.Add(r)
}
