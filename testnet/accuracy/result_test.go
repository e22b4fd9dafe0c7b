package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/sim"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// fake is a simulator that counts what it is asked for, by command and seed.
type fake struct {
	mu   sync.Mutex
	runs map[string]int
	fail error
}

func (f *fake) run(_ context.Context, o sim.Options, _ func(time.Duration)) (*sim.Report, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs[strings.Join(o.Flags(), " ")]++
	return &sim.Report{Seed: o.Seed, NetPct: float64(o.Seed) - 12, PeakPct: float64(o.Nodes)}, f.fail
}

func load(x float64) func(*sim.Options) { return func(o *sim.Options) { o.Load = x } }

// Each scenario is run once with each seed, however often it stands in the document, and each report is in its place.
func TestSimulate(t *testing.T) {
	f := &fake{runs: make(map[string]int)}
	rows := []row{
		{name: "a", change: load(3)},
		{name: "b", change: load(4), max: 2},
		{name: "a again", change: load(3)},
	}
	var progress strings.Builder
	got, err := simulate(t.Context(), rows, seeds{first: 11, count: 3}, 2, f.run, &progress)
	testkit.Must(t, err)
	if len(f.runs) != 5 || len(got) != 2 || got.of(&rows[0]) != got.of(&rows[2]) || len(got.of(&rows[1]).reports) != 2 {
		t.Errorf("%v, %v", f.runs, got)
	}
	for command, n := range f.runs {
		if n != 1 {
			t.Errorf("%s was run %d times", command, n)
		}
	}
	for i, r := range got.of(&rows[0]).reports {
		if r.Seed != 11+uint64(i) {
			t.Errorf("report %d is of seed %d", i, r.Seed)
		}
	}
	if !strings.Contains(progress.String(), "5 of 5 runs") {
		t.Errorf("it says %q", progress.String())
	}
	if other := (row{change: load(5)}); got.of(&other) != nil {
		t.Error("there is a result of what was not run")
	}
}

func TestSimulateStops(t *testing.T) {
	rows := steady()
	f := &fake{runs: make(map[string]int), fail: errors.New("no")}
	if _, err := simulate(t.Context(), rows, seeds{count: 5}, 2, f.run, io.Discard); !errors.Is(err, f.fail) ||
		len(f.runs) > 4 {
		t.Errorf("%v after %d runs", err, len(f.runs))
	}
	ctx, stop := context.WithCancelCause(t.Context())
	stop(f.fail)
	if _, err := simulate(ctx, rows, seeds{count: 5}, 2, (&fake{runs: make(map[string]int)}).run,
		io.Discard); !errors.Is(
		err,
		f.fail,
	) {
		t.Errorf("%v", err)
	}
}

func TestLongRunsComeFirst(t *testing.T) {
	_, jobs := plan([]row{{change: load(3)}, {change: func(o *sim.Options) { o.Nodes = 40 }}, {change: load(4)}},
		seeds{count: 2})
	if len(jobs) != 6 || jobs[0].options.Nodes != 40 || jobs[1].options.Nodes != 40 || jobs[0].seed != 0 {
		t.Errorf("%v", jobs)
	}
}

func TestOver(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   spread
		text   string
	}{
		{nil, spread{}, "0"},
		{[]float64{2}, spread{2, 2}, "2"},
		{[]float64{3, 1, 2}, spread{2, 3}, "2 (3)"},
		{[]float64{0.1, -4, 0.2, 0.3}, spread{0.15000000000000002, -4}, "0.15 (-4)"},
		{[]float64{1.001, 1.002}, spread{1.0015, 1.002}, "1.00"},
		{[]float64{5, math.Inf(1), 5}, spread{5, math.Inf(1)}, "5 (never)"},
	} {
		var reports []*sim.Report
		for _, v := range test.values {
			reports = append(reports, &sim.Report{NetPct: v})
		}
		if got := over(reports, netPct); got != test.want || got.String() != test.text {
			t.Errorf("%v: %v %q, want %v %q", test.values, got, got, test.want, test.text)
		}
	}
	if got := sum([]*sim.Report{{NetPct: 1}, {NetPct: 4}}, netPct); got != 5 {
		t.Errorf("%v", got)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 2: "2", -0.001: "0", 0.125: "0.12", -1.5: "-1.50", 9.99: "9.99", 12.34: "12.3", 99.96: "100",
		12345.6: "12346", 20000: "20000", math.Inf(1): "never",
	} {
		if got := number(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

func TestJudge(t *testing.T) {
	rows := []row{
		{name: "a", goals: []string{"x"}, change: load(3)},
		{name: "b", goals: []string{"x", "y"}, change: load(4)},
		{name: "c", change: load(5)},
	}
	rows[1].beside = map[string]*row{"y": &rows[0]}
	all := make(results)
	for i, values := range [][]float64{{1, 2, 6}, {0, 3, 1}, {90, 90, 90}} {
		r := &result{options: rows[i].options()}
		for _, v := range values {
			r.reports = append(r.reports, &sim.Report{NetPct: v})
		}
		all[keyOf(r.options)] = r
	}
	for _, test := range []struct {
		goal goal
		want string
	}{
		{goal{rows: "x", max: 6}, "2 6 met"},
		{goal{rows: "x", max: 5}, "2 6 missed in the worst seed"},
		{goal{rows: "x", max: 1}, "2 6 missed"},
		{goal{rows: "y", max: 3}, "1 3 met"},
		{goal{rows: "y", beside: above, max: 1}, "0 1 met"},
		{goal{rows: "y", beside: times, max: 1}, "0.5 1.5 missed in the worst seed"},
		{goal{max: 5}, "90 90 missed"},
		{goal{rows: "x", total: true, max: 13}, "13 13 met"},
		{goal{rows: "x", total: true, least: 13}, "13 13 met"},
		{goal{rows: "x", total: true, least: 14}, "13 13 missed"},
		{goal{rows: "z"}, "0 0 not measured"},
	} {
		test.goal.figure = netPct
		v := test.goal.judge(rows, all)
		if got := fmt.Sprint(v.median, v.worst, " ", v.figure); got != test.want {
			t.Errorf("%+v: %s, want %s", test.goal, got, test.want)
		}
	}
}
