package rulefile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// The maximum sizes of rule files.
const (
	maxFileSize    = 4 << 20 // bytes in a file
	maxDescriptors = 100_000 // in a set
	maxAliased     = 100_000 // nodes of a file that are reached through aliases
	maxDepthThere  = 128     // descriptors in one another in a compatible domain
)

// Parse reads the rules of one file with the default Options; file is its name in error messages. It returns a complete
// Set, or all problems of the file: *[Error] values in the order of lines, joined.
func Parse(file string, data []byte) (*rules.Set, error) { return Options{}.Parse(file, data) }

// Parse reads the rules of one file.
func (o Options) Parse(file string, data []byte) (*rules.Set, error) {
	return o.parse([]content{{file: file, data: data}})
}

// builder gathers the rules of several files in one set, which is invalid after a problem.
type builder struct {
	set         *rules.Set
	opt         Options
	domains     map[string]place
	flat        map[string]location // of each flat rule
	zones       map[string]*time.Location
	files       []*parser
	children    []child
	replacing   []*replacement
	descriptors int
	limited     int     // rules with a limit, twice for one with a ban
	skipped     []error // files of a directory that cannot be read, and need not be
}

// place is the parser's position in the tree.
type place struct {
	rules.Place
	node  *rules.Node
	begin location                 // of a domain
	seen  map[rules.Entry]location // where the descriptors under the node stand

	unreachable bool // deeper than any request is long: its rules are checked, and left out
}

// unplaced returns a place outside of the set, for what is only checked.
func unplaced() place {
	return place{Place: rules.Place{FullName: "?"}, node: new(rules.Node), seen: make(map[rules.Entry]location)}
}

// below returns the place of a new descriptor under this one, not attached to it yet.
func (at place) below(e rules.Entry, s rules.Step) place {
	return place{Place: at.Below(e, s), node: new(rules.Node), seen: make(map[rules.Entry]location),
		unreachable: at.unreachable}
}

// location is a line of a file.
type location struct {
	file string
	line int
}

func newBuilder(o Options) *builder {
	b := &builder{
		set: rules.NewSet(), opt: o.withDefaults(),
		domains: make(map[string]place), flat: make(map[string]location), zones: make(map[string]*time.Location),
	}
	b.set.SetCompatible(o.Compatibility == Ratelimit)
	return b
}

// parse adds the rules of one file.
func (b *builder) parse(t content) {
	p := &parser{builder: b, from: t, seen: make(map[Error]bool), warned: make(map[Error]bool)}
	b.files = append(b.files, p)
	documents := 0
	for root := range p.documents(t.data) {
		if p.skips(root) {
			continue
		}
		documents++
		if root = p.deref(root); p.isFlat(root) {
			p.flatDocument(root)
		} else {
			p.anyDocument(root)
		}
		if p.stopped {
			break
		}
	}
	if len(p.problems) == 0 && documents == 0 {
		p.add(&yaml.Node{Line: 1, Column: 1}, noRules)
	}
}

// finish resolves parents and what rules replace, once all files are parsed, and returns all problems.
func (b *builder) finish() (errs []error) {
	b.set.AssignNames()
	for i := range b.children {
		b.children[i].adopt()
	}
	b.checkReplaced()
	warnings := b.skipped
	for _, p := range b.files {
		errs = append(errs, p.sorted()...)
		warnings = append(warnings, p.quoted(p.warnings)...)
	}
	b.set.SetWarnings(warnings)
	return errs
}

// parser reads the documents of one file.
type parser struct {
	*builder
	from     content
	problems []*Error
	seen     map[Error]bool // of problems
	found    int            // how often add was called
	stopped  bool           // the rest is not read
	aliased  int            // nodes that aliases stood for so far
	merging  int            // how deep the merge keys are that are being followed

	compatible bool // the document is one of envoyproxy/ratelimit
	single     bool // so was the first one of the file, which is all that this server reads of it
	read       int  // descriptors of such documents
	expansion  expansion
	warnings   []*Error
	warned     map[Error]bool
}

