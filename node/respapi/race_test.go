//go:build race

package respapi

// raceEnabled says that allocations are not those of a released binary: the race detector adds its own.
const raceEnabled = true
