package gossip

import (
	"cmp"
	"slices"

	"github.com/edgelimit/edgelimit/counters"
)

// arranger puts slots in the order in which they travel: by meter and origin, and of those by the highest byte of the
// key. It takes time in proportion to their number, as a sort by comparison does not. It owns memory that one call
// leaves to the next.
type arranger struct {
	numbers map[pair]uint32
	met     []group         // by number
	of      []uint32        // the group of each slot
	order   []uint32        // the slots by the highest bytes of their keys
	sorted  []counters.Slot // what the groups hold
}

// pair is what the slots of a group have in common.
type pair struct {
	meter  *counters.Meter
	origin counters.Origin
}

// maxKept is how many slots' memory is kept from one call to the next.
const maxKept = 1 << 16

// arrange returns groups that hold the slots, and the demand of self. They are good until the next call. Slots that are
// alike in meter, origin and the highest byte of the key keep their order.
func (a *arranger) arrange(slots []counters.Slot, demand []counters.Demand, self counters.Origin) []group {
	if cap(a.sorted) > maxKept {
		*a = arranger{}
	}
	a.number(slots)
	for _, d := range demand {
		g := &a.met[a.numberOf(pair{d.Meter, self})]
		g.demand, g.rise = max(g.demand, d.Rate), max(g.rise, d.Rise)
	}
	groups, rank := a.rank()
	a.orderByKey(slots)

	a.sorted = slices.Grow(a.sorted[:0], len(slots))[:len(slots)]
	begin := make([]int, len(groups)+1)
	for _, n := range a.of {
		begin[rank[n]+1]++
	}
	for i := range groups {
		begin[i+1] += begin[i]
		groups[i].slots = a.sorted[begin[i]:begin[i+1]:begin[i+1]]
	}
	for _, i := range a.order {
		at := &begin[rank[a.of[i]]]
		a.sorted[*at] = slots[i]
		*at++
	}
	return groups
}

// number gives each pair of meter and origin a number, and notes whose slots are whose.
func (a *arranger) number(slots []counters.Slot) {
	if a.numbers == nil {
		a.numbers = make(map[pair]uint32)
	}
	clear(a.numbers)
	a.met = a.met[:0]
	a.of = slices.Grow(a.of[:0], len(slots))[:len(slots)]
	var last pair
	var n uint32
	for i := range slots {
		if p := (pair{slots[i].Meter, slots[i].Origin}); p != last {
			last, n = p, a.numberOf(p)
		}
		a.of[i] = n
	}
}

func (a *arranger) numberOf(p pair) uint32 {
	n, known := a.numbers[p]
	if !known {
		n = uint32(len(a.met))
		a.numbers[p] = n
		a.met = append(a.met, group{origin: p.origin, meter: p.meter})
	}
	return n
}

// rank returns the groups in order, and the place of each number in it. Meters that are equal are one, wherever they
// are kept.
func (a *arranger) rank() (groups []group, rank []uint32) {
	numbers := make([]uint32, len(a.met))
	for i := range numbers {
		numbers[i] = uint32(i)
	}
	slices.SortStableFunc(numbers, func(i, j uint32) int { return compareGroups(&a.met[i], &a.met[j]) })
	rank = make([]uint32, len(numbers))
	for _, n := range numbers {
		g := &a.met[n]
		if last := len(groups) - 1; last >= 0 && compareGroups(&groups[last], g) == 0 {
			groups[last].demand, groups[last].rise = max(groups[last].demand, g.demand), max(groups[last].rise, g.rise)
		} else {
			groups = append(groups, *g)
		}
		rank[n] = uint32(len(groups) - 1)
	}
	return groups, rank
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
