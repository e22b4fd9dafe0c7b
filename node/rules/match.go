package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/counters"
)

// Match is what one layer of a request met. The zero value says that it met no rule, and is allowed.
type Match struct {
	Rule *Rule // nil: no rule met, or the limit of an Ask takes its place
	Key  counters.Key
	// Listed says whether the rule's allow or deny list names who asks.
	Listed Listing

	asked  uint8 // the place of the Ask that says what the layer is asked for, counted from 1; 0: the request does
	lender uint8 // the place of the layer that it borrows from, counted from 1; 0: nobody
}

// Match appends to dst what the request meets, one Match for each descriptor, in order; one for a request by rule and
// identity. A rule that another one of the request replaces is not met. After them come the parents of elastic rules, as far as the request
// does not name them itself. It allocates nothing as long as dst has room and the values of
// a descriptor are short (some 200 bytes in all).
//
// Its errors wrap ErrUnknownRule or ErrInvalidRequest; dst is then returned as it was. An unknown domain is no error: all
// its layers are unmatched.
func (s *Set) Match(req *Request, secret Secret, dst []Match) ([]Match, error) {
	if err := req.Validate(); err != nil {
		return dst, err
	}
	if req.Rule != "" {
		r, err := s.resolve(req)
		if err != nil {
			return dst, err
		}
		var room [MaxEntries]Entry
		entries := r.entries(&room, req.Identity)
		m := Match{Rule: r, Key: r.key(secret, entries), Listed: r.listing(req.Identity)}
		if dst = append(dst, m); m.borrows() {
			return findLender(dst, len(dst)-1, 0, entries, secret)
		}
		return dst, nil
	}
	top := s.domains[req.Domain]
	before, first, replacing, borrowing := dst, len(dst), false, false
	for i, entries := range req.Descriptors {
		var m Match
		if req.overrides(i) {
			if top != nil {
				m.Key, m.asked = overrideKey(secret, req.Domain, entries), uint8(i+1)
			}
			dst = append(dst, m)
			continue
		}
		if m.Rule = top.find(entries); m.Rule != nil {
			m.Key = m.Rule.key(secret, entries)
			m.Listed = m.Rule.listing(entries[len(entries)-1].Value)
			replacing = replacing || len(m.Rule.Replaces) > 0
			borrowing = borrowing || m.Rule.parent != nil
			if req.Asks != nil {
				m.asked = uint8(i + 1)
			}
		}
		dst = append(dst, m)
	}
	if replacing {
		replace(dst[first:])
	}
	for i := 0; borrowing && i < len(req.Descriptors); i++ {
		if !dst[first+i].borrows() {
			continue
		}
		layers, err := findLender(dst, first, i, req.Descriptors[i], secret)
		if err != nil {
			return before, err
		}
		dst = layers
		if borrower := dst[first+i]; borrower.asked != 0 && borrower.lender != 0 {
			lender := &dst[first+int(borrower.lender)-1]
			if lender.asked == 0 || lender.Asked(req) < borrower.Asked(req) {
				lender.asked = borrower.asked
			}
		}
	}
	return dst, nil
}

// overrides reports whether the descriptor i brings a limit of its own.
func (r *Request) overrides(i int) bool { return r.Asks != nil && r.Asks[i].Limit != nil }

// Asked is what the layer is asked for: 0 for a peek.
func (m *Match) Asked(req *Request) uint64 {
	if m.asked == 0 {
		return req.EffectiveCost()
	}
	return req.Asks[m.asked-1].Cost
}

// replace takes out the layers whose rule another layer's replaces, also where that one is itself replaced.
func replace(layers []Match) {
	var out [MaxDescriptors]bool
	for i := range layers {
		out[i] = layers[i].Rule != nil && replacedBy(layers[i].Rule, layers) != nil
	}
	for i := range layers {
		if out[i] {
			layers[i] = Match{}
		}
	}
}

// replacedBy returns the rule among the layers' that takes the place of r, nil when there is none.
func replacedBy(r *Rule, layers []Match) *Rule {
	for i := range layers {
		if by := layers[i].Rule; by != nil && slices.Contains(by.Replaces, r.Name) {
			return by
		}
	}
	return nil
}

// find returns the rule that the last of the entries reaches, nil when there is none. A nil node has no rules.
func (n *node) find(entries []Entry) *Rule {
	for i := range entries {
		if n == nil {
			return nil
		}
		n = n.child(&entries[i])
	}
	if n == nil {
		return nil
	}
	return n.rule
}

// listing looks up who asks in the rule's lists. They are of the rule's last key.
func (r *Rule) listing(value string) Listing {
	if r.listed == nil {
		return Unlisted
	}
	return r.listed.find(value)
}

// resolve returns the rule that the request names, once its identity is known to fit.
func (s *Set) resolve(req *Request) (*Rule, error) {
	r, err := s.lookup(req.Rule, req.Domain)
	switch {
	case err != nil:
		return nil, err
	case len(r.open) > 1:
		return nil, invalid("rule %s counts by %s: use descriptors to give all of them", r.FullName, strings.Join(r.OpenKeys(), ", "))
	case len(r.open) == 0 && req.Identity != "":
		return nil, invalid("rule %s has one count for everybody: leave the identity empty", r.FullName)
	case len(r.open) == 0:
		return r, nil
	}
	switch e := r.path[r.open[0]]; {
	case req.Identity == "" && e.Value == "":
		return nil, invalid("rule %s counts by %s: give one as the identity", r.FullName, e.Key)
	case isWild(e.Value) && !matchWildcards(e.Value, req.Identity):
		return nil, invalid("rule %s is for identities like %.80q", r.FullName, e.Value)
	}
	return r, nil
}

// lookup finds the one rule of that name, in that domain unless domain is empty. A full name wins over names, so that each
// rule can be reached whatever the others are called.
func (s *Set) lookup(name, domain string) (*Rule, error) {
	switch r, ambiguous := s.named(name, domain); {
	case ambiguous:
		return nil, invalid("%s", s.ambiguity(name, domain))
	case r != nil:
		return r, nil
	case domain != "":
		return nil, fmt.Errorf("%w %.200q in domain %.200q", ErrUnknownRule, name, domain)
	}
	return nil, fmt.Errorf("%w %.200q", ErrUnknownRule, name)
}

// named is lookup that does not say what is wrong: it returns nil where no rule has the name, or several have.
func (s *Set) named(name, domain string) (found *Rule, ambiguous bool) {
	if r := s.byFullName[name]; r != nil && r.in(domain) {
		return r, false
	}
	for _, r := range s.byName[name] {
		if !r.in(domain) {
			continue
		}
		if found != nil {
			return nil, true
		}
		found = r
	}
	return found, false
}

func (r *Rule) in(domain string) bool { return domain == "" || domain == r.Domain }

// ambiguity lists the rules of a name that several have.
func (s *Set) ambiguity(name, domain string) string {
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
	return fmt.Sprintf("several rules are named %q, use the full name of one: %s", name, list)
}
