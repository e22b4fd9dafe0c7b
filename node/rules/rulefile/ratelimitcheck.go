package rulefile

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// A file of envoyproxy/ratelimit is read in two steps, as that server does. The first one (check) looks at all keys
// and leaves, wherever they stand. The second one (ratelimitMap) reads what has a meaning where it stands, into a
// document of this package's format.

// maxAliased11 is the maximum number of nodes that aliases stand for in such a file.
const maxAliased11 = 400_000

// expansion counts what aliases stand for.
type expansion struct {
	nodes, aliased, depth int
	open                  map[*yaml.Node]bool // aliases around
}

// spend counts a node. It reports false after a problem.
func (p *parser) spend(n *yaml.Node) bool {
	x := &p.expansion
	x.nodes++
	if x.depth > 0 {
		x.aliased++
	}
	const share = 99 // percent
	switch {
	case x.aliased > maxAliased11:
		p.stop(n, "aliases stand for more than %d nodes: write the rules out", maxAliased11)
	case x.aliased > 100 && x.nodes > 1000 && x.aliased*100 > x.nodes*share:
		p.stop(n, "aliases stand for more than %d %% of the nodes: write the rules out", share)
	}
	return !p.stopped
}

// within calls visit with what an alias stands for, or with the node itself.
func (p *parser) within(n *yaml.Node, visit func(*yaml.Node)) {
	if !p.spend(n) {
		return
	}
	if n.Kind != yaml.AliasNode {
		visit(n)
		return
	}
	x := &p.expansion
	if x.open[n] {
		p.stop(n, "the value of anchor %.32q contains itself", n.Value)
		return
	}
	if x.open == nil {
		x.open = make(map[*yaml.Node]bool)
	}
	x.open[n] = true
	x.depth++
	p.within(n.Alias, visit)
	x.depth--
	delete(x.open, n)
}

// pair is a key of a map with its value.
type pair struct {
	name       string
	key, value *yaml.Node
	merged     bool // it is from a merge key's map
}

// pairs calls visit with all keys of a map in their order, those of maps that are merged in the place of the merge key.
func (p *parser) pairs(n *yaml.Node, merged bool, visit func(pair)) {
	for i := 0; i+1 < len(n.Content) && !p.stopped; i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if isMerge(key) {
			p.mergedMaps(value, func(m *yaml.Node) { p.pairs(m, true, visit) })
			continue
		}
		p.within(key, func(k *yaml.Node) { visit(pair{read11(k).text, k, value, merged}) })
	}
}

// mergedMaps calls visit with a merge key's map, or with all of its list: the last first, as those before go over it.
func (p *parser) mergedMaps(n *yaml.Node, visit func(*yaml.Node)) {
	for _, m := range slices.Backward(merged(n)) {
		p.within(m, func(m *yaml.Node) {
			if m.Kind == yaml.MappingNode { // else checkNodes has reported it
				visit(m)
			}
		})
	}
}

// merged returns the map of a merge key, or those of its list.
func merged(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return []*yaml.Node{n}
}

// check reports what envoyproxy/ratelimit refuses in a map whatever it means: unknown keys, lists of anything but maps,
// and leaves that are neither text, a whole number, a boolean nor empty. Of a repeated key the last value counts.
func (p *parser) check(n *yaml.Node, at *level) {
	last := make(map[string]int)
	var all []pair
	p.pairs(n, false, func(kv pair) {
		if read11(kv.key).kind != textScalar {
			p.add(kv.key, "a key in %s must be a string, not %s", at.what, describe(kv.key))
			return
		}
		if i, ok := last[kv.name]; ok {
			all[i].value = nil
		}
		last[kv.name] = len(all)
		all = append(all, kv)
	})
	for _, kv := range all {
		switch {
		case p.stopped:
			return
		case kv.value == nil: // another value goes over it
		case at.isOurs(kv.name) || kv.name == "metadata": // anything
			p.count(kv.value)
		case !slices.Contains(ratelimitKeys, kv.name):
			p.add(kv.key, "%s", unknown("key", kv.name, at.what, at.names()))
		default:
			p.checkValue(kv, at)
		}
	}
}

// names returns the keys that have a meaning here, or all.
func (l *level) names() []string {
	if l.known == nil {
		return ratelimitKeys
	}
	return l.known.names()
}

// count counts the nodes of a tree.
func (p *parser) count(n *yaml.Node) {
	p.within(n, func(n *yaml.Node) {
		for _, c := range n.Content {
			if p.stopped {
				return
			}
			p.count(c)
		}
	})
}

// checkValue checks the value of a known key.
func (p *parser) checkValue(kv pair, at *level) {
	p.within(kv.value, func(n *yaml.Node) {
		switch n.Kind {
		case yaml.MappingNode:
			p.check(n, at.under(kv.name))
		case yaml.SequenceNode:
			for _, item := range n.Content {
				p.within(item, func(m *yaml.Node) {
					if m.Kind != yaml.MappingNode {
						p.add(m, "a list may only hold maps, not %s", describe(m))
						return
					}
					p.check(m, at.under(kv.name))
				})
			}
		default:
			if read11(n).kind == numberScalar {
				p.add(n, "%s must not be %s: numbers are whole, and less than 2^63", kv.name, describe(n))
			}
		}
	})
}

// checkNodes reports what no YAML 1.1 reader takes, wherever it stands: scalars that are not what their tag says, maps
// and lists as keys, and merge keys of anything but maps. It does not look behind aliases, whose nodes it meets anyway.
func (p *parser) checkNodes(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && read11(n).kind == invalidScalar {
		p.add(n, "%s is not what its tag says", describe(n))
	}
	for i, c := range n.Content {
		switch isKey := n.Kind == yaml.MappingNode && i%2 == 0; {
		case p.stopped:
			return
		case isKey && isMerge(c):
			p.checkMerge(n.Content[i+1])
		case isKey && behind(c).Kind != yaml.ScalarNode:
			p.add(c, "a key must be a string, not %s", describe(behind(c)))
		}
		p.checkNodes(c)
	}
}

func (p *parser) checkMerge(n *yaml.Node) {
	for _, m := range merged(n) {
		if behind(m).Kind != yaml.MappingNode {
			p.add(m, "a merge key needs a map, or a list of maps, not %s", describe(behind(m)))
		}
	}
}

// behind returns what an alias stands for, or the node itself.
func behind(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
