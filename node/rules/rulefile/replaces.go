package rulefile

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/node/rules"
)

// Rules replace others by name, of the same domain. A name that no rule has is a mistake: what it should replace counts
// on. Rules that replace each other, in a circle of any length, leave a request that meets all of them without a limit.
// envoyproxy/ratelimit takes both, so files of its kind are warned of.

// replacement is the `replaces` of a rule.
type replacement struct {
	file *parser
	rule *rules.Rule
	at   []*yaml.Node // the names, as in Rule.Replaces

	state visit
}

// visit is the state of a depth-first search.
type visit uint8

const (
	unvisited visit = iota
	onPath
	visited
)

// replaces reads the names of the rules that the rule called name replaces, and where they stand.
func (p *parser) replaces(n *yaml.Node, name string) (names []string, at []*yaml.Node) {
	for item := range p.items(n, "replaces") {
		f := p.fields(item, "an entry of replaces", replacesKeys)
		switch other := p.required(item, f, "name", "an entry of replaces"); {
		case other == "":
		case other == name:
			p.add(f["name"], "the rule would replace itself: name another one")
		default:
			names, at = append(names, other), append(at, f["name"])
		}
	}
	return names, at
}

// problem reports what envoyproxy/ratelimit would take.
func (x *replacement) problem(at *yaml.Node, format string, args ...any) {
	report := x.file.add
	if x.rule.Compatible {
		report = x.file.warn
	}
	report(at, format, args...)
}

// domainName is a name in a domain.
type domainName struct{ domain, name string }

// checkReplaced reports names that no rule has, and circles of rules that replace each other.
func (b *builder) checkReplaced() {
	if len(b.replacing) == 0 {
		return
	}
	called := make(map[domainName][]*rules.Rule)
	for _, r := range b.set.Rules() {
		if r.Given != "" {
			called[domainName{r.Domain, r.Given}] = append(called[domainName{r.Domain, r.Given}], r)
		}
		if r.FullName != r.Given {
			called[domainName{r.Domain, r.FullName}] = append(called[domainName{r.Domain, r.FullName}], r)
		}
	}
	of := make(map[*rules.Rule]*replacement, len(b.replacing))
	for _, x := range b.replacing {
		of[x.rule] = x
	}
	for _, x := range b.replacing {
		for i, name := range x.rule.Replaces {
			if len(called[domainName{x.rule.Domain, name}]) == 0 && !x.file.stopped {
				x.problem(x.at[i], "no rule of the domain is called %.40q: it replaces nothing", name)
			}
		}
		x.follow(called, of, nil)
	}
}

// follow searches for circles from the rule on. path leads to it.
func (x *replacement) follow(
	called map[domainName][]*rules.Rule, of map[*rules.Rule]*replacement, path []*replacement,
) {
	if x.state != unvisited {
		return
	}
	x.state = onPath
	path = append(path, x)
	for i, name := range x.rule.Replaces {
		next := domainName{x.rule.Domain, name}
		for _, r := range called[next] {
			switch y := of[r]; {
			case y == nil || !overlap(x.rule.Regions, r.Regions):
			case y.state == onPath:
				x.problem(x.at[i], "%s: a request that meets all of them would have no limit",
					circle(path[slices.Index(path, y):]))
			default:
				y.follow(called, of, path)
			}
		}
	}
	x.state = visited
}

// circle describes rules of which each replaces the next, and the last the first.
func circle(path []*replacement) string {
	if len(path) == 1 {
		return "the rule would replace itself"
	}
	const most = 8
	var names []string
	for _, x := range path[:min(len(path), most)] {
		names = append(names, x.rule.Name)
	}
	if len(path) > most {
		names = append(names, "...")
	}
	return "rules replace each other: " + strings.Join(append(names, names[0]), " > ")
}

// overlap reports whether there is a region in both lists, of which an empty one holds all.
func overlap(a, b []string) bool {
	return len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, func(region string) bool {
		return slices.Contains(b, region)
	})
}
