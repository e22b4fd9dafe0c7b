package main

import "strings"

// goal is what edgelimit has to reach, as a ratio within the run where it is one.
type goal struct {
	text    string
	most    float64 // at most this, unless least is set
	least   float64
	measure func(r *report) (float64, bool) // false: not measured
}

// goals are all of them. This is the only place that knows their figures.
var goals = []goal{
	{text: "hot key: time of a decision, of x/time/rate's", most: 1.0 / 3, measure: against(nameGiven, nameXTime, loadHot)},
	{text: "the same with the identity's hash", most: 1.0 / 3, measure: against(nameEngine, nameXTime, loadHot)},
	{text: "denied: time of a decision, of x/time/rate's", most: 0.25, measure: against(nameGiven, nameXTime, loadDenied)},
	{text: "the same with the identity's hash", most: 0.25, measure: against(nameEngine, nameXTime, loadDenied)},
	{text: "1M keys, uniform: time of a decision, of go-limiter's", most: 0.45, measure: against(nameGiven, nameGoLimiter, loadCold)},
	{text: "the same with the identity's hash", most: 0.45, measure: against(nameEngine, nameGoLimiter, loadCold)},
	{text: "allocations a decision, the worst of all algorithms and workloads", most: 0, measure: worstAllocs},
	{text: "allocations a merged slot", most: 0, measure: mergeAllocs},
	{text: "bytes a key, two buckets", most: 96, measure: bytesOf(nameTwoBuckets)},
	{text: "bytes a key, token bucket", most: 96, measure: bytesOf(nameTokenBucket)},
	{text: "bytes a key, ten sub-windows", most: 160, measure: bytesOf(nameEngine)},
	{text: "bytes a live remote slot, 12 origins in all sub-windows", most: 16, measure: bytesOf(nameDense)},
	{text: "full collection at 1M keys, of a pointer-free block's", most: 2, measure: collection},
	{text: "own keys on two cores: speed-up, of the bare table's", least: 0.95, measure: scaling(loadSome, loadSomeTwo)},
	{text: "1M keys on two cores: speed-up, of the bare table's", least: 0.95, measure: scaling(loadCold, loadColdTwo)},
	{text: "a batch of 16 cold keys, of 16 single ones' time", most: 0.5, measure: batching},
}

// verdict is a goal and what was measured.
type verdict struct {
	Goal     string  `json:"goal"`
	Most     float64 `json:"most"`
	Least    float64 `json:"least,omitempty"`
	Measured float64 `json:"measured"`
	Verdict  string  `json:"verdict"` // met, missed, not measured
}

func (g *goal) judge(r *report) verdict {
	v := verdict{Goal: g.text, Most: g.most, Least: g.least, Verdict: "missed"}
	got, ok := g.measure(r)
	switch v.Measured = got; {
	case !ok:
		v.Verdict = "not measured"
	case g.least > 0 && got >= g.least, g.least == 0 && got <= g.most:
		v.Verdict = "met"
	}
	return v
}

func against(ours, theirs, load string) func(*report) (float64, bool) {
	return func(r *report) (float64, bool) { return r.ratio(series{ours, load}, series{theirs, load}) }
}

// allocsNoise is how many allocations a decision the run itself makes: its goroutines and their clock.
const allocsNoise = 0.001

func worstAllocs(r *report) (worst float64, measured bool) {
	for id, n := range r.allocs {
		if strings.HasPrefix(id.contestant, "edgelimit") {
			worst, measured = max(worst, n), true
		}
	}
	return quiet(worst), measured
}

func mergeAllocs(r *report) (worst float64, measured bool) {
	for _, m := range r.Merges {
		worst, measured = max(worst, m.Allocs), true
	}
	return quiet(worst), measured
}

func quiet(allocs float64) float64 {
	if allocs < allocsNoise {
		return 0
	}
	return allocs
}

func bytesOf(name string) func(*report) (float64, bool) {
	return func(r *report) (float64, bool) {
		b, ok := r.worstBudget(name)
		return b.Bytes, ok
	}
}

func collection(r *report) (float64, bool) {
	f, ok := r.footprint(nameEngine)
	return f.GC / f.BlockGC, ok
}

// scaling compares how much faster two cores are than one, with the key given as the bare table has it.
func scaling(one, two string) func(*report) (float64, bool) {
	return func(r *report) (float64, bool) {
		ours, ok := r.ratio(series{nameGiven, one}, series{nameGiven, two})
		bare, also := r.ratio(series{nameBare, one}, series{nameBare, two})
		return ours / bare, ok && also
	}
}

// batching compares the table's part, with the keys given: to hash an identity costs the same either way.
func batching(r *report) (float64, bool) {
	return r.ratio(series{nameBatchGiven, loadCold}, series{nameGiven, loadCold})
}
