package bans

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/bans/banname"
)

// Ban is one ban in force.
type Ban struct {
	Rule  string `json:"rule"`  // its name
	Scope string `json:"scope"` // global, region or node: where it holds
	// Address is the address or prefix that is banned, where it may be kept in clear; else empty, and Key is the keyed
	// hash of whom the rule counts, in 16 hexadecimal digits.
	Address string    `json:"address,omitempty"`
	Key     string    `json:"key,omitempty"`
	Began   time.Time `json:"began"`
	Ends    time.Time `json:"ends"`
	// Manual is a ban that an operator began, By whom for a Reason; others follow from a denial by the rule.
	Manual bool   `json:"manual"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Record returns the ban of a key that ends at a time, in nanoseconds since the Unix epoch.
func (r *Registry) Record(bans *counters.Bans, key counters.Key, ends int64) Ban {
	name, _ := banname.Parse(bans.Meter().Rule)
	return r.record(bans, &name, key, ends)
}

func (r *Registry) record(bans *counters.Bans, name *banname.Name, key counters.Key, ends int64) Ban {
	rule, scope := Rule(name.Rule)
	b := Ban{Rule: r.nameOf(rule), Scope: scope.String(), Manual: name.Keys.Manual(), By: name.By, Reason: name.Reason,
		Began: time.Unix(0, ends-int64(bans.Meter().Window)).UTC(), Ends: time.Unix(0, ends).UTC()}
	switch p := name.Prefix(key); {
	case !p.IsValid():
		b.Key = fmt.Sprintf("%016x", uint64(key))
	case p.IsSingleIP():
		b.Address = p.Addr().String()
	default:
		b.Address = p.String()
	}
	return b
}

// List yields the bans in force now of the rules that f selects by their full names, sorted by rule and by end. It
// copies them first, so that a slow reader holds nobody up.
func (r *Registry) List(f func(rule string) bool) iter.Seq[Ban] {
	return r.records(func(_ *counters.Bans, name *banname.Name) (Spares, bool) {
		rule, _ := Rule(name.Rule)
		return nil, f(rule)
	}, r.now())
}

// records yields the bans that f selects and that have not ended, sorted by rule and by end.
func (r *Registry) records(f Selection, now int64) iter.Seq[Ban] {
	type record struct {
		meter *meter
		key   counters.Key
		ends  int64
	}
	var all []record
	r.each(f, now, func(m *meter, key counters.Key, ends int64, spared Spare) {
		if spared == Blocked {
			all = append(all, record{m, key, ends})
		}
	})
	slices.SortFunc(all, func(a, b record) int {
		if a.meter != b.meter {
			if c := strings.Compare(a.meter.name.Rule, b.meter.name.Rule); c != 0 {
				return c
			}
		}
		return cmp.Or(cmp.Compare(a.ends, b.ends), cmp.Compare(a.key, b.key),
			strings.Compare(a.meter.Meter().Rule, b.meter.Meter().Rule))
	})
	return func(yield func(Ban) bool) {
		for i := range all {
			m := all[i].meter
			if !yield(r.record(m.Bans, &m.name, all[i].key, all[i].ends)) {
				return
			}
		}
	}
}
