package oracle

import (
	"fmt"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Examples that can be followed with a pencil, for what is not a sliding-window counter.

// meterOf is a meter of one sub-window.
func meterOf(a counters.Algorithm, window time.Duration) counters.Meter {
	return counters.Meter{Rule: "edge/per_ip", Algorithm: a, Window: window, Sub: window}
}

func modelOf(t testing.TB, m counters.Meter, largest uint64) *Model {
	t.Helper()
	l, err := counters.NewLimit(m, largest)
	testkit.Must(t, err)
	return NewModel(l)
}

func bucketOf(t testing.TB, a counters.Algorithm, window time.Duration, capacity, refill uint64) *Model {
	t.Helper()
	l, err := counters.LimitConfig{Meter: meterOf(a, window), Max: capacity, Refill: refill}.New()
	testkit.Must(t, err)
	return NewModel(l)
}

// answered is what a request of the cost was answered: "ok" or "no", what remains, retry-after, reset-after, delay.
func answered(m *Model, cost uint64, at time.Duration) string {
	d := m.Take(key, cost, start+int64(at))
	word := "no"
	if d.Allowed {
		word = "ok"
	}
	return fmt.Sprintln(word, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay)
}

type asked struct {
	at   time.Duration
	cost uint64
	want string
}

func wantAnswers(t *testing.T, m *Model, requests []asked) {
	t.Helper()
	for _, r := range requests {
		if got := answered(m, r.cost, r.at); got != r.want+"\n" {
			t.Errorf("%d after %v: %s want %s", r.cost, r.at, got, r.want)
		}
	}
}

// Twice the limit within two seconds: what a fixed window is known for.
func TestFixedWindow(t *testing.T) {
	m := modelOf(t, meterOf(counters.FixedWindow, time.Minute), 5)
	wantAnswers(t, m, []asked{
		{59 * time.Second, 5, "ok 0 0s 1s 0s"},
		{59 * time.Second, 1, "no 0 1s 1s 0s"},
		{time.Minute - 1, 0, "no 0 1ns 1ns 0s"},
		{61 * time.Second, 5, "ok 0 0s 59s 0s"},
		{61 * time.Second, 6, "no 0 -1ns 59s 0s"},
	})
	m.Add(key, m.limit.Meter().Index(start)+2, 3) // the next window has begun elsewhere
	wantAnswers(t, m, []asked{
		{90 * time.Second, 2, "no 0 30s 1m30s 0s"},
		{90 * time.Second, 3, "no 0 1m30s 1m30s 0s"},
		{120 * time.Second, 2, "ok 0 0s 1m0s 0s"},
	})
}

// What was admitted counts for exactly a window, to the nanosecond.
func TestSlidingLog(t *testing.T) {
	l := meterOf(counters.SlidingLog, time.Minute)
	l.Sub = 20 * time.Second
	m := modelOf(t, l, 5)
	wantAnswers(t, m, []asked{
		{1, 2, "ok 3 0s 1m0s 0s"},
		{30 * time.Second, 3, "ok 0 0s 1m0s 0s"},
		{time.Minute, 1, "no 0 1ns 30s 0s"},
		{time.Minute + 1, 1, "ok 1 0s 1m0s 0s"},
		{time.Minute + 1, 4, "no 1 29.999999999s 1m0s 0s"},
	})
	// Known by its sub-window alone, a cost counts from when that begins for a window.
	m = modelOf(t, l, 5)
	m.Add(key, m.limit.Meter().Index(start)+1, 4)
	wantAnswers(t, m, []asked{
		{20*time.Second - 1, 0, "ok 5 0s 0s 0s"},
		{20 * time.Second, 2, "no 1 1m0s 1m0s 0s"},
		{80*time.Second - 1, 2, "no 1 1ns 1ns 0s"},
		{80 * time.Second, 2, "ok 3 0s 1m0s 0s"},
	})
}

// Five tokens, one more every second.
func TestTokenBucket(t *testing.T) {
	wantAnswers(t, bucketOf(t, counters.TokenBucket, time.Second, 5, 1), []asked{
		{0, 3, "ok 2 0s 3s 0s"},
		{500 * time.Millisecond, 3, "no 2 500ms 2.5s 0s"},
		{500 * time.Millisecond, 0, "ok 2 0s 2.5s 0s"},
		{2 * time.Second, 4, "ok 0 0s 5s 0s"},
		{2 * time.Second, 1, "no 0 1s 5s 0s"},
		{2 * time.Second, 6, "no 0 -1ns 5s 0s"},
		{time.Minute, 5, "ok 0 0s 5s 0s"},
	})
	// Three a second: a token takes a third of one, which no clock can tell.
	wantAnswers(t, bucketOf(t, counters.LeakyBucket, time.Second, 3, 3), []asked{
		{0, 1, "ok 2 0s 333.333334ms 0s"},
		{0, 2, "ok 0 0s 1s 0s"},
		{333333333, 1, "no 0 1ns 666.666667ms 0s"},
		{333333334, 1, "ok 0 0s 1s 0s"},
	})
}

// A queue of five, one served every second.
func TestLeakyQueue(t *testing.T) {
	wantAnswers(t, bucketOf(t, counters.LeakyQueue, time.Second, 5, 1), []asked{
		{0, 1, "ok 4 0s 1s 0s"},
		{0, 1, "ok 3 0s 2s 1s"},
		{0, 0, "ok 3 0s 2s 2s"},
		{500 * time.Millisecond, 3, "ok 0 0s 4.5s 1.5s"},
		{500 * time.Millisecond, 1, "no 0 500ms 4.5s 0s"},
		{time.Second, 1, "ok 0 0s 5s 4s"},
	})
}

// Whatever the order in which debits become known, the truth is one.
func TestATruthReplaysInTheOrderOfTime(t *testing.T) {
	m := bucketOf(t, counters.TokenBucket, time.Second, 100, 1)
	m.Charge(key, 4, start+int64(10*time.Second))
	m.Charge(key, 3, start)
	m.Add(key, m.limit.Meter().Index(start)+2, 2) // two seconds later
	for at, want := range map[time.Duration]uint64{
		0: 3, time.Second: 2, 2 * time.Second: 3, 5*time.Second - 1: 1, 5 * time.Second: 0, 10 * time.Second: 4,
		13 * time.Second: 1,
	} {
		if got := m.View(key, start+int64(at)); got != want {
			t.Errorf("after %v: %d, want %d", at, got, want)
		}
	}
	if got := m.Ahead(key, start+int64(time.Second)); got != 6 {
		t.Errorf("%d ahead, want 6", got)
	}
	m.Forget(start + int64(12*time.Second))
	if got := m.View(key, start+int64(13*time.Second)); got != 1 {
		t.Errorf("%d after forgetting, want 1", got)
	}
	m.Forget(start + int64(14*time.Second))
	if len(m.keys) != 0 {
		t.Errorf("kept %v of a full bucket", m.keys)
	}
}
