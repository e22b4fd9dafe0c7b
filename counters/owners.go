package counters

import "math"

// Who sends what to whom, in a cluster that is too large for everybody to send to everybody.
//
// Each key belongs to a partition, and each partition has an owner in each region. A table sends what it counted to the
// owner in its own region. The owner adds up, and sends sums (addup.go):
//
//	up      what a table counted, to the owner of its region
//	across  the sum over the region, to the owners of the regions that asked for the key, and to those of its homes
//	down    to each member that asked for the key: the sum over the others of the region, and that over all other
//	        regions; to all members once its limit runs short and several ask
//
// A sum is a slot of an origin of its own, merged by max like any other (sums.go): every count in it only grows, so a
// sum over some of the counts is never above the sum over all. So no table's view exceeds what was admitted, whoever is
// taken for the owner, and a new owner needs no hand-over to be right: all that live send it what they counted. Only
// what members counted that crashed before the old owner did stays with those whom it sent sums.
//
// # Who asked
//
// Whoever has a slot in an owner's cell, or reports demand for it, asked for the key within its window. Regions learn
// of each other at the homes, two of the regions for each partition, which receive every key: a home introduces a
// region that is new to it to the others, and the others to it.

// Partitions is the number of partitions of keys.
const Partitions = 128

// Partition is the number of the key's partition.
func (k Key) Partition() int { return int(k % Partitions) }

// PartitionSet is a set of partitions, one bit each. The zero value is empty.
type PartitionSet [Partitions / 64]uint64

// Has reports whether the partition is in the set.
func (p *PartitionSet) Has(partition int) bool { return p[partition/64]&(1<<(partition%64)) != 0 }

// Add adds a partition to the set.
func (p *PartitionSet) Add(partition int) { p[partition/64] |= 1 << (partition % 64) }

// Sum names the sums over the same nodes, one for each partition. As origins they differ in the lowest byte alone,
// which is the partition.
type Sum uint64

// NewSum returns the sum with a name, of which the lowest byte is not used.
func NewSum(name uint64) Sum { return Sum(name &^ math.MaxUint8) }

// Of returns the origin of the sum over a partition's keys.
func (s Sum) Of(partition int) Origin { return Origin(s) | Origin(partition) }

// Sum returns the sum that an origin is of, and the partition. An origin that is of none has a partition as well, which
// may be beyond Partitions.
func (o Origin) Sum() (s Sum, partition int) { return NewSum(uint64(o)), int(o & math.MaxUint8) }

// Place is where an origin counts, as seen from a table.
type Place uint16

const (
	unplaced Place = iota // unknown: its counts may be in any sum
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

func (p Place) isSum() bool  { return p&sumBit != 0 }
func (p Place) isNear() bool { return p&^sumBit == Near }
func (p Place) isFar() bool  { return p&^sumBit >= firstFar }

// isRegion reports whether the place is that of the sum over another region, as its owner sends it.
func (p Place) isRegion() bool { return p.isSum() && p.isFar() && p != Elsewhere && p != Lost }

// isDown reports whether the place is that of a sum which an owner sends to its members.
func (p Place) isDown() bool { return p == Near.Sum() || p == Elsewhere || p == Lost }

// To whom a slot goes that everybody is to know.
const (
	AllMembers Origin = 1 // of the region
	AllRegions Origin = 2 // the owners in all other regions
)

// Owners is what a table needs to know to add up, and by which names. It is not changed once a table has it.
type Owners struct {
	Owned PartitionSet // this table is the owner in its region
	Home  PartitionSet // owned, and the region is a home
	// Homes are the sums of the other regions that are homes of a partition; 0: none.
	Homes [Partitions][2]Sum
	// The sums that the table sends: over its region (or, to a member, over the others of the region), over all other
	// regions, and of what is out of reach.
	Region, Elsewhere, Lost Sum
	// Others are the other nodes of the region.
	Others []Origin
	// Regions is the number of regions.
	Regions int
	// Members is the number of nodes of each region: the table's own first, then those of Far(0), Far(1) and so on.
	Members []int
}

// owns reports whether the table adds up for a key; o may be nil.
func (o *Owners) owns(k Key) bool { return o != nil && o.Owned.Has(k.Partition()) }

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
