package judge_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/sim"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// copied returns a copy of the entries that may be altered.
func copied(entries []record.Entry) []record.Entry {
	out := make([]record.Entry, len(entries))
	for i, e := range entries {
		switch {
		case e.Decision != nil:
			d := *e.Decision
			out[i].Decision = &d
		case e.Observation != nil:
			o := *e.Observation
			o.Counts = maps.Clone(o.Counts)
			out[i].Observation = &o
		default:
			v := *e.Event
			out[i].Event = &v
		}
	}
	return out
}

// find returns the first entry that is as asked for.
func find(t *testing.T, entries []record.Entry, as func(record.Entry) bool) record.Entry {
	t.Helper()
	i := slices.IndexFunc(entries, as)
	if i < 0 {
		t.Fatal("the run has no such line: the test needs another seed")
	}
	return entries[i]
}

// One line of a good run that is altered turns the verdict, and the verdict says why.
func TestOneLineTurnsTheVerdict(t *testing.T) {
	h, good := play(t, sim.Even, false, 3)
	if r := judge.Judged(t, h, good); !r.OK {
		t.Fatalf("the run is not good:\n%s", judge.Text(t, r))
	}
	since := func(at int64) time.Duration { return time.Duration(at - h.Started) }
	decided := func(who string, after time.Duration, admitted bool) func(record.Entry) bool {
		return func(e record.Entry) bool {
			d := e.Decision
			return d != nil && d.Identity == who && since(d.Sent) > after && d.Allowed == admitted
		}
	}
	observed := func(after time.Duration, least uint64) func(record.Entry) bool {
		return func(e record.Entry) bool {
			return e.Observation != nil && since(e.Observation.Sent) > after && e.Observation.Counts["steady"] > least
		}
	}
	for _, c := range []struct {
		name  string
		which func(record.Entry) bool
		alter func(record.Entry)
		want  []judge.Invariant // all of them; none: the verdict stays
	}{
		{"a compliant request is denied", decided("steady", 9*time.Second, true),
			func(e record.Entry) { e.Decision.Allowed = false },
			[]judge.Invariant{judge.Compliant}},
		{"an answer has too high a count", decided("steady", time.Second, true),
			func(e record.Entry) { e.Decision.Remaining -= 100 },
			[]judge.Invariant{judge.Truth}},
		{"more is admitted than nodes come to count", decided("steady", trafficFor-time.Second, true),
			func(e record.Entry) { e.Decision.Cost = 20 },
			[]judge.Invariant{judge.Agreement}},
		{"much more is admitted at once", decided("greedy", 9*time.Second, true),
			func(e record.Entry) { e.Decision.Cost = 200 },
			[]judge.Invariant{judge.Bounded}},
		{"a node counts more than there is", observed(time.Second, 0),
			func(e record.Entry) { e.Observation.Counts["steady"] = playedLimit },
			[]judge.Invariant{judge.Truth, judge.Growth}},
		{"a node forgets", observed(8*time.Second, 200), func(e record.Entry) { e.Observation.Counts["steady"] = 9 },
			[]judge.Invariant{judge.Growth, judge.Agreement}},
		{"a node is one short in the end", observed(trafficFor+2500*time.Millisecond, 0),
			func(e record.Entry) { e.Observation.Counts["steady"] -= 12 },
			[]judge.Invariant{judge.Agreement}},
		{"an answer is lost", decided("steady", 9*time.Second, true), func(e record.Entry) {
			*e.Decision = record.Decision{Sent: e.Decision.Sent, Done: e.Decision.Done, Node: e.Decision.Node,
				Region:   e.Decision.Region,
				Identity: e.Decision.Identity, Cost: e.Decision.Cost, Error: "timed out"}
		}, nil},
		{"a staleness changes", observed(time.Second, 0),
			func(e record.Entry) { e.Observation.Staleness = time.Minute }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			entries := copied(good)
			c.alter(find(t, entries, c.which))
			r := judge.Judged(t, h, entries)
			got := judge.Invariants(r)
			if r.OK != (len(c.want) == 0) {
				t.Errorf("ok: %v", r.OK)
			}
			for _, want := range c.want {
				if got[want] == 0 {
					t.Errorf("%s is not named", want)
				}
			}
			if t.Failed() {
				t.Log(judge.Text(t, r))
			}
		})
	}
}

// The order of the lines says nothing: they come as they were answered.
func TestOrderOfLinesSaysNothing(t *testing.T) {
	h, entries := play(t, sim.Skew, true, 1)
	want := fmt.Sprintf("%+v", judge.Judged(t, h, entries))
	backwards := copied(entries)
	slices.Reverse(backwards)
	if got := fmt.Sprintf("%+v", judge.Judged(t, h, backwards)); got != want {
		t.Errorf("backwards\n%s\nforwards\n%s", got, want)
	}
	r, err := judge.Recorded(t, h, entries)
	testkit.Must(t, err)
	if got := fmt.Sprintf("%+v", r); got != want {
		t.Errorf("through a record\n%s\nwithout\n%s", got, want)
	}
}

// A file is judged as what is in it, and one that was cut off is not judged.
func TestCheckFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "run.jsonl.gz")
	h, entries := play(t, sim.Even, false, 1)
	w, err := record.Create(name, h)
	testkit.Must(t, err)
	for _, e := range entries {
		testkit.Must(t, w.Write(e))
	}
	testkit.Must(t, w.Close())
	r, err := judge.CheckFile(name)
	testkit.Must(t, err)
	if got, want := fmt.Sprintf("%+v", r), fmt.Sprintf("%+v", judge.Judged(t, h, entries)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	testkit.Must(t, os.Truncate(name, 2000))
	if _, err := judge.CheckFile(name); !errors.Is(err, record.ErrTruncated) {
		t.Errorf("cut off: %v", err)
	}
	if _, err := judge.CheckFile(name + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}
