package judge

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// The report is read by other programs: a member that goes or is renamed shows here.
func TestReportAsJSON(t *testing.T) {
	s := newScript(t)
	s.event(0, true, record.Pause, "b")
	s.ask("a", 0, 1, 10, true)
	s.ask("a", 1, 1, 1, true)
	s.see("a", 500, 10, 0.05)
	got, err := json.Marshal(s.anyReport())
	testkit.Must(t, err)
	const figures = `"offered":2,"admitted":2,"denied":0,"oracle_admitted":1,"failed":0,"net_pct":10,` +
		`"over_limit_pct":10,"over_oracle_pct":10,` +
		`"excess_pct":10,"bound_pct":5,"false_rejections":0,"burst_denied":0,"latency_p50_ms":1,"latency_p99_ms":1`
	const want = `{"version":2,"rule":{"name":"r","limit":10,"window_ns":10000000000,"sub_ns":1000000000,` +
		`"algorithm":"sliding_window"},` +
		`"nodes":2,"clients":1,"seconds":0.5,"total":{` + figures + `},` +
		`"phases":[{"name":"pause b","from_s":0,"to_s":0.500000001,"faults":["pause b"],"sides":1,"ceiling_pct":0,` +
		figures + `}],` +
		`"per_second":[{` + figures + `}],"steady_bound_pct":0,"agree_ms":498,"ok":false,` +
		`"violations":[{"invariant":"I5","second":0,"what":"admitted over the limit","expected":"at most the ` +
		`exported bound of 5.00 %","got":"10.00 %","times":1}]}`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Lists are never null.
func TestGoodReportHasEmptyLists(t *testing.T) {
	s := newScript(t)
	s.ask("a", 0, 1, 1, true)
	s.settled(5, 1)
	got, err := json.Marshal(s.anyReport())
	testkit.Must(t, err)
	if strings.Contains(string(got), "null") || !strings.Contains(string(got), `"violations":[]`) {
		t.Errorf("%s", got)
	}
}

// failing is a terminal that is gone.
type failing struct{}

var errGone = errors.New("gone")

func (*failing) Write([]byte) (int, error) { return 0, errGone }

func TestTextSaysWhatCouldNotBeWritten(t *testing.T) {
	s := newScript(t)
	s.ask("a", 0, 1, 11, true)
	r := s.anyReport()
	if err := r.WriteText(&failing{}); !errors.Is(err, errGone) {
		t.Errorf("error %v", err)
	}
	for _, want := range []string{"broken:", "I5 ", "I1 ", "never, or nothing shows it"} {
		if !strings.Contains(Text(t, r), want) {
			t.Errorf("%q is missing in\n%s", want, Text(t, r))
		}
	}
}

// Sides are the targets of partitions, and the rest if there is one.
func TestSides(t *testing.T) {
	nodes := []record.Node{
		{ID: "a1", Region: "a"},
		{ID: "a2", Region: "a"},
		{ID: "b1", Region: "b"},
		{ID: "c1", Region: "c"},
	}
	cut := func(targets ...string) (faults []record.Event) {
		for _, target := range targets {
			faults = append(faults, record.Event{Name: record.Partition, Target: target})
		}
		return faults
	}
	for _, c := range []struct {
		faults []record.Event
		want   int
	}{
		{nil, 1}, {cut("a"), 2}, {cut("a", "b"), 3}, {cut("a", "b", "c"), 3}, {cut("a1"), 2}, {cut("a1", "a2"), 3},
		{[]record.Event{{Name: record.Kill, Target: "a"}}, 1},
	} {
		if got := countSides(c.faults, nodes); got != c.want {
			t.Errorf("%v: %d sides, want %d", c.faults, got, c.want)
		}
	}
}

// A fault shows until the window and two sub-windows have passed, and then there is calm, quiet and one side.
func TestTimeline(t *testing.T) {
	s := newScript(t)
	s.ask("a", 0, 1, 1, true)
	s.event(1000, true, "redis-stop", "east")
	s.event(2000, true, record.Partition, "west")
	s.event(3000, false, "redis-stop", "east")
	s.event(4000, false, record.Partition, "west")
	s.see("a", 30_000, 0, 0)
	tr, err := load(s.header, yielding(s.entries))
	testkit.Must(t, err)
	line, err := newTimeline(tr)
	testkit.Must(t, err)
	names := []string{"no fault", "redis-stop east", "redis-stop east, partition west", "partition west", "no fault"}
	if len(line.periods) != len(names) {
		t.Fatalf("%+v", line.periods)
	}
	for i, p := range line.periods {
		if p.name != names[i] || line.index(p.from) != i || line.index(p.to-1) != i ||
			p.sides != []int{1, 1, 2, 2, 1}[i] {
			t.Errorf("period %d: %s with %d sides", i, p.name, p.sides)
		}
	}
	settled := 4000 + int(12*time.Second/time.Millisecond)
	for _, c := range []struct {
		from, to    int
		calm, quiet bool
		sides       int
	}{
		{0, 999, true, true, 1}, {0, 1000, false, false, 1}, {0, 2000, false, false, 2}, {3999, 3999, false, false, 2},
		{4000, 5000, true, false, 2}, {settled - 1, 20_000, true, false, 2}, {settled, 20_000, true, true, 1},
	} {
		from, to := s.at(c.from), s.at(c.to)
		if calm, quiet, sides := line.faultFree(from, to), line.settled(from, to),
			line.maxSides(from, to); calm != c.calm ||
			quiet != c.quiet ||
			sides != c.sides {
			t.Errorf("%d to %d: calm %v, quiet %v, %d sides, want %v, %v and %d", c.from, c.to, calm, quiet, sides,
				c.calm, c.quiet, c.sides)
		}
	}
}

func TestPercent(t *testing.T) {
	for ratio, want := range map[float64]float64{0: 0, 0.02: 2, 0.123456: 12.35, -0.00004: 0, -1: -100, 1.5: 150} {
		if got := Percent(ratio); got != want {
			t.Errorf("%v is %v %%, want %v", ratio, got, want)
		}
	}
}
