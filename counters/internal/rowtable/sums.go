package rowtable

import (
	"unsafe"

	"github.com/edgelimit/edgelimit/counters/internal/rows"
)

// In a large cluster nobody sends to everybody: an owner in each region adds up what its members counted, and sends
// sums. A table may have a sum beside slots that are part of it, as an owner was a member before, and the other way
// round. So a head that got a sum has a line for each sub-window, of what others counted there:
//
//	unplaced   members of an unknown place, and all that came before the first sum if there were blocks
//	near       members of the region
//	nearSum    the sum over them
//	far        members of other regions
//	regions    the sums over other regions, each of an origin of its own
//	elsewhere  the sum over all of them
//
// Each of unplaced + near + far, near, nearSum, far, regions and elsewhere counts a part of what was admitted, or all
// of it, and nothing twice. So what others counted together is at least
//
//	max(unplaced + near + far, max(near, nearSum) + max(far, regions, elsewhere))
//
// and that is what the head counts: no view exceeds what was admitted, in whatever order parts and sums come.

// Place is where an origin counts, as seen from a table. The numbers are those of counters.Place.
type Place uint16

const (
	Unplaced Place = iota // unknown: its counts may be in any sum
	Near                  // in the table's own region
	firstFar              // in another one, see Far

	elsewhere Place = 1<<14 - 1 // in all other regions
	sumBit    Place = 1 << 14
)

// Far returns the place of a region other than the table's own, by a number that the caller gives it: 0 to 8191.
func Far(region int) Place { return firstFar + Place(region) }

// Sum returns the place of the sum over a place, without the table's own counts.
func (p Place) Sum() Place { return p | sumBit }

// Elsewhere is the place of the sum over all other regions. Lost has no counts, only the demand of nodes that are out
// of the owner's reach.
const (
	Elsewhere = elsewhere | sumBit
	Lost      = elsewhere - 1 | sumBit
)

func (p Place) isSum() bool { return p&sumBit != 0 }

// isDown reports whether the place is that of a sum which an owner sends to its members.
func (p Place) isDown() bool { return p == Near.Sum() || p == Elsewhere || p == Lost }

// parts are the words of a line of what others counted in a sub-window, by where.
type parts struct {
	_                                                   [2]uint64
	unplaced, near, nearSum, far, regions, elsewhereSum uint64
}

var _ [0]struct{} = [unsafe.Sizeof(parts{}) - unsafe.Sizeof(rows.Line{})]struct{}{} // it is a line

// count is what others counted together.
func (p *parts) count() uint64 {
	return max(p.unplaced+p.near+p.far, max(p.near, p.nearSum)+max(p.far, p.regions, p.elsewhereSum))
}

// of is the part that the origins at a place count in.
func (p *parts) of(at Place) *uint64 {
	switch {
	case at == Unplaced:
		return &p.unplaced
	case at == Near:
		return &p.near
	case at.isSum():
		return &p.regions
	}
	return &p.far
}

// parts makes the line of a sub-window if it is missing; nil if there is no room.
func (r *raising) parts(sub int64) *parts {
	name := rows.Name(r.c.line().Meter(), partsKind, rest(r.c, uint64(sub)))
	return (*parts)(unsafe.Pointer(ensure(r.s, rows.Sub(r.h, name), r.c.key, name)))
}

// at raises what an origin at a place counted, or a sum, and returns by how much what others counted together rose.
// That may be nothing though the slot is raised.
func (r *raising) at(sl *Slot, count uint64) (rise uint64, raised bool) {
	if !r.c.has(summed) {
		if !sl.Place.isSum() {
			rise, _ = r.to(sl.Origin, sl.Birth, sl.Index, count)
			return rise, rise > 0
		}
		if r.beginSums() {
			return 0, false
		}
	}
	long := longName(r.c, sumsKind, sl.Index)
	sums, p := ensure(r.s, rows.Sub(r.h, long), r.c.key, long), r.parts(sl.Index)
	if sums == nil || p == nil {
		return 0, false
	}
	before := p.count()
	switch sl.Place {
	case Near.Sum():
		p.nearSum = max(p.nearSum, count)
	case Elsewhere:
		p.elsewhereSum = max(p.elsewhereSum, count)
	case Lost:
	default:
		name, i := shortName(r.c, sl.Origin, sl.Birth, sl.Index)
		own, _ := r.raise(name, i, count)
		*p.of(sl.Place) += own
		raised = own > 0
	}
	rise = p.count() - before
	longsOf(sums).set(sl.Index, longsOf(sums).get(sl.Index)+rise)
	return rise, raised || rise > 0
}

// beginSums gives a head its lines of parts, of what others counted up to now.
func (r *raising) beginSums() (full bool) {
	var room [slotsPerLine * (narrow + 2)]Slot
	known := room[:0]
	switch name := slotsName(r.c); {
	case r.c.has(slotsForm):
		if l := r.s.Find(rows.Sub(r.h, name), r.c.key, name); l != nil {
			known = r.appendBeside(known, slotsOf(l))
			if r.thicken(slotsOf(l)) {
				return true
			}
		}
	case r.c.has(blocksForm): // of many origins: they are not searched for
		first := r.c.sub() - int64(r.meter(r.c.line().Meter()).N)
		for sub := first; sub <= r.c.sub()+1; sub++ {
			if count := r.others(r.s, r.h, r.c, sub); count > 0 {
				known = append(known, slotOf(r.c, sub, 0, 0, count))
			}
		}
	}
	for i := range known {
		p := r.parts(known[i].Index)
		if p == nil {
			return true
		}
		at := Unplaced
		if origin := known[i].Origin; origin != 0 {
			at = r.origins.placeOf(origin)
		}
		*p.of(at) += known[i].Count
	}
	r.c.raise(blocksForm | summed)
	return false
}

// Owners is what a table needs to know of who adds up. It is not changed once a table has it.
type Owners struct {
	Owned PartitionSet // this table is the owner in its region
	// Members is the number of nodes of each region: the table's own first, then those of Far(0), Far(1) and so on.
	Members []int
}

// owns reports whether the table adds up for a key; o may be nil.
func (o *Owners) owns(key uint64) bool { return o != nil && o.Owned.Has(partitionOf(key)) }

// membersOf is the number of nodes that a sum is over at most; 0: unknown.
func (o *Owners) membersOf(sum Place) (n int) {
	if o == nil || len(o.Members) == 0 {
		return 0
	}
	if sum == Elsewhere {
		for _, members := range o.Members[1:] {
			n += members
		}
		return n
	}
	if region := int(sum&^sumBit - Near); region < len(o.Members) {
		return o.Members[region]
	}
	return 0
}

// SetOwners sets who adds up: nil, as it is at first, if every node sends to every other one.
func (t *Table) SetOwners(o *Owners) { t.owners.Store(o) }

// maxSum is the maximum of a plausible sum: what all nodes that it is over can have admitted; 0: none.
func (t *Table) maxSum(m *Meter, sum Place) uint64 {
	members := t.owners.Load().membersOf(sum)
	if members == 0 {
		members = t.clusters[Global].Load().peers + 1
	}
	return min(m.MaxSlot, maxSlot) * uint64(members)
}
