package rules

import (
	"fmt"
	"strings"

	"github.com/edgelimit/edgelimit/counters"
)

// Match is what one layer of a request met. The zero value says that it met no rule, and is allowed.
type Match struct {
	Rule *Rule // nil: no rule met
	Key  counters.Key
}

// Match appends to dst what the request meets, one Match for each descriptor, in order; one for a request by rule and
// identity. It allocates nothing as long as dst has room and the values of a descriptor are short (some 200 bytes in all).
//
// Its errors wrap ErrUnknownRule or ErrInvalidRequest; dst is then returned as it was. An unknown domain is no error: all
// its layers are unmatched.
func (s *Set) Match(req *Request, secret Secret, dst []Match) ([]Match, error) {
	if err := req.validate(); err != nil {
		return dst, err
	}
	if req.Rule != "" {
		r, err := s.resolve(req)
		if err != nil {
			return dst, err
		}
		return append(dst, Match{Rule: r, Key: r.identityKey(secret, req.Identity)}), nil
	}
	top := s.domains[req.Domain]
	for _, entries := range req.Descriptors {
		var m Match
		if m.Rule = top.find(entries); m.Rule != nil {
			m.Key = m.Rule.key(secret, entries)
		}
		dst = append(dst, m)
	}
	return dst, nil
}

// find returns the rule that the last of the entries reaches, nil when there is none. A nil node has no rules.
func (n *node) find(entries []Entry) *Rule {
	if n == nil {
		return nil
	}
	for i := range entries {
		child := n.exact[entries[i]]
		if child == nil {
			child = n.bare[entries[i].Key]
		}
		if child == nil {
			return nil
		}
		n = child
	}
	return n.rule
}

// resolve returns the rule that the request names, once its identity is known to fit.
func (s *Set) resolve(req *Request) (*Rule, error) {
	r, err := s.lookup(req.Rule, req.Domain)
	switch {
	case err != nil:
		return nil, err
	case r.open > 1:
		return nil, invalid("rule %s counts by %s: use descriptors to give all of them", r.FullName, strings.Join(r.OpenKeys(), ", "))
	case r.open == 1 && req.Identity == "":
		return nil, invalid("rule %s counts by %s: give one as the identity", r.FullName, r.path[r.openAt].Key)
	case r.open == 0 && req.Identity != "":
		return nil, invalid("rule %s has one count for everybody: leave the identity empty", r.FullName)
	}
	return r, nil
}

// lookup finds the one rule of that name, in that domain unless domain is empty. A full name wins over names, so that each
// rule can be reached whatever the others are called.
func (s *Set) lookup(name, domain string) (*Rule, error) {
	if r := s.byFullName[name]; r != nil && r.in(domain) {
		return r, nil
	}
	var found *Rule
	for _, r := range s.byName[name] {
		if !r.in(domain) {
			continue
		}
		if found != nil {
			return nil, s.ambiguous(name, domain)
		}
		found = r
	}
	switch {
	case found != nil:
		return found, nil
	case domain != "":
		return nil, fmt.Errorf("%w %.200q in domain %.200q", ErrUnknownRule, name, domain)
	}
	return nil, fmt.Errorf("%w %.200q", ErrUnknownRule, name)
}

func (r *Rule) in(domain string) bool { return domain == "" || domain == r.Domain }

// ambiguous lists the rules of a name that several have.
func (s *Set) ambiguous(name, domain string) error {
	const most = 16 // a template may have given the same name to thousands
	var full []string
	more := 0
	for _, r := range s.byName[name] {
		switch {
		case !r.in(domain):
		case len(full) == most:
			more++
		default:
			full = append(full, r.FullName)
		}
	}
	list := strings.Join(full, ", ")
	if more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return invalid("several rules are named %q, use the full name of one: %s", name, list)
}
