//go:build race

package race

// Enabled says that the race detector watches. It also allocates: what a released binary allocates shows only without it.
const Enabled = true
