package bans

import (
	"net/netip"
	"slices"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/bans/banname"
)

// Manual is the manual bans in force at a time. It is immutable.
type Manual struct {
	rules map[string]*manualBans // by the rules' names in their limits' meters
}

type manualBans struct {
	keys     map[counters.Key]int64
	prefixes map[netip.Prefix]int64
	lengths  [2][]int // of the prefixes of IPv4 and IPv6
}

// newManual returns the manual bans, nil for none. The registry is locked.
func (r *Registry) newManual() *Manual {
	m := &Manual{rules: make(map[string]*manualBans)}
	for _, bans := range r.meters {
		name := &bans.name
		if !name.Keys.Manual() {
			continue
		}
		of := m.rules[name.Rule]
		if of == nil {
			of = &manualBans{keys: make(map[counters.Key]int64), prefixes: make(map[netip.Prefix]int64)}
			m.rules[name.Rule] = of
		}
		for key, ends := range bans.ends {
			if name.Keys == banname.ManualKeys {
				of.keys[key] = max(of.keys[key], ends)
			} else if p := name.Prefix(key); p.IsValid() {
				of.prefixes[p] = max(of.prefixes[p], ends)
				if l := &of.lengths[family(p.Addr())]; !slices.Contains(*l, p.Bits()) {
					*l = append(*l, p.Bits())
				}
			}
		}
	}
	if len(m.rules) == 0 {
		return nil
	}
	return m
}

func family(addr netip.Addr) int {
	if addr.Is4() {
		return 0
	}
	return 1
}

// Of reports whether a rule, by its limit's meter, has manual bans, and whether some are of prefixes.
func (m *Manual) Of(rule string) (any, prefixes bool) {
	of := m.rules[rule]
	return of != nil, of != nil && len(of.prefixes) > 0
}

// Ends returns when the last manual ban of a key or an address ends, in nanoseconds since the Unix epoch; 0 if there is
// none. An invalid address is in no prefix.
func (m *Manual) Ends(rule string, key counters.Key, addr netip.Addr) (ends int64) {
	of := m.rules[rule]
	if of == nil {
		return 0
	}
	ends = of.keys[key]
	if !addr.IsValid() {
		return ends
	}
	for _, bits := range of.lengths[family(addr)] {
		p, _ := addr.Prefix(bits) // no address is shorter than the prefixes of its family
		ends = max(ends, of.prefixes[p])
	}
	return ends
}

// Around returns the prefixes whose manual bans hold an address or a prefix, apart from those of it itself.
func (m *Manual) Around(rule string, p netip.Prefix, now int64) (around []netip.Prefix) {
	if of := m.rules[rule]; of != nil && p.IsValid() {
		for _, bits := range of.lengths[family(p.Addr())] {
			wide, err := p.Addr().Prefix(bits)
			if err == nil && bits < p.Bits() && of.prefixes[wide] > now {
				around = append(around, wide)
			}
		}
	}
	return around
}
