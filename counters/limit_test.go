package counters_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestNewMeterIsValidWhereItCanBe(t *testing.T) {
	for _, c := range []struct {
		window time.Duration
		subs   int // 0: invalid
	}{
		{10 * time.Second, 10},
		{time.Minute, 10},
		{counters.MaxWindow, 10},
		{10 * time.Millisecond, 10},
		{9 * time.Millisecond, 9},
		{7 * time.Millisecond, 7},
		{time.Millisecond, 1},
		{time.Millisecond + 7, 1}, // 1000007 ns: no divisor leaves a millisecond
		{2*time.Millisecond + 2, 2},
		{time.Millisecond - 1, 0},
		{0, 0},
		{-time.Second, 0},
		{counters.MaxWindow + 10, 0},
		{math.MaxInt64, 0},
		{math.MinInt64, 0},
	} {
		m := counters.NewMeter("r", counters.SlidingWindow, c.window)
		err := m.Validate()
		if c.subs == 0 {
			if err == nil {
				t.Errorf("a window of %v is valid: %+v", c.window, m)
			}
			continue
		}
		if err != nil || m.SubWindows() != c.subs || m.Window != c.window || m.Sub*time.Duration(c.subs) != c.window {
			t.Errorf("a window of %v: %+v with %d sub-windows, %v; want %d", c.window, m, m.SubWindows(), err, c.subs)
		}
	}
}

func TestValidateNamesWhatIsWrong(t *testing.T) {
	good := counters.Meter{Rule: "edge/a", Algorithm: counters.SlidingWindow, Window: time.Minute, Sub: time.Second}
	testkit.Must(t, good.Validate())
	for _, c := range []struct {
		why    string
		spoil  func(*counters.Meter)
		naming string
	}{
		{"zero value", func(m *counters.Meter) { *m = counters.Meter{} }, "no name"},
		{"no rule", func(m *counters.Meter) { m.Rule = "" }, "no name"},
		{"a long name", func(m *counters.Meter) { m.Rule = strings.Repeat("x", counters.MaxRuleName+1) }, "513 bytes"},
		{"no algorithm", func(m *counters.Meter) { m.Algorithm = 0 }, "unknown algorithm 0"},
		{"an algorithm to come", func(m *counters.Meter) { m.Algorithm = 10 }, "unknown algorithm 10"},
		{"a ban of parts", func(m *counters.Meter) { m.Algorithm = counters.Ban }, "no sub-windows"},
		{"an algorithm of another age", func(m *counters.Meter) { m.Algorithm = 255 }, "unknown algorithm 255"},
		{"no sub-window", func(m *counters.Meter) { m.Sub = 0 }, "edge/a"},
		{"a short sub-window", func(m *counters.Meter) { m.Sub = time.Millisecond - 1 }, "outside"},
		{"a negative sub-window", func(m *counters.Meter) { m.Sub, m.Window = -time.Second, -time.Minute }, "outside"},
		{"a window shorter than its sub-window", func(m *counters.Meter) { m.Window = time.Second / 2 }, "outside"},
		{"a window of more than a year", func(m *counters.Meter) {
			m.Window, m.Sub = 367*24*time.Hour,
				367*24*time.Hour
		}, "outside"},
		{"a window of all time", func(m *counters.Meter) { m.Window, m.Sub = math.MaxInt64, math.MaxInt64 }, "outside"},
		{"a part of a sub-window", func(m *counters.Meter) { m.Window = time.Minute + 1 }, "not a multiple"},
		{"too many sub-windows", func(m *counters.Meter) { m.Window = 61 * time.Second }, "not a multiple"},
	} {
		m := good
		c.spoil(&m)
		err := m.Validate()
		if err == nil || !strings.Contains(err.Error(), c.naming) {
			t.Errorf("%s: %v, want an error that says %q", c.why, err, c.naming)
		}
		if l, err := counters.NewLimit(m, 1); err == nil || l != nil {
			t.Errorf("%s: a limit on it is %+v, %v", c.why, l, err)
		}
	}
}

