package rules

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/counters"
)

// How large rule files may be. Beyond this it is not a rule file but a mistake.
const (
	MaxFileSize    = 4 << 20 // bytes in a file
	maxDescriptors = 100_000 // in a set
	maxAliased     = 100_000 // nodes of a file that are reached through aliases
)

// Parse reads the rules of one file; file is its name in error messages. What it returns is either a complete Set or all
// problems of the file: *[Error] values in the order of lines, joined.
func Parse(file string, data []byte) (*Set, error) {
	b := newBuilder()
	if errs := b.parse(file, data); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return b.set, nil
}

// builder gathers the rules of several files into one set. After a problem the set is not to be used any more.
type builder struct {
	set         *Set
	domains     map[string]string // where each domain was met first, as file:line
	descriptors int
	limited     int // rules with a limit
}

func newBuilder() *builder {
	return &builder{
		set: &Set{
			domains:    make(map[string]*node),
			byFullName: make(map[string]*Rule),
			byName:     make(map[string][]*Rule),
		},
		domains: make(map[string]string),
	}
}

// parse adds the rules of one file, and returns what is wrong with it.
func (b *builder) parse(file string, data []byte) []error {
	p := &parser{builder: b, problems: problems{file: file}}
	before := len(b.domains)
	for root := range p.documents(data) {
		p.document(root)
		if p.stopped {
			break
		}
	}
	if len(p.list) == 0 && len(b.domains) == before {
		p.add(&yaml.Node{Line: 1, Column: 1}, "there is no domain in the file: it must hold at least one, or be removed")
	}
	return p.sorted()
}

// put adds a rule to the set.
func (b *builder) put(r *Rule) {
	b.set.rules = append(b.set.rules, r)
	b.set.byFullName[r.FullName] = r
	b.set.byName[r.Name] = append(b.set.byName[r.Name], r)
}

// parser walks the documents of one file.
type parser struct {
	*builder
	problems
	aliased int // nodes that aliases stood for so far
}

// What is known at each place of a file.
var (
	documentKeys   = []string{"domain", "descriptors"}
	descriptorKeys = []string{"key", "value", "rate_limit", "descriptors"}
	rateLimitKeys  = append([]string{"name", "unlimited"}, limitKeys...)
	limitKeys      = []string{"unit", "window", "requests_per_unit", "algorithm", "burst", "refill", "queue"} // not of what is unlimited
	refillKeys     = []string{"amount", "every"}
)

func (p *parser) document(root *yaml.Node) {
	f, ok := p.fields(root, "a document", documentKeys)
	if !ok {
		return
	}
	top := &node{}
	domain, ok := p.required(root, f, "domain", "a document")
	if ok {
		if first, dup := p.domains[domain]; dup {
			p.add(f["domain"], "domain %.80q was already given at %s: put its descriptors together", domain, first)
		} else {
			p.domains[domain] = fmt.Sprintf("%s:%d", p.file, f["domain"].Line)
			p.set.domains[domain] = top
		}
	}
	at := place{node: top, domain: domain, fullName: escape(domain, "/=")}
	if !ok || !p.nameFits(f["domain"], at) {
		at.fullName = "?" // what is beneath can still be checked
	}
	p.descriptorsOf(f, at)
}

// descriptorsOf reads the descriptors that f may hold and puts them under at.
func (p *parser) descriptorsOf(f map[string]*yaml.Node, at place) {
	n := f["descriptors"]
	switch {
	case n == nil || isNull(n):
		return
	case n.Kind != yaml.SequenceNode:
		p.add(n, "descriptors must be a list, not %s", describe(n))
		return
	case len(at.path) == MaxEntries:
		p.add(n, "descriptors are nested more than %d deep", MaxEntries)
		return
	}
	lines := make(map[Entry]int, len(n.Content))
	for _, item := range n.Content {
		if p.stopped {
			return
		}
		p.descriptor(item, at, lines)
	}
}

// descriptor reads one descriptor; lines says where its siblings stand.
func (p *parser) descriptor(n *yaml.Node, at place, lines map[Entry]int) {
	if p.descriptors++; p.descriptors > maxDescriptors {
		p.stop(n, "there are more than %d descriptors", maxDescriptors)
		return
	}
	f, ok := p.fields(n, "a descriptor", descriptorKeys)
	if !ok {
		return
	}
	e, ok := p.entry(n, f)
	below := at.below(e)
	switch {
	case !ok:
	case lines[e] > 0:
		p.add(f["key"], "descriptor %s was already given in line %d", quoteEntry(e), lines[e])
	case p.nameFits(f["key"], below):
		at.node.attach(e, below.node)
		lines[e] = f["key"].Line
	default:
		below.fullName = at.fullName // else every descriptor beneath would be reported as well
	}
	p.rateLimit(f["rate_limit"], below)
	p.descriptorsOf(f, below)
}

// entry returns the key and the value of a descriptor.
func (p *parser) entry(n *yaml.Node, f map[string]*yaml.Node) (Entry, bool) {
	key, keyOK := p.required(n, f, "key", "a descriptor")
	value, valueOK := p.text(f["value"], "value")
	if valueOK && strings.Contains(value, "*") {
		p.add(f["value"], "wildcards are not supported yet: value %.80q may not hold a *", value)
		valueOK = false
	}
	return Entry{Key: key, Value: value}, keyOK && valueOK
}

func quoteEntry(e Entry) string {
	if e.Value == "" {
		return fmt.Sprintf("%.80q", e.Key)
	}
	return fmt.Sprintf("%.80q with value %.80q", e.Key, e.Value)
}

// nameFits checks the length of a full name. Names are checked on the way down, so that a long key with many descriptors
// beneath cannot fill the memory with its copies.
func (p *parser) nameFits(n *yaml.Node, at place) bool {
	if len(at.fullName) > counters.MaxRuleName {
		p.add(n, "the full name %.40s... has %d bytes, at most %d are allowed", at.fullName, len(at.fullName), counters.MaxRuleName)
		return false
	}
	return true
}
