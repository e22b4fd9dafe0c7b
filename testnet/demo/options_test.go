package demo

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/node/replay"
)

func TestDefaultOptionsAreValid(t *testing.T) {
	o := DefaultOptions()
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	if o.Duration+agreeWithin > 45*time.Second {
		t.Errorf("%v of requests leave no time for the rest: the demo is to be over after 45 s", o.Duration)
	}
	begin, heal := o.schedule()
	if begin < o.Window || heal+o.Window > o.Duration {
		t.Errorf("the partition from %v to %v leaves no whole window before and after it in %v", begin, heal,
			o.Duration)
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Options)
		want   string // part of the error; empty: valid
	}{
		{"one node", func(o *Options) { o.Regions, o.Nodes, o.Partition = 1, 1, 0 }, ""},
		{"64 nodes", func(o *Options) { o.Regions, o.Nodes = 8, 8 }, ""},
		{"65 nodes", func(o *Options) { o.Regions, o.Nodes = 5, 13 }, "want 1 to 64 nodes"},
		{"no region", func(o *Options) { o.Regions = 0 }, "0 regions of 2 nodes"},
		{"no node", func(o *Options) { o.Nodes = 0 }, "3 regions of 0 nodes"},
		{"less than nothing twice", func(o *Options) { o.Regions, o.Nodes = -2, -2 }, "-2 regions of -2 nodes"},
		{"so many that the product overflows", func(o *Options) { o.Regions, o.Nodes = 1<<62, 4 },
			"want 1 to 64 nodes"},
		{"so many nodes that the product overflows", func(o *Options) { o.Regions, o.Nodes = 4, 1<<62 },
			"want 1 to 64 nodes"},
		{"no limit", func(o *Options) { o.Limit = 0 }, "a limit of 0"},
		{"no limit worth the name", func(o *Options) { o.Limit = 1_000_001 }, "a limit of 1000001"},
		{"short window", func(o *Options) { o.Window = time.Second - 1 }, "a window of"},
		{"long window", func(o *Options) { o.Window = time.Hour + 1 }, "a window of"},
		{"short interval", func(o *Options) { o.Interval = time.Millisecond }, "an interval of 1ms"},
		{"long interval", func(o *Options) { o.Interval = 6 * time.Second }, "an interval of 6s"},
		{"no load", func(o *Options) { o.Load = 0 }, "a load of 0"},
		{"load below nothing", func(o *Options) { o.Load = -1 }, "a load of -1"},
		{"too small a load to come to a request", func(o *Options) { o.Load = 1e-300 }, "a load of 1e-300"},
		{"too much load", func(o *Options) { o.Load = 1001 }, "a load of 1001"},
		{"a load that is no number", func(o *Options) { o.Load = math.NaN() }, "a load of NaN"},
		{"endless load", func(o *Options) { o.Load = math.Inf(1) }, "a load of +Inf"},
		{"short", func(o *Options) { o.Duration, o.Partition = 900*time.Millisecond, 0 }, "a duration of 900ms"},
		{"long", func(o *Options) { o.Duration = 2 * time.Hour }, "a duration of 2h0m0s"},
		{"a partition for all of it", func(o *Options) { o.Partition = o.Duration }, "at most half"},
		{"a partition for half of it", func(o *Options) { o.Partition = o.Duration / 2 }, ""},
		{"a partition below nothing", func(o *Options) { o.Partition = -1 }, "a partition of -1ns"},
		{"a partition of one region", func(o *Options) { o.Regions = 1 }, "at least two regions"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := DefaultOptions()
			test.change(&o)
			switch err := o.Validate(); {
			case test.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want one that says %q", err, test.want)
			}
		})
	}
}

func TestValidateReportsEverythingAtOnce(t *testing.T) {
	err := (&Options{Load: -1, Partition: 1}).Validate()
	if err == nil {
		t.Fatal("valid")
	}
	if n := len(strings.Split(err.Error(), "\n")); n != 8 {
		t.Errorf("%d problems of 8:\n%v", n, err)
	}
	if _, err := Run(t.Context(), Options{}, nil); err == nil {
		t.Error("Run takes options that Validate refuses")
	}
}

func TestSchedule(t *testing.T) {
	const s = time.Second
	for _, test := range []struct{ duration, window, length, begin, heal time.Duration }{
		{36 * s, 10 * s, 8 * s, 14 * s, 22 * s}, // a window to fill and almost half of one to settle
		{36 * s, 10 * s, 0, 0, 0},
		{60 * s, 1 * s, 10 * s, 1400 * time.Millisecond, 11400 * time.Millisecond},
		{20 * s, 10 * s, 8 * s, 6 * s, 14 * s}, // no room for that: in the middle
		{3 * s, 1 * s, 1 * s, 1 * s, 2 * s},
	} {
		o := Options{Duration: test.duration, Window: test.window, Partition: test.length}
		if begin, heal := o.schedule(); begin != test.begin || heal != test.heal {
			t.Errorf("%+v: from %v to %v", test, begin, heal)
		}
	}
}

// Whatever is asked for, there are requests before the partition and after the heal.
func TestScheduleFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := DefaultOptions()
		o.Window = time.Duration(rapid.Int64Range(int64(time.Second), int64(time.Hour)).Draw(t, "window"))
		o.Duration = time.Duration(rapid.Int64Range(int64(time.Second), int64(time.Hour)).Draw(t, "duration"))
		o.Partition = time.Duration(rapid.Int64Range(1, int64(o.Duration/2)).Draw(t, "cut"))
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		if begin, heal := o.schedule(); begin <= 0 || heal-begin != o.Partition || heal >= o.Duration {
			t.Fatalf("from %v to %v in %v", begin, heal, o.Duration)
		}
	})
}

func TestRegionNamesDiffer(t *testing.T) {
	seen := make(map[string]bool)
	for i := range 64 {
		name := regionName(i)
		if name == "" || seen[name] {
			t.Errorf("region %d is called %q, as another is", i, name)
		}
		seen[name] = true
	}
}

// A log spans whole seconds: from the first it names to the end of the last.
func TestSpeed(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(1_000_000+s, 0) }
	for _, test := range []struct {
		seconds []int64
		want    float64
	}{{nil, 1}, {[]int64{5}, 0.1}, {[]int64{9, 0, 4}, 1}, {[]int64{0, 3599}, 360}, {[]int64{0, 1, 4}, 0.5}} {
		o := Options{Duration: 10 * time.Second}
		for _, s := range test.seconds {
			o.Log = append(o.Log, replay.Entry{Time: at(s)})
		}
		if got := o.Speed(); got != test.want {
			t.Errorf("requests at %v in 10 s are %v times as fast, want %v", test.seconds, got, test.want)
		}
	}
}

func TestSortedLogLeavesTheLogAlone(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	o := Options{
		Log: []replay.Entry{
			{Addr: "c", Time: at(3)},
			{Addr: "a1", Time: at(1)},
			{Addr: "b", Time: at(2)},
			{Addr: "a2", Time: at(1)},
		},
	}
	var got string
	for _, e := range o.sortedLog() {
		got += e.Addr + " "
	}
	if got != "a1 a2 b c " {
		t.Errorf("sorted: %s", got)
	}
	if o.Log[0].Addr != "c" {
		t.Error("the caller's log was sorted")
	}
}
