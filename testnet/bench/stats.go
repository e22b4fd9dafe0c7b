package main

import (
	"math/bits"
	"slices"
	"time"
)

// median returns the middle of the values, the mean of the two middle ones of an even number, 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// histogram counts durations in buckets 1/32 apart, up to some 70 minutes. It needs no memory besides; the zero value is empty. It is not
// safe for concurrent use.
type histogram struct {
	buckets [38 * histogramSteps]uint64
	count   uint64
	longest time.Duration
}

const (
	histogramBits  = 5
	histogramSteps = 1 << histogramBits
)

// bucketOf returns the bucket of a duration: the durations below 32 ns have one each, every doubling after that 32.
func bucketOf(ns uint64) int {
	if ns < histogramSteps {
		return int(ns)
	}
	shift := bits.Len64(ns) - 1 - histogramBits
	return min((shift+1)*histogramSteps+int(ns>>shift&(histogramSteps-1)), len(histogram{}.buckets)-1)
}

// bucketEnd returns the longest duration of a bucket, in nanoseconds.
func bucketEnd(bucket int) uint64 {
	if bucket < histogramSteps {
		return uint64(bucket)
	}
	shift := bucket/histogramSteps - 1
	return (uint64(bucket%histogramSteps+histogramSteps)+1)<<shift - 1
}

func (h *histogram) add(d time.Duration) {
	h.buckets[bucketOf(uint64(max(0, d)))]++
	h.count++
	h.longest = max(h.longest, d)
}

// quantile returns the duration that a share q of all do not exceed, rounded up to the end of its bucket; never more than the longest.
func (h *histogram) quantile(q float64) time.Duration {
	seen := uint64(0)
	for i, n := range h.buckets {
		if seen += n; seen > 0 && float64(seen) >= q*float64(h.count) {
			return min(time.Duration(bucketEnd(i)), h.longest)
		}
	}
	return h.longest
}
