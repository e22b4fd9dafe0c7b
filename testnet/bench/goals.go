package main

import "strings"

// goal is a bound on a figure of edgelimit: a ratio within the run where possible.
type goal struct {
	text    string
	max     float64 // unless min is set
	min     float64
	measure func(*report) (float64, bool) // false: not measured
}

var goals = []goal{
	{"hot key: time of a decision, of x/time/rate's", 1.0 / 3, 0, timeRatio(nameGiven, nameXTime, loadHot)},
	{"the same with the identity's hash", 1.0 / 3, 0, timeRatio(nameEngine, nameXTime, loadHot)},
	{"denied: time of a decision, of x/time/rate's", 0.25, 0, timeRatio(nameGiven, nameXTime, loadDenied)},
	{"the same with the identity's hash", 0.25, 0, timeRatio(nameEngine, nameXTime, loadDenied)},
	{"1M keys, uniform: time of a decision, of go-limiter's", 0.45, 0, timeRatio(nameGiven, nameGoLimiter, loadCold)},
	{"the same with the identity's hash", 0.45, 0, timeRatio(nameEngine, nameGoLimiter, loadCold)},
	{"allocations a decision, the maximum of all algorithms and workloads", 0, 0, maxAllocs},
	{"allocations a merged slot", 0, 0, maxMergeAllocs},
	{"bytes a key, two buckets", 96, 0, bytesOf(nameTwoBuckets)},
	{"bytes a key, token bucket", 96, 0, bytesOf(nameTokenBucket)},
	{"bytes a key, ten sub-windows", 160, 0, bytesOf(nameEngine)},
	{"bytes a live remote slot, 12 origins in all sub-windows", 16, 0, bytesOf(nameDense)},
	{"full collection at 1M keys, of a pointer-free block's", 2, 0, collection},
	{"own keys on two cores: speed-up, of the bare table's", 0, 0.95, scaling(loadSome)},
	{"1M keys on two cores: speed-up, of the bare table's", 0, 0.95, scaling(loadCold)},
}

// judge returns the measured figure and the verdict: met, missed, or not measured.
func (g *goal) judge(r *report) (measured, verdict string) {
	got, ok := g.measure(r)
	switch {
	case !ok:
		return "-", "not measured"
	case g.min > 0 && got >= g.min, g.min == 0 && got <= g.max:
		return figure(got), "met"
	}
	return figure(got), "missed"
}

func timeRatio(ours, theirs, load string) func(*report) (float64, bool) {
	return func(r *report) (float64, bool) { return r.ratio(series{ours, load}, series{theirs, load}) }
}

func maxAllocs(r *report) (allocs float64, measured bool) {
	for _, t := range r.timings {
		if strings.HasPrefix(t.contestant, "edgelimit") {
			allocs, measured = max(allocs, t.allocs), true
		}
	}
	return withoutNoise(allocs), measured
}

func maxMergeAllocs(r *report) (allocs float64, measured bool) {
	for _, m := range r.merges {
		allocs, measured = max(allocs, m.allocs), true
	}
	return withoutNoise(allocs), measured
}

// withoutNoise returns 0 for fewer than 0.001 allocations per decision: the run's own goroutines and clock.
func withoutNoise(allocs float64) float64 {
	if allocs < 0.001 {
		return 0
	}
	return allocs
}

// bytesOf is the most that a key takes of any budget.
func bytesOf(name string) func(*report) (float64, bool) {
	return func(r *report) (bytes float64, measured bool) {
		for _, b := range r.budgets {
			if b.name == name {
				bytes, measured = max(bytes, b.bytes), true
			}
		}
		return bytes, measured
	}
}

func collection(r *report) (ratio float64, measured bool) {
	for _, f := range r.footprints {
		if f.name == nameEngine {
			ratio, measured = f.gcMS/f.blockGCMS, true
		}
	}
	return ratio, measured
}

// scaling is the speed-up by a second core, ours over the bare table's, both with the key given.
func scaling(load string) func(*report) (float64, bool) {
	return func(r *report) (float64, bool) {
		ours, ok := r.ratio(series{nameGiven, load}, series{nameGiven, load + twoCores})
		bare, also := r.ratio(series{nameBare, load}, series{nameBare, load + twoCores})
		return ours / bare, ok && also
	}
}
