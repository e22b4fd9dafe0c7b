package rules

import (
	"os"
	"slices"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// parse is Parse of rulefile.Options with an IPv6Prefix. The tests in fuzz_test.go set it: those of this package cannot
// import rulefile, which imports this package.
var parse func(text string, ipv6Prefix int) (*Set, error)

// mustParse returns the rules of a text that has no problems.
func mustParse(t testing.TB, text string) *Set {
	t.Helper()
	s, err := parse(text, 0)
	testkit.Must(t, err)
	return s
}

// matched returns what a request meets.
func matched(t interface {
	Helper()
	Fatal(...any)
}, s *Set, req *Request, secret Secret) []Match {
	t.Helper()
	met, err := s.Match(req, secret, nil)
	testkit.Must(t, err)
	return met
}

// sample returns the rules of the sample file.
func sample(t testing.TB) *Set {
	t.Helper()
	text, err := os.ReadFile("rulefile/sample.yaml")
	testkit.Must(t, err)
	return mustParse(t, string(text))
}

// What tests of package rules_test need to know.
const MatchRules = matchRules

func SetParse(f func(string, int) (*Set, error)) { parse = f }

func (r *Rule) Lender() *Rule     { return r.parent }
func (r *Rule) OpenPlaces() []int { return r.open }

// WildcardFits reports whether a wildcard beside entry i of the rule's path fits a value.
func (s *Set) WildcardFits(r *Rule, i int, value string) bool {
	n := s.domains[r.Domain]
	for _, e := range r.Entries[:i] {
		n = n.children[slices.IndexFunc(n.children, func(c *Node) bool { return c.Entry == e })]
	}
	return slices.ContainsFunc(n.children, func(c *Node) bool {
		return c.Entry.Key == r.Entries[i].Key && IsWild(c.Entry.Value) && matchWildcards(c.Entry.Value, value)
	})
}
