package rulefile

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// compatibilityKey is the key of a document that says whose it is.
const compatibilityKey = "compatibility"

// compatibilityOf returns whose document it says to be, "" for ours; ok is false if it does not say.
func (p *parser) compatibilityOf(root *yaml.Node) (whose string, ok bool) {
	for i := 0; root.Kind == yaml.MappingNode && i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value != compatibilityKey {
			continue
		}
		ok = true
		switch n := p.deref(root.Content[i+1]); {
		case n.Kind == yaml.ScalarNode && n.Value == Ratelimit:
			whose = Ratelimit
		case isNull(n) || n.Kind == yaml.ScalarNode && (n.Value == "" || n.Value == "none"):
			whose = ""
		default:
			p.add(n, "compatibility must be %s or none, not %s", Ratelimit, describe(n))
		}
	}
	return whose, ok
}

// anyDocument reads a document with a domain, in its form.
func (p *parser) anyDocument(root *yaml.Node) {
	whose, ok := p.compatibilityOf(root)
	if !ok {
		whose = p.opt.Compatibility
	}
	p.compatible = whose == Ratelimit
	if !p.compatible {
		p.document(root)
		return
	}
	p.single = p.single || !ok
	switch {
	case isNull(root):
		p.add(root, noRules)
	case root.Kind != yaml.MappingNode:
		p.add(root, "a document must be a map, not %s", describe(root))
	default:
		if read := p.ratelimitDocument(root); read != nil {
			p.document(read)
		}
	}
}

// skips reports whether a document is not read: an empty one, and those after the first that do not say whose they are
// where files are those of envoyproxy/ratelimit, which reads no more of a file.
func (p *parser) skips(root *yaml.Node) bool {
	if !p.single {
		return isNull(root) && p.opt.Compatibility == ""
	}
	if _, ok := p.compatibilityOf(root); ok || isNull(root) {
		return isNull(root)
	}
	p.warn(root, "only the first document of a file is read: move this one to a file of its own")
	return true
}

// deeper returns the place of descriptors that are nested deeper than other files nest them: beyond maxDepthThere one
// that no request reaches.
func (p *parser) deeper(n *yaml.Node, at place) place {
	switch depth := len(at.Entries); {
	case depth == rules.MaxEntries:
		p.warn(n, "descriptors are nested more than %d deep: only requests from Envoy meet them", rules.MaxEntries)
	case depth == maxDepthThere:
		p.warn(n, "descriptors are nested more than %d deep: these are checked, and no request meets them",
			maxDepthThere)
		at = unplaced()
		at.unreachable = true
	}
	return at
}

// composite returns what tells descriptors apart: in a compatible domain key and value together.
func (p *parser) composite(e rules.Entry) rules.Entry {
	if p.compatible {
		return rules.Entry{Key: rules.JoinedKey(e)}
	}
	return e
}

// referenceOf returns what a rule has in envoyproxy/ratelimit.
func (p *parser) referenceOf(src *source) *rules.Reference {
	r := &rules.Reference{
		Unit: "UNKNOWN", File: p.from.file, Line: src.node.Line,
		ShadowMode: p.flag(src.beside, "shadow_mode"), QuotaMode: p.flag(src.beside, "quota_mode"),
		Parent: src.beside["descriptors"] != nil && len(src.beside["descriptors"].Content) > 0,
	}
	if unit := src.limit["unit"]; unit != nil {
		r.Unit = strings.ToUpper(unit.Value)
	}
	if number := src.limit[src.max]; number != nil {
		r.RequestsPerUnit = uint32(min(p.inRange(number, src.max), counters.MaxLimit))
	}
	return r
}
