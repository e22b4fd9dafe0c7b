package actions

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/edgelimit/edgelimit/node/rules"
)

// Derived is descriptors that follow from rules that say where their values come from (from: header X-Api-Key), beside
// those of the configuration. All Actions of a node share it, and see at once when rules change. The zero value is
// empty. It is safe for concurrent use.
type Derived struct {
	domains atomic.Pointer[map[string]*derived]
}

// derived is the descriptors of a domain.
type derived struct {
	descriptors []descriptor
	entries     int  // of all together
	asked       bool // some source reads the original request
}

// Set replaces the descriptors by those of each domain. Descriptors with mistakes, which the error joins, are left out.
func (d *Derived) Set(domains map[string][]Descriptor) error {
	var errs []error
	all := make(map[string]*derived)
	for domain, list := range domains {
		of := new(derived)
		for _, descriptor := range list {
			var wrong []error
			compiled := descriptor.compile(0, func(format string, args ...any) {
				wrong = append(wrong, fmt.Errorf(format, args...))
			})
			if len(wrong) > 0 {
				errs = append(errs, wrong...)
				continue
			}
			of.add(compiled)
		}
		all[domain] = of
	}
	d.domains.Store(&all)
	return errors.Join(errs...)
}

func (d *derived) add(compiled descriptor) {
	d.descriptors = append(d.descriptors, compiled)
	d.entries += len(compiled.entries)
	for _, e := range compiled.entries {
		d.asked = d.asked || kinds[e.kind].original
	}
}

var noneDerived derived

// of returns the descriptors of a domain. d may be nil.
func (d *Derived) of(domain string) *derived {
	if d != nil {
		if all := d.domains.Load(); all != nil && (*all)[domain] != nil {
			return (*all)[domain]
		}
	}
	return &noneDerived
}

// FromRules returns the descriptors, by domain, that meet the rules whose files say where a value comes from, as far as
// configured ones of the domain of requests do not: a key without a source in the rules has that of configured.
func FromRules(set *rules.Set, configured []Descriptor) map[string][]Descriptor {
	all, known := make(map[string][]Descriptor), make(map[string]string)
	for _, d := range configured {
		for _, e := range d.Entries() {
			known[e.Key] = cmp.Or(known[e.Key], e.Source)
		}
	}
	for _, r := range set.Rules() {
		sources := set.Sources(r.Domain)
		if len(sources) == 0 || r.Compatible {
			continue
		}
		var d Descriptor
		own, complete := false, true
		for _, e := range r.Path() {
			source := cmp.Or(sources[e.Key], known[e.Key])
			own, complete = own || sources[e.Key] != "", complete && source != ""
			d = append(d, Entry{e.Key, source})
		}
		if own && complete && !meets(configured, d) && !meets(all[r.Domain], d) {
			all[r.Domain] = append(all[r.Domain], d)
		}
	}
	return all
}

// meets reports whether one of the descriptors has the keys of d.
func meets(all []Descriptor, d Descriptor) bool {
	for _, other := range all {
		entries := other.Entries()
		same := len(entries) == len(d)
		for i := range d {
			same = same && entries[i].Key == d[i].Key
		}
		if same {
			return true
		}
	}
	return false
}
