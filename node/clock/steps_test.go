package clock

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// machineClock is a machine whose clocks the test sets, with a clock that follows them every second.
type machineClock struct {
	mono int64
	set  time.Duration // how far the wall clock was set since the start
	line *line
	steps
	ahead time.Duration // of the other nodes, before anything was set
	alone bool
}

const began = 1_800_000_000 * int64(time.Second)

func newMachineClock() *machineClock {
	return &machineClock{mono: 1, line: &line{from: 1, at: began}, alone: true}
}

func (w *machineClock) wall() int64 { return began + w.mono - 1 + int64(w.set) }

// departed returns how far the clock is ahead of one that is never set.
func (w *machineClock) departed() time.Duration {
	return time.Duration(w.line.now(w.mono) - (began + w.mono - 1))
}

// second advances by a second and follows.
func (w *machineClock) second() event {
	w.mono += int64(time.Second)
	next, what, _ := w.follow(w.line, w.wall(), w.mono, w.ahead+w.departed(), !w.alone)
	if next != nil {
		w.line = next
	}
	return what
}

// seconds advances by n seconds and returns the events.
func (w *machineClock) seconds(n int) (events []event) {
	for range n {
		if what := w.second(); what != none {
			events = append(events, what)
		}
	}
	return events
}

func expectEvents(t *testing.T, what string, got []event, want ...event) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: got %v, want %v", what, got, want)
		}
	}
}

func near(a, b time.Duration) bool { return (a - b).Abs() <= minStep }

// Small steps are corrected at 1/50 of the time, without an event.
func TestSmallStepsAreSlewed(t *testing.T) {
	for _, step := range []time.Duration{2 * time.Second, -2 * time.Second, 300 * time.Millisecond,
		-300 * time.Millisecond} {
		w := newMachineClock()
		w.seconds(5)
		w.set = step
		w.seconds(1) // it looks
		for i := 1; i < 100; i++ {
			expectEvents(t, "slewing", w.seconds(1))
			want := time.Duration(i) * time.Second / slewRate
			if want = min(want, step.Abs()); step < 0 {
				want = -want
			}
			if got := w.departed(); !near(got, want) {
				t.Fatalf("%d s after a step by %v: %v made up for, want %v", i, step, got, want)
			}
		}
		w.seconds(10)
		if got := w.departed(); !near(got, step) {
			t.Errorf("at last %v of a step by %v is made up for", got, step)
		}
	}
}

// The clock jumps at once after ten seconds. Two events report it.
func TestLargeStepsLastFirst(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour, 3 * time.Second, -3 * time.Second} {
		w := newMachineClock()
		w.set = step
		expectEvents(t, "at first", w.seconds(10), stepped)
		if got := w.departed(); got != 0 {
			t.Fatalf("it moved by %v too early", got)
		}
		expectEvents(t, "after ten seconds", w.seconds(1), jumped)
		if got := w.departed(); got != step {
			t.Fatalf("it moved by %v, want %v", got, step)
		}
		expectEvents(t, "then", w.seconds(100))
	}
}

// What is put right in time does nothing.
func TestAStepThatIsTakenBackDoesNothing(t *testing.T) {
	w := newMachineClock()
	w.set = time.Hour
	expectEvents(t, "set", w.seconds(9), stepped)
	w.set = 0
	expectEvents(t, "set back", w.seconds(30), returned)
	w.set = -time.Minute
	expectEvents(t, "set again", w.seconds(5), stepped)
	w.set = -2 * time.Minute // waiting begins again
	expectEvents(t, "and again", w.seconds(10), stepped)
	if got := w.departed(); got != 0 {
		t.Errorf("it moved by %v", got)
	}
	expectEvents(t, "at last", w.seconds(1), jumped)
}

