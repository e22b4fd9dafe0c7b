package replay

import (
	"math"
	"slices"
)

// Peaks are the distribution of what identities asked for in their busiest window, by nearest rank.
type Peaks struct {
	Median uint64 `json:"p50"`
	P90    uint64 `json:"p90"`
	P99    uint64 `json:"p99"`
	P999   uint64 `json:"p99_9"`
	Max    uint64 `json:"max"`
}

// Suggestion is a limit that leaves alone who behaves as nearly all do: what 99 of 100 identities never exceeded in a window, and a quarter
// more, for traffic grows and a log is short. It is rounded up to two digits.
type Suggestion struct {
	Limit uint64 `json:"limit"`
	// Basis is the 99th percentile of the peaks; the largest where there are less than a hundred identities.
	Basis uint64 `json:"basis"`
	// Exceeding is how many identities asked for more than Limit in some window.
	Exceeding int `json:"identities_exceeding"`
}

const headroom = 1.25

// distribution sums up peaks, of which there is at least one. It sorts them.
func distribution(peaks []uint64) (*Peaks, *Suggestion) {
	slices.Sort(peaks)
	p := &Peaks{Median: rank(peaks, 0.5), P90: rank(peaks, 0.9), P99: rank(peaks, 0.99), P999: rank(peaks, 0.999), Max: peaks[len(peaks)-1]}
	s := &Suggestion{Limit: roundUp(uint64(math.Ceil(float64(p.P99) * headroom))), Basis: p.P99}
	over, _ := slices.BinarySearch(peaks, s.Limit+1)
	s.Exceeding = len(peaks) - over
	return p, s
}

// rank is the least value that so large a part of all does not exceed.
func rank(sorted []uint64, part float64) uint64 {
	return sorted[max(int(math.Ceil(part*float64(len(sorted)))), 1)-1]
}

func roundUp(n uint64) uint64 {
	unit := uint64(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit - 1) / unit * unit
}
