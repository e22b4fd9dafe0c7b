//go:build !race

package testkit

// Enabled reports whether the race detector runs. It allocates: count the allocations of a released binary without it.
const Enabled = false
