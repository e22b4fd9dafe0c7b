package bans

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/bans/banname"
)

// entry is an address or a prefix that is to be blocked: 24 bytes, of which there may be many.
type entry struct {
	key  counters.Key // of addresses and prefixes
	ends int64        // in nanoseconds since the Unix epoch
	bits uint8
}

func (e *entry) prefix() netip.Prefix { return banname.Prefix(e.key, int(e.bits)) }

// compare orders entries by family and address; of the same address the shorter prefix comes first.
func (e *entry) compare(other *entry) int {
	return cmp.Or(cmp.Compare(e.key, other.key), cmp.Compare(e.bits, other.bits))
}

// holds reports whether the other entry, which comes later, lies within.
func (e *entry) holds(other *entry) bool {
	size := uint8(banname.MaxAddressBits)
	if banname.IsIPv4(e.key) {
		size = 32
	}
	return banname.IsIPv4(e.key) == banname.IsIPv4(other.key) && e.bits <= other.bits &&
		(e.key^other.key)>>(size-e.bits) == 0
}

// addresses returns the addresses and prefixes that are banned at a time, by meters that f selects. None lies within
// another one, as sets and maps of others refuse or mishandle that: what lies within comes when the wider one has
// ended. spared are left out although the node denies their requests, or some of them.
func (r *Registry) addresses(f Selection, now int64) (kept []entry, spared map[netip.Prefix]Spare) {
	var all []entry
	spared = make(map[netip.Prefix]Spare)
	r.each(f, now, func(m *meter, key counters.Key, ends int64, why Spare) {
		switch p := m.name.Prefix(key); {
		case !p.IsValid():
		case why == Blocked:
			all = append(all, entry{key, ends, uint8(p.Bits())})
		case why == Protected || !p.IsSingleIP():
			spared[p] = why
		}
	})
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(a.compare(&b), cmp.Compare(b.ends, a.ends)) })
	kept = all[:0]
	for i := range all {
		if len(kept) == 0 || !kept[len(kept)-1].holds(&all[i]) {
			kept = append(kept, all[i])
		}
	}
	return kept, spared
}

// diff calls f for each entry that differs, in their order: gone has no after, and new has no before.
func diff(before, after []entry, f func(before, after *entry)) {
	for len(before) > 0 || len(after) > 0 {
		c := 0
		switch {
		case len(before) == 0:
			c = 1
		case len(after) == 0:
			c = -1
		default:
			c = before[0].compare(&after[0])
		}
		switch {
		case c < 0:
			f(&before[0], nil)
			before = before[1:]
		case c > 0:
			f(nil, &after[0])
			after = after[1:]
		default:
			if before[0].ends != after[0].ends {
				f(&before[0], &after[0])
			}
			before, after = before[1:], after[1:]
		}
	}
}