func TestNewLimit(t *testing.T) {
	m := counters.NewMeter("r", counters.SlidingWindow, time.Minute)
	for _, largest := range []uint64{0, 1, counters.MaxLimit} {
		l, err := counters.NewLimit(m, largest)
		if err != nil || l.Max() != largest || l.Meter() != m {
			t.Errorf("a limit of %d: %+v, %v", largest, l, err)
		}
	}
	for _, largest := range []uint64{counters.MaxLimit + 1, math.MaxUint64} {
		if _, err := counters.NewLimit(m, largest); err == nil {
			t.Errorf("a limit of %d is valid", largest)
		}
	}
}

func TestIndexIsTheSubWindowOfATime(t *testing.T) {
	m := counters.Meter{Rule: "r", Algorithm: counters.SlidingWindow, Window: time.Minute, Sub: 20 * time.Second}
	base := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano()
	first := m.Index(base)
	for after, want := range map[time.Duration]int64{
		-1: -1, 0: 0, 1: 0, 20*time.Second - 1: 0, 20 * time.Second: 1, time.Minute: 3, time.Hour: 180,
	} {
		if got := m.Index(base+int64(after)) - first; got != want {
			t.Errorf("after %v: %d sub-windows on, want %d", after, got, want)
		}
	}
}

// The names are those of rule files, the numbers travel between nodes.
func TestAlgorithms(t *testing.T) {
	for a, want := range map[counters.Algorithm]string{
		1: "sliding_window", 2: "fixed_window", 3: "sliding_log", 4: "token_bucket", 5: "leaky_bucket",
		6: "leaky_queue", 7: "ban", 8: "lift", 0: "algorithm(0)", 9: "credit", 10: "algorithm(10)", 77: "algorithm(77)",
	} {
		if got := a.String(); got != want {
			t.Errorf("algorithm %d is %q, want %q", a, got, want)
		}
	}
	if a, ok := counters.ParseAlgorithm("ban"); ok {
		t.Errorf("a rule may count by %v", a)
	}
	for i, a := range algorithms {
		if int(a) != i+1 {
			t.Errorf("%v is number %d, want %d", a, a, i+1)
		}
	}
}

// What counts by sub-windows has ten of them unless told otherwise, what does not has one.
func TestTheSubWindowsOfEachAlgorithm(t *testing.T) {
	for i, want := range []int{10, 1, 10, 1, 1, 1} {
		m := counters.NewMeter("r", algorithms[i], time.Minute)
		if err := m.Validate(); err != nil || m.SubWindows() != want || m.Algorithm != algorithms[i] ||
			m.Window != time.Minute {
			t.Errorf("%+v with %d sub-windows, %v; want %d", m, m.SubWindows(), err, want)
		}
		m.Sub = 20 * time.Second
		if err := m.Validate(); (err != nil) != (algorithms[i] == counters.FixedWindow) {
			t.Errorf("%v with three sub-windows: %v", algorithms[i], err)
		}
	}
}

func TestBucketsHaveARefill(t *testing.T) {
	for _, a := range algorithms {
		l, err := counters.LimitConfig{Meter: counters.NewMeter("r", a, time.Hour), Max: 10, Refill: 1}.New()
		switch {
		case !isBucket(a) && err == nil:
			t.Errorf("%v is no bucket, and is taken for one", a)
		case isBucket(a) && (err != nil || l.Max() != 10 || l.Refill() != 1):
			t.Errorf("a %v: %+v, %v", a, l, err)
		}
	}
	m := counters.NewMeter("r", counters.TokenBucket, time.Hour)
	if l := newLimit(t, m, 7); l.Max() != 7 || l.Refill() != 7 {
		t.Errorf("a bucket without a refill of its own: %d, refilled %d a window, want 7 and 7", l.Max(), l.Refill())
	}
	for _, c := range []struct{ capacity, refill uint64 }{{counters.MaxLimit + 1, 1}, {math.MaxUint64, 1},
		{10, math.MaxUint64}} {
		if l, err := (counters.LimitConfig{Meter: m, Max: c.capacity, Refill: c.refill}).New(); err == nil {
			t.Errorf("a bucket of %d, refilled %d: %+v", c.capacity, c.refill, l)
		}
	}
	m.Window = 0
	if _, err := (counters.LimitConfig{Meter: m, Max: 10, Refill: 1}).New(); err == nil {
		t.Error("a bucket of an invalid meter")
	}
}

