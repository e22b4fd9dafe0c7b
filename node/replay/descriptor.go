package replay

import (
	"fmt"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/node/rules"
)

// descriptor is a descriptor of each request: entries whose values come from its line or are constant.
type descriptor struct {
	entries []rules.Entry
	indexes []int // in a line's values; -1 for a constant
}

// parseDescriptor parses "path,remote_address" or "generic_key=slow,remote_address".
func parseDescriptor(s string, l *layout) (descriptor, error) {
	var d descriptor
	for part := range strings.SplitSeq(s, ",") {
		key, value, constant := strings.Cut(part, "=")
		switch {
		case key == "" || constant && value == "":
			return d, fmt.Errorf("descriptor %.80q: want fields separated by commas, as in path,remote_address, or "+
				"KEY=VALUE in the place of one", s)
		case !constant && !l.knows(key):
			return d, fmt.Errorf("descriptor %.80q: no field is called %.40q; name its place with a field KEY=PATH. "+
				"Known are %s", s, key, strings.Join(Fields(), ", "))
		}
		d.add(key, value, l)
	}
	if n := len(d.entries); n > rules.MaxEntries {
		return d, fmt.Errorf("descriptor %.80q has %d entries, at most %d are allowed", s, n, rules.MaxEntries)
	}
	return d, nil
}

// add appends an entry, which is the line's if value is empty.
func (d *descriptor) add(key, value string, l *layout) {
	index := -1
	if value == "" {
		index = l.index(key)
	}
	d.entries = append(d.entries, rules.Entry{Key: key, Value: value})
	d.indexes = append(d.indexes, index)
}

// fill sets the entries to a line's values, and reports whether it has all of them.
func (d *descriptor) fill(values []string) bool {
	for i, n := range d.indexes {
		if n >= 0 {
			d.entries[i].Value = values[n]
		}
		if d.entries[i].Value == "" {
			return false
		}
	}
	return true
}

// descriptors returns those that the user named, or else those that match the rules.
func descriptors(named []string, all []*rules.Rule, l *layout) (list []descriptor, err error) {
	if len(named) == 0 {
		if list = derived(all, l); len(list) == 0 && len(all) > 0 {
			return nil, fmt.Errorf("no rule can be met: each has a key that is no field of a log, as %.80q; name its "+
				"place with a field KEY=PATH, or say what to ask with descriptors. Known are %s", all[0].Name,
				strings.Join(Fields(), ", "))
		}
	}
	for _, s := range slices.Compact(slices.Sorted(slices.Values(named))) {
		d, err := parseDescriptor(s, l)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	if n := len(list); n > rules.MaxDescriptors {
		return nil, fmt.Errorf("%d descriptors a request, at most %d are allowed: name those that matter", n,
			rules.MaxDescriptors)
	}
	return list, nil
}

// derived returns the distinct lists of keys that lead to the rules whose keys are all fields.
func derived(all []*rules.Rule, l *layout) (list []descriptor) {
	for _, r := range all {
		if len(unknownKeys(r, l)) > 0 {
			continue
		}
		var d descriptor
		for _, e := range r.Path() {
			d.add(e.Key, "", l)
		}
		known := func(other descriptor) bool { return slices.Equal(other.entries, d.entries) }
		if !slices.ContainsFunc(list, known) {
			list = append(list, d)
		}
	}
	return list
}

// unknownKeys returns the keys of a rule that are no field of a log.
func unknownKeys(r *rules.Rule, l *layout) (keys []string) {
	for _, e := range r.Path() {
		if !l.knows(e.Key) {
			keys = append(keys, e.Key)
		}
	}
	return keys
}
