//go:build !linux

package counters

// adviseHugePages does nothing: the kernel decides by itself.
func adviseHugePages([]uint64) {}
