//go:build race

package httpapi

// raceEnabled says that allocations are not those of a released binary: the race detector adds its own.
const raceEnabled = true
