package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// order is the addresses of the logs' requests, as they are asked about.
func order(t *testing.T, logs ...Log) (addresses []string, r *run) {
	t.Helper()
	r = started(t, t.Context(), oneAMinute(t), logs...)
	for {
		q := r.merger.next()
		if q == nil {
			return addresses, r
		}
		addresses = append(addresses, q.values[r.reader.parser.layout.index("remote_address")])
	}
}

// Lines are sorted by time; those of the same time stay as they are.
func TestLinesAreSorted(t *testing.T) {
	log := line("c", "/", 5) + line("a", "/", 1) + line("d", "/", 5) + line("b", "/", 1) + line("e", "/", 9)
	if got, _ := order(t, logOf("1", log)); !slices.Equal(got, []string{"a", "b", "c", "d", "e"}) {
		t.Errorf("the order is %v", got)
	}
}

// Logs are merged by time, whatever the order in which they are given: of several servers, and rotated.
func TestLogsAreMerged(t *testing.T) {
	first := line("a", "/", 1) + line("c", "/", 3) + line("b", "/", 2)
	second := line("e", "/", 5) + line("d", "/", 4)
	between := line("a2", "/", 1.5) + line("d2", "/", 4.5) + line("f", "/", 99)
	for _, logs := range [][]string{{first, second, between}, {second, between, first}, {between, compressed(t, second),
		compressed(t, first)}} {
		var all []Log
		for i, text := range logs {
			all = append(all, logOf(fmt.Sprint(i), text))
		}
		if got, _ := order(t, all...); !slices.Equal(got, []string{"a", "a2", "b", "c", "d", "d2", "e", "f"}) {
			t.Errorf("the order is %v", got)
		}
	}
}

// The window reaches so many lines, and no further. What comes later is asked at the time of the request before.
func TestLateRequests(t *testing.T) {
	for behind, late := range map[int]uint64{Window - 1: 0, Window: 1} {
		var log strings.Builder
		for i := range Window + 100 {
			if i == behind {
				log.WriteString(line("late", "/", -1))
			}
			log.WriteString(line("x", "/", float64(i)/1e3))
		}
		run := started(t, t.Context(), options(limited(t, "window: 100ms, requests_per_unit: 1000000")),
			logOf("1", log.String()))
		for last := run.now; run.step(); last = run.now {
			if run.now < last {
				t.Fatalf("%d behind: the clock goes back by %v", behind, time.Duration(last-run.now))
			}
		}
		r := run.report()
		if r.Late != late || r.Requests != Window+101 {
			t.Errorf("%d behind: %d late of %d, want %d", behind, r.Late, r.Requests, late)
		}
		if first := r.First.Sub(noon); (first < 0) != (late == 0) {
			t.Errorf("%d behind: the first is at %v", behind, first)
		}
		if r.Rules[0].Peaks.Max > 120 {
			t.Errorf("%d behind: peaks %+v", behind, r.Rules[0].Peaks)
		}
	}
}

// Random displacements, against a plain sort.
func TestWindowSortsLikeSort(t *testing.T) {
	log := traffic(3_000)
	r := started(t, t.Context(), oneAMinute(t), logOf("1", log))
	var got []int64
	for q := r.merger.next(); q != nil; q = r.merger.next() {
		got = append(got, q.at)
	}
	if len(got) != 3_000 || !slices.IsSorted(got) {
		t.Errorf("%d requests, in order: %v", len(got), slices.IsSorted(got))
	}
}

// However long the lines are, a window holds so much of them.
func TestWindowIsBoundedInBytes(t *testing.T) {
	const lines = 1300
	long := line("a", "/"+strings.Repeat("x", 60_000), 1)
	r := started(t, t.Context(), oneAMinute(t), logOf("1", strings.Repeat(long, lines)))
	s, n := r.merger.streams[0], 0
	for q := r.merger.next(); q != nil; q = r.merger.next() {
		if n == 0 && (s.held > maxHeld+len(long) || len(s.window) > maxHeld/len(long)+1 || len(s.window) < 1000) {
			t.Errorf("%d bytes of %d lines are held, want at most %d", s.held, len(s.window), maxHeld)
		}
		if n++; q.values[1] != "a" {
			t.Fatalf("request %d is of %q", n, q.values[1])
		}
	}
	if n != lines || s.held != 0 {
		t.Errorf("%d requests, want %d; %d bytes are held at the end", n, lines, s.held)
	}
}

