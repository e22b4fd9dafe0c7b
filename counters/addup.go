package counters

import (
	"math/bits"
	"slices"
	"sync"
)

// share is what an owner's cell holds of one origin.
type share struct {
	id     Origin
	state  *originState
	place  Place
	fresh  bool
	member bool
	lost   bool     // out of reach
	raised uint64   // ages at which it rose, one bit each
	rate   float32  // cost per second
	counts []uint64 // by age
}

// byAge is counts by age; age 0 is ahead of the cell.
type byAge [maxSubWindows + 2]uint64

// sums is the memory in which an owner adds up one cell at a time. Its lock comes after those of shards.
type sums struct {
	sync.Mutex
	shares []share
	counts []uint64

	outgoing
	owners *Owners
	ages   int
	near   byAge // what the region counted
	direct byAge // near without what only a sum reports
	far    byAge // what other regions counted
	none   byAge // zero
	// maximums of plausible sums; 0: none
	maxNear, maxFar uint64
	// ages at which near rose by what one origin counted at least, by what two did at least, and at which far rose
	once, twice, farRaised uint64
	rates                  sumRates
}

// get returns the share of an origin, and adds it if there is none.
func (a *sums) get(origin uint16) *share {
	s := a.s
	state := s.origins.state(origin)
	if state.share != 0 {
		return &a.shares[state.share-1]
	}
	from := len(a.counts)
	a.counts = append(a.counts, make([]uint64, a.ages)...)
	a.shares = append(a.shares, share{id: s.origins.originOf(origin, a.c), state: state, place: s.placeOf(origin),
		member: state.member.Load(), counts: a.counts[from : from+a.ages : from+a.ages]})
	state.share = uint16(len(a.shares))
	return &a.shares[len(a.shares)-1]
}

func (a *sums) begin(x *outgoing, o *Owners) {
	a.outgoing, a.owners, a.ages = *x, o, x.m.size()+1
	a.near, a.direct, a.far, a.rates = byAge{}, byAge{}, byAge{}, sumRates{}
	a.once, a.twice, a.farRaised = 0, 0, 0
}

func (a *sums) end() {
	for i := range a.shares {
		a.shares[i].state.share = 0
	}
	a.shares, a.counts, a.outgoing = a.shares[:0], a.counts[:0], outgoing{}
}

// add adds up the counts of the cell.
func (a *sums) add() {
	s, c, m := a.s, a.c, a.m
	var room [maxSubWindows + 1]uint64
	for i, own := range s.own(room[:0], c, &m.shape, m.size()) {
		a.near[m.size()-i] = own
	}
	a.direct = a.near
	for age := range int(a.changed) {
		a.once |= 1 << (age + 1)
	}
	for ref := c.slots; ref != 0; {
		r := s.remote(ref)
		age := int(r.age(c))
		x := a.get(r.origin())
		switch {
		case x.place.isNear():
			a.near[age] += r.count()
			if !x.place.isSum() {
				a.direct[age] += r.count()
			}
		case x.place.isFar():
			a.far[age] += r.count()
		}
		x.counts[age] += r.count()
		x.fresh = x.fresh || r.has(freshMark)
		if r.has(raisedMark) {
			x.raised |= 1 << age
		}
		ref = r.next
	}
	for i := range a.shares {
		switch x := &a.shares[i]; {
		case x.place == Near:
			a.twice |= a.once & x.raised
			a.once |= x.raised
		case x.place.isFar():
			a.farRaised |= x.raised
		}
	}
}

// appendSums appends the sums of an owner's cell for those who asked.
func (t *Table) appendSums(dst []Slot, x *outgoing, o *Owners) []Slot {
	a, m := &t.sums, x.m
	a.Lock()
	defer a.Unlock()
	a.begin(x, o)
	a.maxNear, a.maxFar = t.maxSum(m, Near.Sum()), t.maxSum(m, Elsewhere)
	defer a.end()
	a.add()
	if x.now != 0 {
		a.rates = t.sumRates(x)
	}
	p := x.c.key.Partition()
	for i := range a.shares {
		switch x := &a.shares[i]; {
		case x.place == Near && x.member:
			dst = a.appendDown(dst, x)
		case x.place.isRegion() && m.scope == Global:
			dst = a.appendAcross(dst, x.id, x.fresh)
			if x.fresh && o.Home.Has(p) {
				dst = a.introduce(dst, x)
			}
		}
	}
	if a.rates.all {
		dst = a.appendToOthers(dst)
	}
	for _, home := range o.Homes[p] {
		if home != 0 && m.scope == Global && !a.asked(home.Of(p)) {
			dst = a.appendAcross(dst, home.Of(p), false)
		}
	}
	return dst
}

