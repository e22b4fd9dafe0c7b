package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/edgelimit/edgelimit/counters"
)

// AssignNames names the rules of a complete set. A rule has its given name if no other rule has that or is at a place
// of that name; else domain/name, if that is its alone; else the name is its place. Names stay as other rules come and
// go, but for rules that share a given one.
func (s *Set) AssignNames() {
	given, inDomain := make(map[string]int), make(map[string]int)
	for _, r := range s.rules {
		if r.Given != "" {
			given[shownName(r.Given)]++
			inDomain[r.domainName()]++
		}
	}
	// own reports whether a name that so many rules are given is none that another rule has by its place.
	own := func(r *Rule, name string, rules int) bool {
		at := s.byFullName[name]
		return rules == 1 && (at == nil || at == r)
	}
	s.byName = make(map[string]*Rule, len(s.rules))
	for _, r := range s.rules {
		r.Name = ""
		if name := shownName(r.Given); r.Given != "" && own(r, name, given[name]+inDomain[name]) {
			r.Name = name
		} else if name := r.domainName(); r.Given != "" && own(r, name, inDomain[name]+given[name]) {
			r.Name = name
		}
		if r.Name != "" {
			s.byName[r.Name] = r
		}
	}
	for _, r := range s.rules {
		for digits := 4; r.Name == ""; digits += 2 {
			name := r.place(digits)
			at := s.byFullName[name]
			if s.byName[name] == nil && (at == nil || at == r) || digits > 2*sha256.Size {
				r.Name, s.byName[name] = name, r
			}
		}
		switch keys := r.keys(); {
		case r.Given == "":
			r.HeaderName = keys
		case r.Name == keys || r.Name == r.domainName():
			r.HeaderName = r.Name
		default:
			r.HeaderName = shownName(r.Given)
		}
	}
}

// shownName is a given name as one line that steers no terminal: what is not printable is written as %XX.
func shownName(given string) string {
	if strings.IndexFunc(given, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return given
	}
	var b strings.Builder
	for _, r := range given {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, c := range []byte(string(r)) {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// domainName is the given name in the rule's domain.
func (r *Rule) domainName() string { return shownName(Component(Entry{Key: r.Domain}) + "/" + r.Given) }

// place is the full name, with so many digits of the hashes of secret values.
func (r *Rule) place(digits int) string {
	if !r.hasSecret() {
		return shownName(r.FullName)
	}
	var b strings.Builder
	b.WriteString(shownName(Component(Entry{Key: r.Domain})))
	for i, e := range r.Entries {
		if r.Steps[i].Secret && e.Value != "" {
			hash := sha256.Sum256([]byte(e.Value))
			e.Value = "#" + hex.EncodeToString(hash[:])[:min(digits, 2*len(hash))]
		}
		b.WriteString("/" + shownName(Component(e)))
	}
	return fitting(b.String())
}

// At is the rule's place as people see it: domain, keys and values from the top of the tree to the rule.
func (r *Rule) At() string { return r.place(4) }

// keys is the place without values, but for lone wildcards.
func (r *Rule) keys() string {
	if r.Domain == "" {
		return shownName(r.FullName)
	}
	var b strings.Builder
	b.WriteString(Component(Entry{Key: r.Domain}))
	for _, e := range r.Entries {
		if e.Value != "*" {
			e.Value = ""
		}
		b.WriteString("/" + Component(e))
	}
	return fitting(shownName(b.String()))
}

// hasSecret reports whether the place holds a secret value.
func (r *Rule) hasSecret() bool {
	for i := range r.Steps {
		if r.Steps[i].Secret && r.Entries[i].Value != "" {
			return true
		}
	}
	return false
}

// HasSecretKey reports whether values of one of the rule's keys are secrets.
func (r *Rule) HasSecretKey() bool {
	return slices.ContainsFunc(r.Steps, func(s Step) bool { return s.Secret })
}

// fitting shortens a name that is longer than those of rules may be.
func fitting(name string) string {
	if len(name) <= counters.MaxRuleName {
		return name
	}
	return Shortened(name)
}

// SecretHash is what stands for a secret value in a full name. People see its first four digits.
func SecretHash(value string) string {
	hash := sha256.Sum256([]byte(value))
	return hex.EncodeToString(hash[:8])
}

// Shown is a value of the entry as people see it: # and four digits of a hash of a secret one.
func (s Step) Shown(value string) string {
	if s.Secret && value != "" {
		return "#" + SecretHash(value)[:4]
	}
	return value
}
