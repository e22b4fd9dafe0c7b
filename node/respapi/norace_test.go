//go:build !race

package respapi

const raceEnabled = false
