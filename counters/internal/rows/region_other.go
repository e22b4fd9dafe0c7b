//go:build !linux || race

package rows

// newRegion takes memory of the Go heap: the race detector sees no other.
func newRegion(lines int) *region { return onHeap(lines) }

func (r *region) useHugePages(int) {}
