package main

import "testing"

// reportOf makes a report of measured rounds, all slices served as given.
func reportOf(rounds map[series][]float64) *report {
	r := &report{}
	var turns []*turn
	for id, ns := range rounds {
		t := &turn{contestant: &contestant{name: id.contestant}, load: &workload{name: id.workload}}
		for _, v := range ns {
			t.slices = append(t.slices, slice{ns: v, served: 1})
		}
		turns = append(turns, t)
	}
	r.addTurns(turns)
	return r
}

// Where the machine gets slower for a while, within a round all do: the ratio is that of the rounds, not that of the medians.
func TestRatioWithinRounds(t *testing.T) {
	r := reportOf(map[series][]float64{
		{nameEngine, loadHot}: {10, 30, 100},
		{nameXTime, loadHot}:  {40, 100, 400},
	})
	if got, ok := r.ratio(series{nameEngine, loadHot}, series{nameXTime, loadHot}); !ok || got != 0.25 {
		t.Errorf("ratio %v, %v; want 0.25", got, ok)
	}
	if _, ok := r.ratio(series{nameEngine, loadHot}, series{nameGoLimiter, loadHot}); ok {
		t.Error("a ratio to what was not measured")
	}
	if got, ok := r.timing(series{nameEngine, loadHot}); !ok || got.NS != 30 || got.OfXTime != 0.25 || got.OfGoLimiter != 0 {
		t.Errorf("timing %+v, %v", got, ok)
	}
}

func TestJudge(t *testing.T) {
	fixed := func(v float64) func(*report) (float64, bool) { return func(*report) (float64, bool) { return v, true } }
	for _, c := range []struct {
		goal goal
		want string
	}{
		{goal{most: 0.5, measure: fixed(0.5)}, "met"},
		{goal{most: 0.5, measure: fixed(0.51)}, "missed"},
		{goal{most: 0, measure: fixed(0)}, "met"},
		{goal{most: 0, measure: fixed(0.01)}, "missed"},
		{goal{least: 0.95, measure: fixed(0.95)}, "met"},
		{goal{least: 0.95, measure: fixed(0.94)}, "missed"},
		{goal{most: 1, measure: func(*report) (float64, bool) { return 0, false }}, "not measured"},
	} {
		if got := c.goal.judge(&report{}); got.Verdict != c.want {
			t.Errorf("%+v: %s, want %s", got, got.Verdict, c.want)
		}
	}
}

// Speed-up is one core's time over two cores' time a decision, ours as a part of the bare table's.
func TestScaling(t *testing.T) {
	r := reportOf(map[series][]float64{
		{nameGiven, loadCold}: {100}, {nameGiven, loadColdTwo}: {62.5}, // 1.6 times as fast
		{nameBare, loadCold}: {60}, {nameBare, loadColdTwo}: {30}, // twice as fast
	})
	if got, ok := scaling(loadCold, loadColdTwo)(r); !ok || got != 0.8 {
		t.Errorf("scaling %v, %v; want 0.8", got, ok)
	}
}

// The few allocations of the run itself are not held against anybody; a real one in a thousand is.
func TestWorstAllocs(t *testing.T) {
	r := &report{allocs: map[series]float64{{nameEngine, loadHot}: 0.0004, {nameUlule, loadHot}: 2}}
	if got, ok := worstAllocs(r); !ok || got != 0 {
		t.Errorf("%v, %v; want none", got, ok)
	}
	r.allocs[series{nameLog, loadCold}] = 0.01
	if got, _ := worstAllocs(r); got != 0.01 {
		t.Errorf("%v, want 0.01", got)
	}
}

func TestPlausible(t *testing.T) {
	open, closed := &workload{setting: settingHot}, &workload{setting: settingDenied}
	for _, c := range []struct {
		turn     turn
		admitted int
		ok       bool
	}{
		{turn{load: open, contestant: &contestant{}}, 1000, true},
		{turn{load: open, contestant: &contestant{}}, 890, false},
		{turn{load: open, contestant: &contestant{mayDeny: true}}, 890, true},
		{turn{load: closed, contestant: &contestant{}}, 0, true},
		{turn{load: closed, contestant: &contestant{}}, 10, false},
	} {
		if err := c.turn.plausible(slice{asked: 1000, admitted: c.admitted}); (err == nil) != c.ok {
			t.Errorf("limited %v, admitted %d: %v", c.turn.load.setting.limited, c.admitted, err)
		}
	}
}