func (p *parser) document(root *yaml.Node) {
	f := p.fields(root, "a document", documentKeys)
	if f == nil {
		return
	}
	// descriptors can be checked without a domain too
	at := unplaced()
	name := p.required(root, f, "domain", "a document")
	first, known := p.domains[name]
	switch {
	case name == "":
	case known && !p.opt.MergeDomains:
		p.add(f["domain"], "domain %.32q was already given at %s:%d: put its descriptors together", name,
			first.begin.file, first.begin.line)
	case known && first.Compatible != p.compatible:
		p.add(f["domain"], "domain %.32q was already given at %s:%d, with another compatibility", name,
			first.begin.file, first.begin.line)
	case known:
		at = first
	default:
		if p.compatible {
			at.node, at.Compatible = rules.NewCompatible(), true
		}
		at.Domain, at.FullName = name, rules.Component(rules.Entry{Key: name})
		if !p.nameFits(f["domain"], &at.Place) {
			at.FullName = "?"
		}
		at.begin = location{p.from.file, f["domain"].Line}
		p.domains[name] = at
		p.set.AddDomain(name, at.node)
	}
	p.descriptorsOf(f, at)
}

// descriptorsOf reads the descriptors in f and puts them under at.
func (p *parser) descriptorsOf(f map[string]*yaml.Node, at place) {
	n := f["descriptors"]
	if n != nil && n.Kind == yaml.SequenceNode && len(at.Entries) >= rules.MaxEntries {
		if !p.compatible {
			p.add(n, "descriptors are nested more than %d deep", rules.MaxEntries)
			return
		}
		at = p.deeper(n, at)
	}
	for item := range p.items(n, "descriptors") {
		p.descriptor(item, at)
	}
}

// descriptor reads one descriptor under at.
func (p *parser) descriptor(n *yaml.Node, at place) {
	if p.descriptors++; p.descriptors > maxDescriptors {
		p.stop(n, "there are more than %d descriptors", maxDescriptors)
		return
	}
	f := p.fields(n, "a descriptor", descriptorKeys)
	if f == nil {
		return
	}
	before := p.found
	e := p.entry(n, f)
	ok := p.found == before
	p.readFrom(f["from"], at.Domain, e.Key)
	below := at.below(e, p.step(e, f))
	below.Regions = p.regions(f["regions"], at.Regions)
	below.node.Regions, below.node.Secret = below.Regions, below.Steps[len(below.Steps)-1].Secret
	first, known := at.seen[p.composite(e)]
	switch {
	case !ok:
	case known:
		where, instead := fmt.Sprintf("in line %d", first.line), ""
		if first.file != p.from.file {
			where = fmt.Sprintf("at %s:%d", first.file, first.line)
		}
		if f["rate_limit"] != nil {
			instead = ": " + fmt.Sprintf(secondLimit, e.Key)
		}
		p.add(f["key"], "descriptor %s was already given %s%s", e.Quoted(), where, instead)
	case p.nameFits(f["key"], &below.Place):
		at.node.Attach(e, below.node)
		at.seen[p.composite(e)] = location{p.from.file, f["key"].Line}
	default:
		below.FullName = at.FullName // else every descriptor beneath would be reported as well
	}
	p.rateLimit(f, below)
	p.descriptorsOf(f, below)
}

var fromExpression = regexp.MustCompile(fromPattern)

// readFrom reads where the values of a key come from, which is the same in all of a domain.
func (p *parser) readFrom(n *yaml.Node, domain, key string) {
	source, ok := p.text(n, "from")
	if n == nil || !ok || key == "" {
		return
	}
	before := p.set.Sources(domain)[key]
	switch {
	case p.compatible:
		p.add(n, "from is not for files of envoyproxy/ratelimit: Envoy says where values come from")
	case !fromExpression.MatchString(source):
		p.add(n, "from: %.60q: want client, client_cert, method, host, path, header NAME, cookie NAME, query NAME, "+
			"jwt CLAIM or template PATH, as in /tenants/{tenant}/*", source)
	case before != "" && before != source:
		p.add(n, "from: the values of key %.32q come from %.60q elsewhere in domain %.32q: a key has one source", key,
			before, domain)
	case domain != "":
		p.set.SetSource(domain, key, source)
	}
}

