package gossip

import (
	"cmp"
	"slices"

	"github.com/edgelimit/edgelimit/counters"
)

// arranger puts slots in the order in which they travel: by meter and origin, and of those by the highest byte of the
// key. It takes time in proportion to their number, unlike a sort by comparison, and reuses its memory.
type arranger struct {
	numbers map[pair]uint32 // of groups
	equal   map[equalPair]uint32
	groups  []group
	sizes   []int           // of groups, in slots
	of      []uint32        // the group of each slot
	order   []uint32        // the slots by the highest bytes of their keys
	sorted  []counters.Slot // what the groups hold
}

// pair is what the slots of a group have in common. Meters that are equal are one, wherever they are kept: equalPair
// finds those that pair takes for different.
type (
	pair struct {
		meter  *counters.Meter
		origin counters.Origin
	}
	equalPair struct {
		meter  counters.Meter
		origin counters.Origin
	}
)

// maxKept is how many slots' memory is kept from one call to the next.
const maxKept = 1 << 16

// arrange returns groups that hold the slots, and the demand of self. They are valid until the next call. Slots that
// are alike in meter, origin and the highest byte of the key keep their order.
func (a *arranger) arrange(slots []counters.Slot, demand []counters.Demand, self counters.Origin) []group {
	if cap(a.sorted) > maxKept || a.numbers == nil {
		*a = arranger{numbers: make(map[pair]uint32), equal: make(map[equalPair]uint32)}
	}
	clear(a.numbers)
	clear(a.equal)
	a.groups, a.sizes = a.groups[:0], a.sizes[:0]
	a.of = slices.Grow(a.of[:0], len(slots))[:len(slots)]
	var last pair
	var n uint32
	for i := range slots {
		if p := (pair{slots[i].Meter, slots[i].Origin}); p != last {
			last, n = p, a.number(p)
		}
		a.of[i] = n
		a.sizes[n]++
	}
	for _, d := range demand {
		g := &a.groups[a.number(pair{d.Meter, self})]
		g.demand, g.rise = max(g.demand, d.Rate), max(g.rise, d.Rise)
	}
	a.orderByKey(slots)

	a.sorted = slices.Grow(a.sorted[:0], len(slots))[:len(slots)]
	rest := a.sorted
	for n, size := range a.sizes {
		a.groups[n].slots, rest = rest[:0:size], rest[size:]
	}
	for _, i := range a.order {
		g := &a.groups[a.of[i]]
		g.slots = append(g.slots, slots[i])
	}
	slices.SortFunc(a.groups, func(a, b group) int { return compareGroups(&a, &b) })
	return a.groups
}

// number returns the number of a pair's group, and makes the group if there is none.
func (a *arranger) number(p pair) uint32 {
	n, known := a.numbers[p]
	if !known {
		e := equalPair{*p.meter, p.origin}
		if n, known = a.equal[e]; !known {
			n = uint32(len(a.groups))
			a.equal[e] = n
			a.groups, a.sizes = append(a.groups, group{origin: p.origin, meter: p.meter}), append(a.sizes, 0)
		}
		a.numbers[p] = n
	}
	return n
}

func compareGroups(a, b *group) int {
	return cmp.Or(cmp.Compare(a.meter.Rule, b.meter.Rule), cmp.Compare(a.meter.Algorithm, b.meter.Algorithm),
		cmp.Compare(a.meter.Window, b.meter.Window), cmp.Compare(a.meter.Sub, b.meter.Sub),
		cmp.Compare(a.origin, b.origin))
}

// orderByKey orders the slots by the highest bytes of their keys.
func (a *arranger) orderByKey(slots []counters.Slot) {
	var begin [256 + 1]uint32
	for i := range slots {
		begin[slots[i].Key>>56+1]++
	}
	for b := range 256 {
		begin[b+1] += begin[b]
	}
	a.order = slices.Grow(a.order[:0], len(slots))[:len(slots)]
	for i := range slots {
		at := &begin[slots[i].Key>>56]
		a.order[*at] = uint32(i)
		*at++
	}
}