// The bucket that takes longest to fill of those that there may be is a bucket like any other: it denies when it is
// empty, wherever in its sub-window it is asked.
func TestTheSlowestBuckets(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, window := range []time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour,
		year} {
		capacity := counters.LongestFill(window) / uint64(window)
		for _, a := range algorithms {
			if !isBucket(a) {
				continue
			}
			m := counters.NewMeter("r", a, window)
			if l, err := (counters.LimitConfig{Meter: m, Max: capacity + 1, Refill: 1}).New(); err == nil {
				t.Errorf("a %v of %d, refilled 1 in %v, takes too long to fill: %+v", a, capacity+1, window, l)
			}
			l := newBucket(t, m, capacity, 1)
			for _, into := range []time.Duration{0, m.Sub / 2, m.Sub - 1} {
				table, now := small(1), after(into)-start%int64(m.Sub)
				if d := table.Take(l, 1, capacity-3, now); !d.Allowed || d.Remaining != 3 {
					t.Errorf("%v, all but 3 of %d in %v: %+v", a, capacity, window, d)
				}
				admitted := 0
				for range 1000 {
					if table.Take(l, 1, 1, now).Allowed {
						admitted++
					}
				}
				if admitted != 3 {
					t.Errorf("%v of %d in %v, %v into its sub-window: %d admitted where 3 are left", a, capacity,
						window, into, admitted)
				}
			}
		}
	}
}

// A log holds what it admitted, and is bounded by its limit.
func TestTheLongestLog(t *testing.T) {
	m := counters.NewMeter("r", counters.SlidingLog, time.Minute)
	newLimit(t, m, counters.MaxLog)
	if _, err := counters.NewLimit(m, counters.MaxLog+1); err == nil {
		t.Errorf("a log of %d", counters.MaxLog+1)
	}
}

// What differs in one field of the meter is counted apart; what differs in the limit only is counted together, so that
// an edited limit keeps its counts.
func TestTheMeterTellsCountsApart(t *testing.T) {
	table := small(1)
	base := counters.Meter{Rule: "edge/a", Algorithm: counters.SlidingWindow, Window: time.Minute, Sub: time.Second}
	table.Take(newLimit(t, base, 10), 1, 4, start)

	edited := newLimit(t, base, 20)
	if view := table.View(edited, 1, start); view != 4 {
		t.Errorf("after the limit was edited, the view is %d, want 4", view)
	}
	for _, m := range []counters.Meter{
		{Rule: "edge/b", Algorithm: base.Algorithm, Window: base.Window, Sub: base.Sub},
		{Rule: "edge/a", Algorithm: base.Algorithm, Window: time.Second * 30, Sub: base.Sub},
		{Rule: "edge/a", Algorithm: base.Algorithm, Window: base.Window, Sub: 2 * time.Second},
		{Rule: "edge/a", Algorithm: counters.TokenBucket, Window: base.Window, Sub: base.Sub},
		// A name that looks like the rest of another meter.
		{Rule: "edge/a\x001\x0060000000000", Algorithm: base.Algorithm, Window: base.Window, Sub: base.Sub},
	} {
		if view := table.View(newLimit(t, m, 10), 1, start); view != 0 {
			t.Errorf("%q, %v by %v, counts what %q, %v by %v does", m.Rule, m.Window, m.Sub, base.Rule, base.Window,
				base.Sub)
		}
	}
	if view := table.View(edited, 2, start); view != 0 {
		t.Errorf("another key's view is %d, want 0", view)
	}
}
