// Package race tells tests whether the race detector watches them. It slows what only computes some tenfold, and finds nothing in the
// hundredth simulation that it did not find in the tenth: so those run a tenth with it, and all without it (see make test).
package race

// Tenth is a tenth of n, at least one, with the race detector, and n without.
func Tenth(n int) int {
	if Enabled {
		return max(1, n/10)
	}
	return n
}