// entry returns the key and the value of a descriptor.
func (p *parser) entry(n *yaml.Node, f map[string]*yaml.Node) rules.Entry {
	key := p.required(n, f, "key", "a descriptor")
	value, _ := p.text(f["value"], "value")
	switch {
	case !rules.IsWild(key):
	case p.compatible:
		p.warn(f["key"], "key %.32q holds a *, which stands for a part of a request's key, _ and value", key)
	default:
		p.add(f["key"], "wildcards are for values: key %.32q may not hold a *", key)
	}
	return rules.Entry{Key: key, Value: value}
}

// step reads how the values of a descriptor are counted.
func (p *parser) step(e rules.Entry, f map[string]*yaml.Node) rules.Step {
	wild := rules.IsWild(e.Value) || p.compatible && rules.IsWild(e.Key)
	share := p.flag(f, "share_threshold")
	if share && !wild {
		p.add(f["share_threshold"],
			"share_threshold is for a value with a wildcard (*): only its values could share a count")
	}
	s := rules.Step{Open: (e.Value == "" || wild) && !share, ValueToMetric: p.flag(f, "value_to_metric"),
		Secret: p.flag(f, "secret")}
	if s.Secret && s.ValueToMetric {
		p.add(f["value_to_metric"], "value_to_metric would show what secret hides")
	}
	for _, key := range []string{"ipv4_prefix", "ipv6_prefix"} {
		if n := f[key]; n != nil && !s.Open {
			p.add(n, "%s is for a key whose values are counted one by one", key)
		}
	}
	v4, v6 := f["ipv4_prefix"], f["ipv6_prefix"]
	named := !p.compatible && slices.Contains(addressKeys, strings.ToLower(e.Key))
	if !s.Open || v4 == nil && v6 == nil && !named {
		return s
	}
	s.IPv6 = uint8(p.opt.IPv6Prefix)
	if v6 != nil {
		s.IPv6 = uint8(p.inRange(v6, "ipv6_prefix"))
	}
	if v4 != nil {
		s.IPv4 = uint8(p.inRange(v4, "ipv4_prefix") % 32) // 32, as 0, is the whole address
	}
	return s
}

// regions reads where a descriptor is in force: within the regions of the one above.
func (p *parser) regions(n *yaml.Node, above []string) []string {
	var list []string
	for item, region := range p.texts(n, "regions") {
		if region == "" {
			p.add(item, "the name of a region is empty")
		} else if rules.AppliesIn(above, region) {
			list = append(list, region)
		} else {
			p.add(item, "the descriptor above is not in force in region %.32q", region)
		}
	}
	if list == nil {
		if n != nil && n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
			p.add(n, "regions is empty: name some, or leave it out to be in force everywhere")
		}
		return above
	}
	return list
}

// nameFits checks the length of a full name, on the way down, so that a long key with many descriptors beneath cannot
// fill the memory with its copies.
func (p *parser) nameFits(n *yaml.Node, at *rules.Place) bool {
	switch {
	case len(at.FullName) <= counters.MaxRuleName:
	case p.compatible:
		p.warn(n, "the full name %.40s... has %d bytes: it is shortened to %d", at.FullName, len(at.FullName),
			counters.MaxRuleName)
		at.FullName = rules.Shortened(at.FullName)
	default:
		p.add(n, "the full name %.40s... has %d bytes, at most %d are allowed", at.FullName, len(at.FullName),
			counters.MaxRuleName)
		return false
	}
	return true
}

// DefaultIPv6Prefix is the number of leading bits of an IPv6 address that identify a client: a client usually has a
// complete /64, which is 2^64 addresses.
const DefaultIPv6Prefix = 64

// addressKeys are the keys whose open values are addresses without ipv4_prefix or ipv6_prefix. The first two are
// those of Envoy, the last is that of the flat form.
var addressKeys = []string{
	"remote_address", "masked_remote_address", "client_ip", "client_address", "ip", "ip_address", "remote_addr",
	"remote_ip", "source_ip", identityKey,
}
