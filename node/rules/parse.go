package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/counters"
)

// How large rule files may be. Beyond this it is not a rule file but a mistake.
const (
	MaxFileSize    = 4 << 20 // bytes in a file
	maxDescriptors = 100_000 // in a set
	maxAliased     = 100_000 // nodes of a file that are reached through aliases
)

// Parse reads the rules of one file with the default Options; file is its name in error messages. What it returns is either a complete
// Set or all problems of the file: *[Error] values in the order of lines, joined.
func Parse(file string, data []byte) (*Set, error) { return Options{}.Parse(file, data) }

// Parse reads the rules of one file.
func (o Options) Parse(file string, data []byte) (*Set, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	b := newBuilder(o)
	b.parse(file, data)
	if errs := b.finish(); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return b.set, nil
}

// builder gathers the rules of several files into one set. After a problem the set is not to be used any more.
type builder struct {
	set         *Set
	opt         Options
	domains     map[string]opened
	flat        map[string]location // of each flat rule
	zones       map[string]*time.Location
	files       []*parser
	children    []child
	descriptors int
	limited     int // rules with a limit, twice for one with a ban
}

// opened is a domain that was met, and where.
type opened struct {
	at    location
	place place
}

// location is where something stands.
type location struct {
	file string
	line int
}

func newBuilder(o Options) *builder {
	return &builder{
		set: newSet(), opt: o.withDefaults(),
		domains: make(map[string]opened), flat: make(map[string]location), zones: make(map[string]*time.Location),
	}
}

// parse adds the rules of one file.
func (b *builder) parse(file string, data []byte) {
	p := &parser{builder: b, problems: problems{file: file, data: data}}
	b.files = append(b.files, p)
	documents := 0
	for root := range p.documents(data) {
		documents++
		if root = p.deref(root); isFlat(root) {
			p.flatDocument(root)
		} else {
			p.document(root)
		}
		if p.stopped {
			break
		}
	}
	if len(p.list) == 0 && documents == 0 {
		p.add(&yaml.Node{Line: 1, Column: 1}, "there is no domain in the file, nor a rule: it must hold at least one, or be removed")
	}
}

// finish returns what is wrong with the files, once all are parsed: only then is it known which rules there are.
func (b *builder) finish() (errs []error) {
	for i := range b.children {
		b.children[i].adopt()
	}
	for _, p := range b.files {
		errs = append(errs, p.sorted()...)
	}
	return errs
}

// parser walks the documents of one file.
type parser struct {
	*builder
	problems
	aliased int // nodes that aliases stood for so far
	merging int // how deep the merge keys are that are being followed
}

func (p *parser) document(root *yaml.Node) {
	f, ok := p.fields(root, "a document", documentKeys)
	if !ok {
		return
	}
	at := place{node: &node{}, fullName: "?", seen: make(map[Entry]location)} // what is beneath can be checked also without a domain
	name, ok := p.required(root, f, "domain", "a document")
	first, known := p.domains[name]
	switch {
	case !ok:
	case known && !p.opt.MergeDomains:
		p.add(f["domain"], "domain %.80q was already given at %s:%d: put its descriptors together", name, first.at.file, first.at.line)
	case known:
		at = first.place
	default:
		at.domain, at.fullName = name, escape(name, "/=")
		if !p.nameFits(f["domain"], at) {
			at.fullName = "?"
		}
		p.domains[name] = opened{location{p.file, f["domain"].Line}, at}
		p.set.domains[name] = at.node
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
	for _, item := range n.Content {
		if p.stopped {
			return
		}
		p.descriptor(item, at)
	}
}

// descriptor reads one descriptor under at.
func (p *parser) descriptor(n *yaml.Node, at place) {
	if p.descriptors++; p.descriptors > maxDescriptors {
		p.stop(n, "there are more than %d descriptors", maxDescriptors)
		return
	}
	f, ok := p.fields(n, "a descriptor", descriptorKeys)
	if !ok {
		return
	}
	e, ok := p.entry(n, f)
	below := at.below(e, p.step(e, f))
	below.regions = p.regions(f["regions"], at.regions)
	below.node.regions = below.regions
	first, known := at.seen[e]
	switch {
	case !ok:
	case known && first.file == p.file:
		p.add(f["key"], "descriptor %s was already given in line %d", quoteEntry(e), first.line)
	case known:
		p.add(f["key"], "descriptor %s was already given at %s:%d", quoteEntry(e), first.file, first.line)
	case p.nameFits(f["key"], below):
		at.node.attach(e, below.node)
		at.seen[e] = location{p.file, f["key"].Line}
	default:
		below.fullName = at.fullName // else every descriptor beneath would be reported as well
	}
	p.rateLimit(f, below)
	p.descriptorsOf(f, below)
}

// entry returns the key and the value of a descriptor.
func (p *parser) entry(n *yaml.Node, f map[string]*yaml.Node) (Entry, bool) {
	key, keyOK := p.required(n, f, "key", "a descriptor")
	value, valueOK := p.text(f["value"], "value")
	if keyOK && isWild(key) {
		p.add(f["key"], "wildcards are for values: key %.80q may not hold a *", key)
		keyOK = false
	}
	return Entry{Key: key, Value: value}, keyOK && valueOK
}

// step says how the values that meet a descriptor are counted.
func (p *parser) step(e Entry, f map[string]*yaml.Node) step {
	wild := isWild(e.Value)
	share, ok := p.flag(f, "share_threshold")
	if ok && share && !wild {
		p.add(f["share_threshold"], "share_threshold is for a value with a wildcard (*): only there are several values that could share a count")
	}
	s := step{open: e.Value == "" || wild && !share}
	n := f["ipv6_prefix"]
	switch {
	case n != nil && !s.open:
		p.add(n, "ipv6_prefix is for a key whose values are counted one by one")
	case n != nil:
		bits, _ := p.wholeUpTo(n, "ipv6_prefix", 1, 128)
		s.ipv6 = uint8(bits)
	case s.open && slices.Contains(addressKeys, strings.ToLower(e.Key)):
		s.ipv6 = uint8(p.opt.IPv6Prefix)
	}
	return s
}

// regions reads where a descriptor is in force, which is never outside of where the one above is.
func (p *parser) regions(n *yaml.Node, above []string) []string {
	var list []string
	for item, region := range p.texts(n, "regions") {
		if region == "" {
			p.add(item, "the name of a region is empty")
		} else if appliesIn(above, region) {
			list = append(list, region)
		} else {
			p.add(item, "the descriptor above is not in force in region %.80q", region)
		}
	}
	if list == nil {
		if n != nil && n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
			p.add(n, "regions is empty: name some, or leave it out to be in force everywhere")
		}
		return above
	}
	p.set.regional = true
	return list
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
