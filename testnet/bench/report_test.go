package main

import (
	"strings"
	"testing"
)

// reportOf makes a report of ns per decision, a value per round.
func reportOf(rounds map[series][]float64) *report {
	r := &report{}
	var turns []*turn
	for id, ns := range rounds {
		t := &turn{contestant: &contestant{name: id.contestant}, load: &workload{name: id.workload}}
		for _, v := range ns {
			t.slices = append(t.slices, slice{ns: v, cpu: 1})
		}
		turns = append(turns, t)
	}
	r.addTurns(turns)
	return r
}

// A machine that gets slower for a while slows all contestants of a round. The ratio is the median of the rounds'
// ratios, not the ratio of the medians.
func TestRatioWithinRounds(t *testing.T) {
	r := reportOf(map[series][]float64{{nameEngine, loadHot}: {10, 30, 100}, {nameXTime, loadHot}: {40, 100, 400}})
	if got, ok := r.ratio(series{nameEngine, loadHot}, series{nameXTime, loadHot}); !ok || got != 0.25 {
		t.Errorf("ratio %v, %v; want 0.25", got, ok)
	}
	if _, ok := r.ratio(series{nameEngine, loadHot}, series{nameGoLimiter, loadHot}); ok {
		t.Error("a ratio to what was not measured")
	}
	if got := r.timings; len(got) != 2 || got[0].ns != 30 && got[1].ns != 30 {
		t.Errorf("timings %+v", got)
	}
	for _, want := range []string{"| edgelimit, 10 sub-windows | 0.25 |", "| x/time/rate in a sync.Map | 1 |"} {
		if text := r.markdown(); !strings.Contains(text, want) {
			t.Errorf("the report lacks %s:\n%s", want, text)
		}
	}
}

func TestJudge(t *testing.T) {
	fixed := func(v float64) func(*report) (float64, bool) { return func(*report) (float64, bool) { return v, true } }
	for _, c := range []struct {
		goal goal
		want string
	}{
		{goal{max: 0.5, measure: fixed(0.5)}, "met"},
		{goal{max: 0.5, measure: fixed(0.51)}, "missed"},
		{goal{max: 0, measure: fixed(0)}, "met"},
		{goal{max: 0, measure: fixed(0.01)}, "missed"},
		{goal{min: 0.95, measure: fixed(0.95)}, "met"},
		{goal{min: 0.95, measure: fixed(0.94)}, "missed"},
		{goal{max: 1, measure: func(*report) (float64, bool) { return 0, false }}, "not measured"},
	} {
		if got, verdict := c.goal.judge(&report{}); verdict != c.want {
			t.Errorf("%s: %s, want %s", got, verdict, c.want)
		}
	}
}

// The speed-up is one core's time over two cores' time per decision, ours over the bare table's.
func TestScaling(t *testing.T) {
	r := reportOf(map[series][]float64{
		{nameGiven, loadCold}: {100}, {nameGiven, loadCold + twoCores}: {62.5}, // 1.6 times as fast
		{nameBare, loadCold}: {60}, {nameBare, loadCold + twoCores}: {30}, // twice as fast
	})
	if got, ok := scaling(loadCold)(r); !ok || got != 0.8 {
		t.Errorf("scaling %v, %v; want 0.8", got, ok)
	}
}

// Allocations of the run itself do not count. One in a hundred decisions does.
func TestMaxAllocs(t *testing.T) {
	r := &report{timings: []timing{
		{series: series{nameEngine, loadHot}, allocs: 0.0004}, {series: series{nameUlule, loadHot}, allocs: 2},
	}}
	if got, ok := maxAllocs(r); !ok || got != 0 {
		t.Errorf("%v, %v; want none", got, ok)
	}
	r.timings = append(r.timings, timing{series: series{nameLog, loadCold}, allocs: 0.01})
	if got, _ := maxAllocs(r); got != 0.01 {
		t.Errorf("%v, want 0.01", got)
	}
}

func TestPlausible(t *testing.T) {
	open, closed := &workload{state: stateHot}, &workload{state: stateDenied}
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
		if err := c.turn.plausible(slice{requests: 1000, admitted: c.admitted}); (err == nil) != c.ok {
			t.Errorf("limited %v, admitted %d: %v", c.turn.load.state.limited, c.admitted, err)
		}
	}
}