// Malformed lines are counted, and the first are reported with what they are.
func TestMalformedLines(t *testing.T) {
	var log strings.Builder
	log.WriteString(line("a", "/", 1) + "\n  \nnonsense \x1b[2J\n{\"ts\":1}\n" + strings.Repeat("y", 100_000) + "\n")
	for range 10 {
		log.WriteString(strings.Repeat("z", 1000) + "\n")
	}
	log.WriteString(line("b", "/", 2))
	r := replayed(t, oneAMinute(t), log.String())
	if r.Requests != 2 || r.Malformed != 13 || r.Lines != 17 || len(r.Shown) != problemsShown {
		t.Fatalf("%+v", r)
	}
	for i, want := range []struct {
		line         int
		reason, text string
	}{
		{4, "the user is missing", "nonsense \x1b[2J"},
		{5, "outside the years", `{"ts":1}`},
		{6, "longer than", ""},
		{7, "address", strings.Repeat("z", problemText) + "..."},
	} {
		if p := r.Shown[i]; p.Log != "1" || p.Line != want.line || !strings.Contains(p.Reason, want.reason) ||
			p.Text != want.text {
			t.Errorf("problem %d is %+v, want %+v", i, p, want)
		}
	}
}

// A log that breaks off is reported on as far as it goes, and the others are read.
func TestLogsThatBreakOff(t *testing.T) {
	whole := compressed(t, traffic(2_000))
	broken := errors.New("disk on fire")
	for name, log := range map[string]Log{
		"gzip cut off":        {"x", strings.NewReader(whole[:len(whole)/2])},
		"gzip that is none":   {"x", strings.NewReader("\x1f\x8bnonsense")},
		"a reader that fails": {"x", io.MultiReader(strings.NewReader(line("b", "/", 2)), iotest.ErrReader(broken))},
		"fails at once":       {"x", iotest.ErrReader(broken)},
	} {
		r, err := Run(t.Context(), oneAMinute(t), []Log{log, logOf("y", line("a", "/", 1))}, func(Progress) {})
		if err != nil || len(r.Failed) != 1 || !strings.HasPrefix(r.Failed[0], "x: ") || r.Requests < 1 ||
			r.Interrupted {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// interrupting ends the context after so many bytes, and reads on for ever.
type interrupting struct {
	io.Reader
	after int
	end   context.CancelFunc
}

func (r *interrupting) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if r.after -= n; r.after < 0 {
		r.end()
	}
	return n, err
}

type endless struct{ text string }

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.text)
	e.text = e.text[n:] + e.text[:n]
	return n, nil
}

// Whoever interrupts gets the report on what was read.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := &interrupting{&endless{line("a", "/", 1) + line("b", "/", 2)}, 3 << 20, cancel}
	var reported []Progress
	r, err := Run(ctx, oneAMinute(t), []Log{{"1", log}}, func(p Progress) { reported = append(reported, p) })
	if err != nil || !r.Interrupted || r.Requests != r.Lines || r.Requests < 10_000 || r.Denied != r.Requests-2 {
		t.Fatalf("%+v, %v", r, err)
	}
	last := reported[len(reported)-1]
	if len(reported) < 10 || last.Lines < r.Lines-2*checkLines || last.At != noon.Add(2*time.Second).UnixNano() {
		t.Errorf("reported %d times, at last %+v", len(reported), last)
	}
	if _, err := Run(ctx, oneAMinute(t), []Log{logOf("1", line("a", "/", 1))}, func(Progress) {}); err == nil ||
		!strings.Contains(err.Error(), "interrupted") {
		t.Errorf("interrupted before it began: %v", err)
	}
}

// What is compressed a thousand to one is still read a line at a time: the line takes no memory, beside the table.
func TestGzipBomb(t *testing.T) {
	bomb := compressed(t, strings.Repeat("a", 16<<20)+"\n"+line("a", "/", 1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := replayed(t, oneAMinute(t), bomb)
	runtime.ReadMemStats(&after)
	if r.Malformed != 1 || r.Requests != 1 {
		t.Errorf("%+v", r)
	}
	if allocated := int(after.TotalAlloc - before.TotalAlloc); allocated > 20<<20 {
		t.Errorf("%d bytes allocated", allocated)
	}
}