// Between two jumps there is an hour, or a window could be admitted more than twice.
func TestJumpsAreRare(t *testing.T) {
	w := newMachineClock()
	w.set = time.Hour
	w.seconds(12)
	w.set = 2 * time.Hour
	expectEvents(t, "the second step", w.seconds(3500), stepped)
	if got := w.departed(); got != time.Hour {
		t.Fatalf("it moved by %v", got)
	}
	expectEvents(t, "an hour after the first", w.seconds(100), jumped)
	if got := w.departed(); got != 2*time.Hour {
		t.Errorf("it moved by %v", got)
	}
}

// Where other nodes agree with the clock, a jump away from them waits for ten minutes; one towards them does not.
func TestOthersDelayAJump(t *testing.T) {
	w := newMachineClock()
	w.alone = false
	w.set = time.Hour
	expectEvents(t, "away from the others", w.seconds(600), disputed)
	if got := w.departed(); got != 0 {
		t.Fatalf("it moved by %v", got)
	}
	expectEvents(t, "after ten minutes", w.seconds(1), jumped)

	w = newMachineClock()
	w.alone, w.ahead = false, -time.Hour // it was wrong from the beginning, and now the machine's is right
	w.set = time.Hour
	expectEvents(t, "towards the others", w.seconds(11), stepped, jumped)
}

// Whatever the machine's clock does, the time goes on, at most 2 % too fast or too slow, and jumps at most once an
// hour.
func TestTimeGoesOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newMachineClock()
		w.alone = rapid.Bool().Draw(t, "alone")
		last, lastJump := w.line.now(w.mono), int64(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			w.set += time.Duration(rapid.OneOf(
				rapid.Just(int64(0)), rapid.Int64Range(-3e9, 3e9), rapid.Int64Range(-4e12, 4e12)).Draw(t, "step"))
			for range rapid.IntRange(1, 60).Draw(t, "seconds") {
				leap := w.second() == jumped
				now := w.line.now(w.mono)
				if passed := time.Duration(now - last); !leap && (passed-time.Second).Abs() > time.Second/slewRate+1 {
					t.Fatalf("in a second %v passed", passed)
				}
				last = now
				if !leap {
					continue
				}
				if lastJump != 0 && w.mono-lastJump < int64(time.Hour) {
					t.Fatalf("two jumps in %v", time.Duration(w.mono-lastJump))
				}
				lastJump = w.mono
			}
		}
	})
}

// A client that keeps to 95 % of its limit all the time notices nothing of a clock that is put right by two seconds,
// back or forth; one that asks for all it can get gets no more than 2 % more of it.
func TestAStepRejectsNobody(t *testing.T) {
	for _, step := range []time.Duration{2 * time.Second, -2 * time.Second} {
		limit, err := counters.NewLimit(counters.NewMeter("r", counters.SlidingWindow, 10*time.Second), 100)
		testkit.Must(t, err)
		table := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
		w := newMachineClock()
		var greedy oracle.Rolling
		denied := 0
		// 95 requests in ten seconds are one in 105 ms; the greedy client asks each time twice
		for i := range int64(20 * 200) {
			w.mono = 1 + i*int64(105*time.Millisecond)
			if i == 500 {
				w.set = step
			}
			if i%10 == 9 {
				if next, _, _ := w.follow(w.line, w.wall(), w.mono, 0, false); next != nil {
					w.line = next
				}
			}
			now := w.line.now(w.mono)
			if !table.Take(limit, 1, 1, now).Allowed {
				denied++
			}
			for range 2 {
				if table.Take(limit, 2, 1, now).Allowed {
					greedy.Add(w.mono, 1)
				}
			}
		}
		if denied > 0 {
			t.Errorf("a step by %v: %d denials", step, denied)
		}
		if peak := greedy.Peak(10 * time.Second); peak > 112 { // some 110 is what the algorithm admits by itself
			t.Errorf("a step by %v: %d of 100 were admitted in a window", step, peak)
		}
		if got := w.departed(); !near(got, step) {
			t.Errorf("a step by %v: %v is made up for", step, got)
		}
	}
}
