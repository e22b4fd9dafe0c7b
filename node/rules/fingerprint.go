package rules

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
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
	return max(1, binary.LittleEndian.Uint64(f.Sum(nil)))
}

// fingerprint hashes names with values. It skips zero values, so that a setting of another version leaves the
// fingerprint of rules without it as it is.
type fingerprint struct{ hash.Hash }

func (f fingerprint) put(name string, values ...any) {
	for _, v := range values {
		switch value := reflect.ValueOf(v); {
		case value.IsZero():
		case value.CanInt(): // not the name, which may change
			fmt.Fprintf(f, "%s %d\n", name, value.Int())
		case value.CanUint():
			fmt.Fprintf(f, "%s %d\n", name, value.Uint())
		default:
			fmt.Fprintf(f, "%s %q\n", name, fmt.Sprint(v))
		}
	}
}

// tree adds the descriptors under a node.
func (f fingerprint) tree(n *Node) {
	f.put("in", sortedJSON(n.Regions))
	if n.Rule != nil {
		f.rule(n.Rule)
	}
	for _, key := range slices.Sorted(maps.Keys(n.keys)) {
		f.put("key", key)
		for _, value := range slices.Sorted(maps.Keys(n.keys[key].exact)) {
			if !IsWild(value) {
				f.put("value", value)
				f.tree(n.keys[key].exact[value])
			}
		}
		for _, c := range n.children {
			if c.Entry.Key == key && IsWild(c.Entry.Value) {
				f.put("wildcard", c.Entry.Value)
				f.tree(c)
			}
		}
		if bare := n.keys[key].bare; bare != nil {
			f.put("bare", true)
			f.tree(bare)
		}
		f.put("end", true)
	}
}

// Rule adds a rule, whose place is known.
func (f fingerprint) rule(r *Rule) {
	f.put("rule", r.FullName, r.Name)
	for _, st := range r.steps {
		f.put("step", fmt.Sprint(st.Open, st.IPv6))
	}
	f.limit(r.Limit)
	policy := reflect.ValueOf(r.Policy)
	for i := range policy.NumField() {
		f.put(policy.Type().Field(i).Name, policy.Field(i).Interface())
	}
	f.put("elastic", r.Elastic)
	f.put("replaces", sortedJSON(r.Replaces))
	f.put("regions", sortedJSON(r.Regions))
	if len(r.Metadata) > 0 {
		metadata, _ := json.Marshal(r.Metadata) // of strings, bools and numbers; maps by their keys
		f.put("metadata", string(metadata))
	}
	for i := range r.Schedule {
		s := &r.Schedule[i]
		f.put("schedule", fmt.Sprint(s.From, s.To, s.Zone, s.Margin))
		f.limit(s.Limit)
	}
	if r.Lists != nil {
		prefixes := make([]string, 0, len(r.Lists.listed))
		for p, l := range r.Lists.listed {
			prefixes = append(prefixes, fmt.Sprintf("%v %d", p, l))
		}
		f.put("listed", sortedJSON(prefixes))
	}
}

func (f fingerprint) limit(l *counters.Limit) {
	if l != nil {
		m := l.Meter()
		f.put("limit", fmt.Sprintf("%d %d %d %d %d", m.Algorithm, m.Window, m.Sub, l.Max(), l.Refill()))
	}
}

// sortedJSON writes a list without order; "" for an empty one.
func sortedJSON(list []string) string {
	if len(list) == 0 {
		return ""
	}
	text, _ := json.Marshal(slices.Sorted(slices.Values(list)))
	return string(text)
}
