package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Match is the rule that one layer of a request meets. The zero value is no rule: the layer is allowed.
type Match struct {
	Rule *Rule // nil: no rule, or the limit of an Ask replaces it
	Key  counters.Key
	// Listed is the entry of the rule's address lists for the client.
	Listed Listing

	own    *counters.Limit // in place of the rule's: the request's own, which counts with it; else nil
	asked  uint8           // index of the Ask with the layer's cost, from 1; 0: the request's cost
	lender uint8           // index of the layer that it borrows from, from 1; 0: none

	address counters.Key  // of whom the rule bans, if it exports that; else 0
	banned  time.Duration // what is left of a manual ban; 0: none
	owes    time.Duration // for how long the layer's counter owes what responses cost; 0: nothing

	failure Failure // what the rule does in the outage at hand
	pending uint64  // see Pend
	noWait  bool    // see NoWait
}

// Match appends to dst one Match for each descriptor, in order, or one for a request by rule and identity. A rule that
// another one of the request replaces is left out. The parents of elastic rules follow, unless the request meets them
// itself. It allocates nothing as long as dst has room and the values of a descriptor are short (about 200 bytes
// together).
//
// Its errors wrap ErrUnknownRule or ErrInvalidRequest; dst is then returned as it was. An unknown domain is no error:
// all its layers are unmatched.
func (s *Set) Match(req *Request, secret Secret, dst []Match) ([]Match, error) {
	top := s.domains[req.Domain]
	if err := req.validate(s.compatible(top)); err != nil {
		return dst, err
	}
	if req.Rule != "" {
		return s.matchByName(req, secret, dst)
	}
	before, first, replacing, borrowing := dst, len(dst), false, false
	for i, entries := range req.Descriptors {
		var m Match
		if req.overrides(i) {
			if top != nil {
				m = top.matchOwn(req, i, secret)
			}
			dst = append(dst, m)
			continue
		}
		if m.Rule = top.find(entries); m.Rule != nil {
			m.Key = m.Rule.key(secret, entries)
			m.Listed = m.Rule.listing(entries[len(entries)-1].Value)
			m.address = m.Rule.banKey(entries)
			replacing = replacing || len(m.Rule.Replaces) > 0
			borrowing = borrowing || m.Rule.parent != nil
			if req.Asks != nil {
				m.asked = uint8(i + 1)
			}
		}
		dst = append(dst, m)
	}
	if replacing {
		replace(dst[first:], req.Alternatives)
	}
	for i := 0; borrowing && i < len(req.Descriptors); i++ {
		if !dst[first+i].borrows() {
			continue
		}
		var err error
		if dst, err = findLender(dst, first, i, req.Descriptors[i], secret, req.Alternatives); err != nil {
			return before, err
		}
		if borrower := dst[first+i]; borrower.asked != 0 && borrower.lender != 0 {
			lender := &dst[first+int(borrower.lender)-1]
			if lender.asked == 0 || lender.Asked(req) < borrower.Asked(req) {
				lender.asked = borrower.asked
			}
		}
	}
	if req.Alternatives != 0 {
		dropRepeated(dst[first:], req.Alternatives)
	}
	return dst, nil
}

// matchOwn returns the match of descriptor i, which brings its own limit, in the domain with this top of its tree.
func (n *Node) matchOwn(req *Request, i int, secret Secret) Match {
	entries, m := req.Descriptors[i], Match{asked: uint8(i + 1)}
	if n.joined == nil {
		m.Key = overrideKey(secret, req.Domain, entries)
		return m
	}
	r := n.find(entries)
	if m.own = r.tallied(req.Asks[i].Limit, entries); m.own != nil {
		m.Rule, m.Key = r, r.key(secret, entries)
	} else {
		m.Key = joinedOverrideKey(secret, req.Domain, entries)
	}
	return m
}

// matchByName is Match of a request by rule and identity.
func (s *Set) matchByName(req *Request, secret Secret, dst []Match) ([]Match, error) {
	r, err := s.resolve(req)
	if err != nil {
		return dst, err
	}
	var room [MaxEntries]Entry
	entries := r.entries(&room, req.Identity)
	m := Match{Rule: r, Key: r.key(secret, entries), Listed: r.listing(req.Identity), address: r.banKey(entries)}
	if dst = append(dst, m); m.borrows() {
		return findLender(dst, len(dst)-1, 0, entries, secret, 0)
	}
	return dst, nil
}

// Limited reports whether the layer met a rule, or brings its own limit.
func (m *Match) Limited() bool { return m.Rule != nil || m.asked != 0 }

// dropRepeated clears layers that have the counter of another reading of the same descriptor.
func dropRepeated(layers []Match, alternatives uint32) {
	start := 0 // of the readings of one descriptor
	for i := range layers {
		if alternatives>>i&1 == 0 {
			start = i
			continue
		}
		for j := start; j < i && layers[i].Rule != nil; j++ {
			if layers[j].Rule == layers[i].Rule && layers[j].Key == layers[i].Key {
				layers[i] = Match{}
			}
		}
	}
}

// overrides reports whether descriptor i brings its own limit.
func (r *Request) overrides(i int) bool { return r.Asks != nil && r.Asks[i].Limit != nil }

// Asked returns the layer's cost before the rule's factor: 0 for a peek, and where the charge is for the response or is
// not, whichever the request has.
func (m *Match) Asked(req *Request) uint64 {
	if m.Rule != nil && m.Rule.After.present {
		cost, _ := m.Rule.After.cost(req.Response)
		return cost
	}
	if req.Response != nil {
		return 0
	}
	if m.asked == 0 {
		return req.EffectiveCost()
	}
	return req.Asks[m.asked-1].Cost
}

// replace clears the layers whose rule the rule of another layer replaces, also if that one is replaced itself.
func replace(layers []Match, alternatives uint32) {
	var out [MaxDescriptors]bool
	for i := range layers {
		m := &layers[i]
		out[i] = m.Rule != nil && m.own == nil && !(m.Rule.Compatible && m.Rule.Limit == nil) &&
			replacedBy(m.Rule, i, layers, alternatives) != nil
	}
	for i := range layers {
		if out[i] {
			layers[i] = Match{}
		}
	}
}

// replaces reports whether the rule replaces another one.
func (r *Rule) replaces(other *Rule) bool {
	return other.Given != "" && slices.Contains(r.Replaces, other.Given) || slices.Contains(r.Replaces, other.FullName)
}

// replacedBy returns the rule among the layers that replaces r, the rule of layer i (-1: of none); nil for none. Of a
// descriptor with several readings all have to replace r: otherwise a client could remove a layer by sending the
// replacing value beside the real one.
func replacedBy(r *Rule, i int, layers []Match, alternatives uint32) *Rule {
	for start := 0; start < len(layers); {
		end := start + 1
		for end < len(layers) && alternatives>>end&1 == 1 {
			end++
		}
		readings := layers[start:end]
		if start <= i && i < end {
			readings = layers[i : i+1]
		}
		by := readings[0].Rule
		for _, m := range readings {
			if m.Rule == nil || m.own != nil || !m.Rule.replaces(r) {
				by = nil
			}
		}
		if by != nil {
			return by
		}
		start = end
	}
	return nil
}

// find returns the rule that the last of the entries reaches, nil for none. A nil node has no rules.
func (n *Node) find(entries []Entry) *Rule {
	for i := 0; i < len(entries) && n != nil; i++ {
		n = n.child(&entries[i])
	}
	if n == nil {
		return nil
	}
	return n.Rule
}

// listing looks up the client in the rule's lists, which belong to its last key.
func (r *Rule) listing(value string) Listing {
	if r.Lists == nil {
		return Unlisted
	}
	return r.Lists.find(value)
}

// Identity returns who the i-th layer of a request is about, in clear.
func (m *Match) Identity(req *Request, i int) string {
	switch {
	case m.Rule == nil:
		return ""
	case i < len(req.Descriptors):
		if d := req.Descriptors[i]; len(d) > 0 {
			return d[len(d)-1].Value
		}
		return ""
	}
	return req.Identity
}

// Find returns the rule of a name, in that domain unless domain is empty. The error is ErrUnknownRule or
// ErrInvalidRequest.
func (s *Set) Find(name, domain string) (*Rule, error) {
	r, ambiguous := s.Lookup(name, domain)
	switch {
	case ambiguous != "":
		return nil, invalid("%s", ambiguous)
	case r == nil:
		return nil, s.unknownRule(name, domain)
	}
	return r, nil
}

// resolve returns the rule that the request names, and checks the identity.
func (s *Set) resolve(req *Request) (*Rule, error) {
	r, err := s.Find(req.Rule, req.Domain)
	switch {
	case err != nil:
		return nil, err
	case len(r.open) > 1:
		return nil, invalid("rule %s counts by %s: use descriptors to give all of them", r.HeaderName,
			strings.Join(r.OpenKeys(), ", "))
	case len(r.open) == 0 && req.Identity != "":
		return nil, invalid("rule %s has one count for everybody: leave the identity empty", r.HeaderName)
	case len(r.open) == 0:
		return r, nil
	}
	switch e := r.Entries[r.open[0]]; {
	case req.Identity == "" && e.Value == "":
		return nil, invalid("rule %s counts by %s: give one as the identity", r.HeaderName, e.Key)
	case IsWild(e.Value) && !matchWildcards(e.Value, req.Identity):
		return nil, invalid("the identity does not fit what rule %s is for", r.HeaderName)
	}
	return r, nil
}

// Lookup returns the one rule of a name, in that domain unless domain is empty; nil for none. ambiguous is the error
// text where there are several. A full name wins over names, and those over given ones, so that each rule can be
// reached.
func (s *Set) Lookup(name, domain string) (found *Rule, ambiguous string) {
	for _, unique := range []map[string]*Rule{s.byFullName, s.byName} {
		if r := unique[name]; r != nil && r.in(domain) {
			return r, ""
		}
	}
	for _, r := range s.byGiven[name] {
		if !r.in(domain) {
			continue
		}
		if found != nil {
			return nil, s.ambiguity(name, domain)
		}
		found = r
	}
	return found, ""
}

func (r *Rule) in(domain string) bool { return domain == "" || domain == r.Domain }

// ambiguity lists the rules of a name that several have, but for those whose own names show values.
func (s *Set) ambiguity(name, domain string) string {
	const max = 16 // a template may have given the same name to thousands
	var names []string
	more := 0
	for _, r := range s.byGiven[name] {
		switch {
		case !r.in(domain):
		case r.Name == r.HeaderName && len(names) < max:
			names = append(names, r.Name)
		default:
			more++
		}
	}
	list := strings.Join(names, ", ")
	switch {
	case len(names) == 0:
		list = "edgelimit rules list shows them"
	case more > 0:
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("several rules are called %q, use the name of one: %s", name, list)
}
