package gossip

import (
	"fmt"

	"github.com/edgelimit/edgelimit/counters"
)

// Far says that a member is of another region.
func (r *Replica) Far(o counters.Origin) {
	if len(r.regions) == 0 {
		r.Describe(r.self, Node{Region: "here", Name: "self"})
	}
	r.Describe(o, Node{Region: "far", Name: fmt.Sprint(o)})
}

// noOwners is the part of Counts for large clusters, for tests without one.
type noOwners struct{}

func (noOwners) MergeRises([]counters.Slot, int64, *counters.Rises) int { return 0 }
func (noOwners) SetOwners(*counters.Owners)                             {}
func (noOwners) Refresh(counters.PartitionSet)                          {}
func (noOwners) Refreshed() bool                                        { return true }
