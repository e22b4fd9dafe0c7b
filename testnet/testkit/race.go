package testkit

// Tenth returns a tenth of n with the race detector, at least 1, and n without. The detector slows simulations down
// tenfold, and finds nothing in the hundredth that it did not find in the tenth. make test runs both.
func Tenth(n int) int {
	if Enabled {
		return max(1, n/10)
	}
	return n
}