// appendToOthers appends the sums for the members that did not ask for a key whose limit runs short, where some did: a
// node that is asked for it first then would admit what nobody has room for.
func (a *sums) appendToOthers(dst []Slot) []Slot {
	nothing := &share{fresh: !a.rates.spread, counts: a.none[:a.ages]}
	for _, id := range a.owners.Others {
		if nothing.id = id; !a.asked(id) {
			dst = a.appendDown(dst, nothing)
		}
	}
	return dst
}

// someAsk is the part of the region's members, one in so many, beyond which all are sent the sums of a key, if more
// than two ask. With an eighth, 1,500 nodes that one request each reached exceeded a limit by 4 %. Pairs of nodes,
// which many clients ask in turn, would double what the busiest of 60 nodes sends.
const someAsk = 16

// isWide reports whether so many members of the region ask for the key that others may be asked for it next.
func (a *sums) isWide() bool {
	asked := 0
	for i := range a.shares {
		if a.shares[i].place == Near && a.shares[i].member {
			asked++
		}
	}
	return asked > 2 && asked*someAsk > len(a.owners.Others)
}

// asked reports whether a member asked for the key, or a region, by the name of its sum.
func (a *sums) asked(id Origin) bool {
	return slices.ContainsFunc(a.shares, func(x share) bool { return x.id == id })
}

// all is the set of all ages.
func (a *sums) all() uint64 { return 1<<a.ages - 1 }

// appendSum appends a sum with an origin, a receiver and a demand at some ages, with the demand at the newest of them.
func (a *sums) appendSum(dst []Slot, sum Slot, ages uint64, count func(age int) uint64) []Slot {
	at := func(age int, n uint64) Slot {
		slot := a.slot(age, sum.Origin, n)
		slot.To = sum.To
		return slot
	}
	first := len(dst)
	for ; ages != 0; ages &= ages - 1 {
		age := bits.TrailingZeros64(ages)
		if n := count(age); n > 0 {
			dst = append(dst, at(age, n))
		}
	}
	if sum.Demand > 0 && (len(dst) > first || a.rates.due) {
		if len(dst) == first {
			dst = append(dst, at(1, count(1)))
		}
		dst[first].Demand = sum.Demand
	}
	return dst
}

// atMost is the count, but not above the largest that is plausible.
func atMost(count, largest uint64) uint64 {
	if largest == 0 {
		return count
	}
	return min(count, largest)
}

// appendAcross appends the sum over the region for another one.
func (a *sums) appendAcross(dst []Slot, to Origin, fresh bool) []Slot {
	ages := a.once
	if fresh {
		ages = a.all()
	}
	sum := Slot{To: to, Origin: a.owners.Region.Of(a.c.key.Partition()), Demand: a.rates.near}
	return a.appendSum(dst, sum, ages, func(age int) uint64 { return atMost(a.near[age], a.maxNear) })
}

// appendDown appends the sums for a member.
func (a *sums) appendDown(dst []Slot, x *share) []Slot {
	p := a.c.key.Partition()
	here, there := a.twice|a.once&^x.raised, a.farRaised
	if x.fresh {
		here, there = a.all(), a.all()
	}
	nearRate, lostRate := a.rates.near, a.rates.lost
	if x.lost {
		lostRate -= x.rate
	} else {
		nearRate -= x.rate
	}
	dst = a.appendSum(dst, Slot{To: x.id, Origin: a.owners.Region.Of(p), Demand: nearRate}, here,
		func(age int) uint64 { return atMost(a.direct[age]-x.counts[age], a.maxNear) })
	if a.m.scope == Global {
		dst = a.appendSum(dst, Slot{To: x.id, Origin: a.owners.Elsewhere.Of(p), Demand: a.rates.far}, there,
			func(age int) uint64 { return atMost(a.far[age], a.maxFar) })
	}
	return a.appendSum(dst, Slot{To: x.id, Origin: a.owners.Lost.Of(p), Demand: lostRate}, 0,
		func(int) uint64 { return 0 })
}

// introduce appends the sums of the other regions for a region that is new to a home, and its sum for the others.
func (a *sums) introduce(dst []Slot, x *share) []Slot {
	for i := range a.shares {
		other := &a.shares[i]
		if other == x || !other.place.isRegion() {
			continue
		}
		dst = a.appendIntroduction(dst, other, x)
		if !other.fresh { // otherwise its own turn comes
			dst = a.appendIntroduction(dst, x, other)
		}
	}
	return dst
}

// appendIntroduction appends the sum over a region for another one.
func (a *sums) appendIntroduction(dst []Slot, about, to *share) []Slot {
	count := func(age int) (n uint64) {
		n = about.counts[age]
		for i := range a.shares { // the slot holds what the sum counts beyond its parts
			if part := &a.shares[i]; part.place != unplaced && about.place.covers(part.place) {
				n += part.counts[age]
			}
		}
		return n
	}
	return a.appendSum(dst, Slot{To: to.id, Origin: about.id}, a.all(), count)
}
