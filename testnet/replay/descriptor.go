package replay

import (
	"fmt"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/node/rules"
)

// descriptor is what is asked about each request: entries whose values come from its line, or are always the same.
type descriptor struct {
	entries []rules.Entry
	numbers []int // of the values in a line; -1: the entry has its value
}

// parseDescriptor reads "path,remote_address" or "generic_key=slow,remote_address".
func parseDescriptor(s string, l *layout) (descriptor, error) {
	var d descriptor
	for part := range strings.SplitSeq(s, ",") {
		key, value, constant := strings.Cut(part, "=")
		switch {
		case key == "" || constant && value == "":
			return d, fmt.Errorf("descriptor %.80q: want fields separated by commas, as in path,remote_address, or KEY=VALUE in the place of one", s)
		case !constant && !l.knows(key):
			return d, fmt.Errorf("descriptor %.80q: no field is called %.40q; name its place with a field KEY=PATH. Known are %s",
				s, key, strings.Join(Fields(), ", "))
		}
		d.add(key, value, l)
	}
	if len(d.entries) > rules.MaxEntries {
		return d, fmt.Errorf("descriptor %.80q has %d entries, at most %d are allowed", s, len(d.entries), rules.MaxEntries)
	}
	return d, nil
}

// add appends an entry; without a value it is the line's.
func (d *descriptor) add(key, value string, l *layout) {
	number := -1
	if value == "" {
		number = l.number(key)
	}
	d.entries = append(d.entries, rules.Entry{Key: key, Value: value})
	d.numbers = append(d.numbers, number)
}

// fill gives the entries a line's values, and reports whether it has all of them.
func (d *descriptor) fill(values []string) bool {
	for i, n := range d.numbers {
		if n < 0 {
			continue
		}
		if values[n] == "" {
			return false
		}
		d.entries[i].Value = values[n]
	}
	return true
}

// descriptors returns what is to be asked of the rules: what the user named, or else what the rules can meet.
func descriptors(named []string, met []*rules.Rule, l *layout) ([]descriptor, error) {
	var all []descriptor
	if len(named) > 0 {
		for _, s := range slices.Compact(slices.Sorted(slices.Values(named))) {
			d, err := parseDescriptor(s, l)
			if err != nil {
				return nil, err
			}
			all = append(all, d)
		}
	} else if all = derived(met, l); len(all) == 0 && len(met) > 0 {
		return nil, fmt.Errorf("no rule can be met: each has a key that is no field of a log, as %.80q; name its place with a field KEY=PATH, "+
			"or say what to ask with descriptors. Known are %s", met[0].FullName, strings.Join(Fields(), ", "))
	}
	if len(all) > rules.MaxDescriptors {
		return nil, fmt.Errorf("%d descriptors a request, at most %d are allowed: name those that matter", len(all), rules.MaxDescriptors)
	}
	return all, nil
}

// derived are the lists of keys that lead to the rules, each once, of those whose keys are all fields.
func derived(met []*rules.Rule, l *layout) []descriptor {
	var all []descriptor
	seen := make(map[string]bool)
	for _, r := range met {
		if len(unknownKeys(r, l)) > 0 {
			continue
		}
		var id strings.Builder
		var d descriptor
		for _, e := range r.Path() {
			fmt.Fprintf(&id, "%d:%s", len(e.Key), e.Key)
			d.add(e.Key, "", l)
		}
		if !seen[id.String()] {
			seen[id.String()] = true
			all = append(all, d)
		}
	}
	return all
}

// unknownKeys are the keys of a rule that are no field of a log.
func unknownKeys(r *rules.Rule, l *layout) (keys []string) {
	for _, e := range r.Path() {
		if !l.knows(e.Key) {
			keys = append(keys, e.Key)
		}
	}
	return keys
}
