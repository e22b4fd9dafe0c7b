package rulefile

import (
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ratelimitMap is a map of a file of envoyproxy/ratelimit as that server reads it: a repeated key goes over the first,
// but that a second rate_limit, or metadata, only goes over the keys that it has.
type ratelimitMap struct {
	*level
	at     *yaml.Node
	pairs  []*pair // in the order of their first appearance; with a nil value of those that were reset
	limit  *ratelimitMap
	parser *parser
}

// ratelimitDocument reads a document of envoyproxy/ratelimit into one of this package's format; nil after a problem.
func (p *parser) ratelimitDocument(root *yaml.Node) *yaml.Node {
	before := p.found
	p.expansion = expansion{}
	if p.checkNodes(root); p.found > before {
		return nil
	}
	if p.check(root, documentLevel); p.stopped {
		return nil
	}
	p.expansion = expansion{}
	r := p.newReading(root, documentLevel)
	if r.absorb(root); p.found > before {
		return nil
	}
	return r.document()
}

func (p *parser) newReading(at *yaml.Node, l *level) *ratelimitMap {
	return &ratelimitMap{level: l, at: at, parser: p}
}

// get returns the value of a key, nil if there is none.
func (r *ratelimitMap) get(name string) *yaml.Node {
	if kv := r.find(name); kv != nil {
		return kv.value
	}
	return nil
}

func (r *ratelimitMap) find(name string) *pair {
	for _, kv := range r.pairs {
		if kv.name == name {
			return kv
		}
	}
	return nil
}

// set sets the value of a key; nil removes it.
func (r *ratelimitMap) set(kv pair) {
	if old := r.find(kv.name); old != nil {
		*old = kv
		return
	}
	r.pairs = append(r.pairs, &kv)
}

// absorb adds the keys of a map.
func (r *ratelimitMap) absorb(n *yaml.Node) {
	p := r.parser
	p.pairs(n, false, func(kv pair) {
		before := r.find(kv.name)
		switch {
		case before == nil || before.merged:
		case kv.merged:
			p.warn(kv.key, "key %.32q of a merged map goes over that of line %d", kv.name, before.key.Line)
		default:
			p.warn(kv.key, "key %.32q was already given in line %d: this one counts", kv.name, before.key.Line)
		}
		switch kind := r.kinds[kv.name]; {
		case kind != 0:
			p.within(kv.value, func(n *yaml.Node) {
				kv.value = r.typed(kv.name, n, kind)
				r.set(kv)
			})
		case r.isOurs(kv.name):
			r.set(kv)
		default:
			p.warn(kv.key, "%s has no effect in %s", kv.name, r.what)
		}
	})
}

// typed returns the value of a key in this package's format; nil if it is empty, or after a problem.
func (r *ratelimitMap) typed(name string, n *yaml.Node, k kind) *yaml.Node {
	p := r.parser
	isScalar := n.Kind == yaml.ScalarNode
	s := scalar11{kind: invalidScalar}
	if isScalar {
		s = read11(n)
	}
	switch {
	case k == limitKind:
		return r.rateLimit(n)
	case s.kind == nullScalar:
		if k == flagKind {
			p.warn(n, "%s is empty: it counts as false", name)
		}
	case k == textKind && isScalar && s.kind != invalidScalar:
		if !slices.Contains(scalars, n.ShortTag()) {
			p.warn(n, "%s is %s: it counts as text", name, describe(n))
		}
		return textNode(n, s.text)
	case k == flagKind && s.kind == boolScalar:
		return flagNode(n, s.yes)
	case k == flagKind:
		p.add(n, "%s must be true or false, not %s", name, describe(n))
	case k == numberKind && s.kind == wholeScalar && s.whole >= 0 && s.whole <= math.MaxUint32:
		return numberNode(n, s.whole)
	case k == numberKind && s.kind == numberScalar && s.number >= 0 && s.number <= math.MaxUint32:
		return numberNode(n, int64(s.number)) // of a repeated key: a fraction that counts was refused before
	case k == numberKind:
		p.add(n, "%s must be a whole number from 0 to %d, not %s", name, uint32(math.MaxUint32), describe(n))
	case k == listKind && n.Kind == yaml.SequenceNode:
		return r.list(n, r.under(name))
	case k == listKind:
		p.add(n, "%s must be a list, not %s", name, describe(n))
	case k == anyKind && n.Kind == yaml.MappingNode:
		return r.metadata(n)
	case k == anyKind:
		p.add(n, "%s must be a map, not %s", name, describe(n))
	default:
		p.add(n, "%s must be a string, not %s", name, describe(n))
	}
	return nil
}

// list reads a list of maps.
func (r *ratelimitMap) list(n *yaml.Node, l *level) *yaml.Node {
	p, all := r.parser, listNode(n)
	for _, item := range n.Content {
		if p.stopped {
			break
		}
		p.within(item, func(m *yaml.Node) {
			switch {
			case isNull(m): // goes with the list: another one goes over it, or check has reported it
				return
			case m.Kind != yaml.MappingNode:
				p.add(m, "a list may only hold maps, not %s", describe(m))
				return
			case l == descriptorLevel:
				p.read++
			}
			if p.read > maxDescriptors {
				p.stop(m, "there are more than %d descriptors", maxDescriptors)
				return
			}
			below := p.newReading(m, l)
			below.absorb(m)
			all.Content = append(all.Content, below.document())
		})
	}
	return all
}

// rateLimit reads a rate_limit: null is none at all, and a second one goes over the keys of the first that it has.
func (r *ratelimitMap) rateLimit(n *yaml.Node) *yaml.Node {
	p := r.parser
	switch {
	case isPlainNull(n):
		p.warn(n, "rate_limit is empty: the descriptor has no limit")
		r.limit = nil
		return nil
	case n.Kind == yaml.ScalarNode && read11(n).kind == nullScalar:
		r.limit = p.newReading(n, limitLevel)
	case n.Kind != yaml.MappingNode:
		p.add(n, "a rate_limit must be a map, not %s", describe(n))
		return nil
	default:
		if r.limit == nil {
			r.limit = p.newReading(n, limitLevel)
		}
		r.limit.absorb(n)
	}
	return n // document puts the limit there
}

// document returns the map in this package's format.
func (r *ratelimitMap) document() *yaml.Node {
	if r.level == limitLevel {
		r.amend()
	}
	m := mapNode(r.at)
	for _, kv := range r.pairs {
		value := kv.value
		if kv.name == "rate_limit" && r.limit != nil {
			value = r.limit.document()
		}
		if value != nil {
			m.Content = append(m.Content, textNode(kv.key, kv.name), value)
		}
	}
	return m
}

// amend writes out what a rate_limit means that this package's format does not leave open.
func (r *ratelimitMap) amend() {
	p, unit := r.parser, r.get("unit")
	unlimited := r.get("unlimited")
	isUnlimited := unlimited != nil && unlimited.Value == "true"
	if unit != nil {
		name := strings.ToLower(strings.ToUpper(unit.Value))
		known := slices.Contains(unitNames, name)
		switch {
		case known && !strings.EqualFold(unit.Value, name):
			p.warn(unit, "unit %.32q counts as %s", unit.Value, name)
			unit.Value = name
		case known:
			unit.Value = name
		case isUnlimited:
			p.warn(unit, "unit %.32q has no effect beside unlimited", unit.Value)
			r.set(pair{name: "unit", key: unit})
		}
	}
	if r.get("requests_per_unit") == nil && r.get("refill") == nil && !isUnlimited {
		p.warn(r.at, "a rate_limit without requests_per_unit counts as 0: it denies everything")
		r.set(pair{name: "requests_per_unit", key: r.at, value: numberNode(r.at, 0)})
	}
}
