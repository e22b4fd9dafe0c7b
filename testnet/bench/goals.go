package main

import "strings"

// goal is a bound on a figure of edgelimit: a ratio within the run where possible.
type goal struct {
	text    string
	max     float64 // unless min is set
	min     float64
	measure func(*report) (float64, bool) // false: not measured
	median  func(*report) (float64, bool) // of a figure that measure takes of the fastest slices; nil: there is none
}

var goals = []goal{
	fast("hot key, of x/time/rate's", 0.20, nameGiven, nameXTime, loadHot),
	fast("hot key, of the bare table's", 1.3, nameGiven, nameBare, loadHot),
	fast("hot key with the identity's hash, of x/time/rate's", 0.40, nameEngine, nameXTime, loadHot),
	fast("denied, of x/time/rate's", 0.15, nameGiven, nameXTime, loadDenied),
	fast("denied, of the bare table's", 1.3, nameGiven, nameBare, loadDenied),
	fast("1M keys, uniform, of go-limiter's", 0.35, nameGiven, nameGoLimiter, loadCold),
	fast("the same, each known only after the decision before", 0.45, nameGiven, nameGoLimiter, loadTurn),
	fast("the same by a token bucket", 0.45, nameTokenBucket, nameGoLimiter, loadCold),
	fast("1M keys, Zipf, of go-limiter's", 0.32, nameGiven, nameGoLimiter, loadZipf),
	{text: "allocations a decision, the maximum of all algorithms and workloads", measure: maxAllocs},
	{text: "allocations a merged slot", measure: maxMergeAllocs},
	{text: "merged slot at 50 origins, of that at one", max: 1.4, measure: merging(50)},
	{text: "bytes a key, two buckets", max: 84, measure: bytesOf(nameTwoBuckets)},
	{text: "bytes a key, token bucket", max: 84, measure: bytesOf(nameTokenBucket)},
	{text: "bytes a key, ten sub-windows", max: 84, measure: bytesOf(nameEngine)},
	{text: "bytes a key with a remote slot", max: 160, measure: withSlot},
	{text: "bytes a remote slot, 12 origins in all sub-windows", max: 10, measure: bytesOf(nameDense)},
	{text: "full collection at 1M keys, of a pointer-free block's", max: 1.5, measure: collection},
	{text: "own keys on two cores: speed-up, of the bare table's", min: 0.95, measure: scaling(loadSome)},
	{text: "1M keys on two cores: speed-up, of the bare table's", min: 0.95, measure: scaling(loadCold)},
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

// fast is a goal for the time of a decision of ours, of another's.
func fast(text string, most float64, ours, theirs, load string) goal {
	a, b := series{ours, load}, series{theirs, load}
	return goal{text: text, max: most,
		measure: func(r *report) (float64, bool) { return r.least(a, b) },
		median:  func(r *report) (float64, bool) { return r.ratio(a, b) }}
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

// merging is the time of a merged slot where so many origins have slots, of that with one.
func merging(origins int) func(*report) (float64, bool) {
	return func(r *report) (float64, bool) {
		var one, many float64
		for _, m := range r.merges {
			switch m.origins {
			case 1:
				one = m.ns
			case origins:
				many = m.ns
			}
		}
		return many / one, one > 0 && many > 0
	}
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

// withSlot is the memory of a key in ten sub-windows with a slot of one other origin.
func withSlot(r *report) (float64, bool) {
	key, ok := bytesOf(nameEngine)(r)
	slot, also := bytesOf(nameSparse)(r)
	return key + slot, ok && also
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
