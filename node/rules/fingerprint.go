package rules

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"reflect"
	"slices"

	"github.com/edgelimit/edgelimit/counters"
)

// Fingerprint returns a hash of the rules' meaning, never 0: nodes compare theirs. Comments, the order of keys, files
// and rules, and spelt-out defaults make no difference. The order of wildcards under one key does, as the first that
// fits wins, and so does that of a schedule.
func (s *Set) Fingerprint() uint64 {
	f := fingerprint{sha256.New()}
	for _, domain := range s.Domains() {
		f.put("domain", domain)
		f.tree(s.domains[domain])
	}
	flat := slices.DeleteFunc(s.Rules(), func(r *Rule) bool { return r.Domain != "" })
	slices.SortFunc(flat, func(a, b *Rule) int { return cmp.Compare(a.FullName, b.FullName) })
	for _, r := range flat {
		f.rule(r)
	}
	return max(1, f.sum())
}

// fingerprint hashes names with values.
type fingerprint struct{ hash.Hash }

// put skips a zero value, so that a setting of another version leaves the fingerprint of rules without it as it is. It
// hashes numbers, not their names, which may change.
func (f fingerprint) put(name string, value any) {
	if !reflect.ValueOf(value).IsZero() {
		fmt.Fprintf(f, "%s %#v\n", name, value)
	}
}

func (f fingerprint) sum() uint64 { return binary.LittleEndian.Uint64(f.Sum(nil)) }

// tree adds the descriptors under a node, by keys and values; wildcards in the order of the file.
func (f fingerprint) tree(n *Node) {
	f.put("in", sorted(n.Regions))
	if n.Rule != nil {
		f.rule(n.Rule)
	}
	place := func(n *Node) string {
		if IsWild(n.Entry.Value) {
			return "*"
		}
		return n.Entry.Value
	}
	children := slices.Clone(n.children)
	slices.SortStableFunc(children, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(a.Entry.Key, b.Entry.Key), cmp.Compare(place(a), place(b)))
	})
	for _, c := range children {
		f.put("key", c.Entry.Key)
		f.put("value", c.Entry.Value)
		f.tree(c)
	}
	f.put("end", true)
}

// rule adds a rule, whose place is known.
func (f fingerprint) rule(r *Rule) {
	f.put("rule", r.FullName)
	f.put("name", r.Given)
	for _, st := range r.Steps {
		f.put("step", fmt.Sprint(st.Open, st.IPv4, st.IPv6))
		f.put("secret", st.Secret)
	}
	f.limit(r.Limit)
	policy := reflect.ValueOf(r.Policy)
	for i := range policy.NumField() {
		f.put(policy.Type().Field(i).Name, policy.Field(i).Interface())
	}
	f.put("elastic", r.Elastic)
	if a := &r.After; a.present {
		f.put("after", fmt.Sprint(a.On, uint8(a.Cost), a.Header))
	}
	f.put("replaces", sorted(r.Replaces))
	f.put("regions", sorted(r.Regions))
	if len(r.Metadata) > 0 {
		f.put("metadata", r.Metadata)
	}
	for i := range r.Schedule {
		s := &r.Schedule[i]
		f.put("schedule", fmt.Sprint(s.From, s.To, s.Zone, s.Margin))
		f.limit(s.Limit)
	}
	if r.overrides != nil {
		f.put("overrides", r.overrides.sum)
	}
	if r.Lists != nil {
		prefixes := make([]string, 0, len(r.Lists.listed))
		for p, l := range r.Lists.listed {
			prefixes = append(prefixes, fmt.Sprintf("%v %d", p, l))
		}
		f.put("listed", sorted(prefixes))
	}
}

func (f fingerprint) limit(l *counters.Limit) {
	if l != nil {
		m := l.Meter()
		f.put("limit", fmt.Sprintf("%d %d %d %d %d", m.Algorithm, m.Window, m.Sub, l.Max(), l.Refill()))
	}
}

// sorted returns a list whose order means nothing; nil for an empty one.
func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }
