package respapi

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/limits"
)

// throttled asks a server and returns its reply.
func throttled(t *testing.T, s *Server, words ...string) string {
	t.Helper()
	return replies(t, converse(s, array(append([]string{"CL.THROTTLE"}, words...)...)))[0]
}

func TestThrottleAsDocumented(t *testing.T) {
	s := New(newBank(), quiet())
	if got := throttled(t, s, "user123", "15", "30", "60"); got != "[0 16 15 -1 2]" {
		t.Errorf("a new key: %s", got)
	}
	if got := throttled(t, s, "user123", "15", "30", "60", "2"); got != "[0 16 13 -1 6]" {
		t.Errorf("two more: %s", got)
	}
}

// TestThrottleVectors holds the server against the states that redis-cell's own test goes through: five at once, one
// more each second. Its waits are rounded up to seconds here, as its replies are.
func TestThrottleVectors(t *testing.T) {
	b := newBank()
	s := New(b, quiet())
	start := b.now.Load()
	for i, tt := range []struct {
		at       time.Duration
		quantity int
		want     string
	}{
		{0, 6, "[1 5 5 -1 0]"}, // more than the bucket ever holds
		{0, 1, "[0 5 4 -1 1]"},
		{0, 1, "[0 5 3 -1 2]"},
		{0, 1, "[0 5 2 -1 3]"},
		{0, 1, "[0 5 1 -1 4]"},
		{0, 1, "[0 5 0 -1 5]"},
		{0, 1, "[1 5 0 1 5]"},
		{0, 0, "[0 5 0 -1 5]"}, // a peek is never limited
		{3000 * time.Millisecond, 1, "[0 5 2 -1 3]"},
		{3100 * time.Millisecond, 1, "[0 5 1 -1 4]"}, // 3.9 s
		{4000 * time.Millisecond, 1, "[0 5 1 -1 4]"},
		{8000 * time.Millisecond, 1, "[0 5 4 -1 1]"},
		{9500 * time.Millisecond, 1, "[0 5 4 -1 1]"},
		{9500 * time.Millisecond, 0, "[0 5 4 -1 1]"},
		{9500 * time.Millisecond, 2, "[0 5 2 -1 3]"},
		{9500 * time.Millisecond, 5, "[1 5 2 3 3]"},
		{9500 * time.Millisecond, 2, "[0 5 0 -1 5]"},
		{9999 * time.Millisecond, 1, "[1 5 0 1 5]"}, // 501 ms and 4.501 s
		{10500 * time.Millisecond, 1, "[0 5 0 -1 5]"},
	} {
		b.now.Store(start + int64(tt.at))
		if got := throttled(t, s, "foo", "4", "1", "1", fmt.Sprint(tt.quantity)); got != tt.want {
			t.Errorf("%d: %d at %v: %s, want %s", i, tt.quantity, tt.at, got, tt.want)
		}
	}
}

func TestThrottlePeeksWithoutATrace(t *testing.T) {
	b := newBank()
	s := New(b, quiet())
	if got := throttled(t, s, "k", "15", "30", "60", "0"); got != "[0 16 16 -1 0]" {
		t.Errorf("of a new key: %s", got)
	}
	if keys := b.table.Stats().Keys; keys != 0 {
		t.Errorf("%d keys are held", keys)
	}
}

// Rates of more than one in a millisecond come back as fast as they say.
func TestThrottleFastRates(t *testing.T) {
	for _, rate := range []int64{1001, 2000, 999_983, 10_000_000} {
		b := newBank()
		s := New(b, quiet())
		ask := func(quantity int64) string {
			t.Helper()
			return throttled(t, s, "k", fmt.Sprint(rate-1), fmt.Sprint(rate), "1", fmt.Sprint(quantity))
		}
		if got, want := ask(rate), fmt.Sprintf("[0 %d 0 -1 1]", rate); got != want {
			t.Fatalf("all at once: %s, want %s", got, want)
		}
		if got, want := ask(1), fmt.Sprintf("[1 %d 0 1 1]", rate); got != want {
			t.Errorf("one more: %s, want %s", got, want)
		}
		b.now.Add(int64(time.Second / 2))
		if got, want := ask(0), fmt.Sprintf("[0 %d %d -1 1]", rate, rate/2); got != want {
			t.Errorf("half a second later: %s, want %s", got, want)
		}
	}
}

func TestThrottleKeepsKeysAndLimitsApart(t *testing.T) {
	s := New(newBank(), quiet())
	for _, words := range [][]string{
		{"a", "0", "1", "10"}, {"b", "0", "1", "10"}, {"", "0", "1", "10"}, {"a\x00", "0", "1", "10"},
		{"a", "0", "2", "10"}, {"a", "0", "1", "20"},
	} {
		if got := throttled(t, s, words...); got[:2] != "[0" {
			t.Errorf("the first of %q: %s", words, got)
		}
		if got := throttled(t, s, words...); got[:2] != "[1" {
			t.Errorf("the second of %q: %s", words, got)
		}
	}
}

func TestThrottleRefuses(t *testing.T) {
	const notInteger = "-ERR value is not an integer or out of range"
	b := newBank()
	s := New(b, quiet())
	for _, tt := range []struct {
		words []string
		want  string
	}{
		{[]string{}, "-ERR wrong number of arguments for 'cl.throttle' command"},
		{[]string{"k", "1", "1"}, "-ERR wrong number of arguments for 'cl.throttle' command"},
		{[]string{"k", "1", "1", "1", "1", "1"}, "-ERR wrong number of arguments for 'cl.throttle' command"},
		{[]string{"k", "x", "1", "1"}, notInteger},
		{[]string{"k", "1", "1.5", "1"}, notInteger},
		{[]string{"k", "1", "1", ""}, notInteger},
		{[]string{"k", "1", "1", "1", "9223372036854775808"}, notInteger},
		{[]string{"k", "1", "1", "1", "-1"}, "-ERR quantity is -1, want at least 0"},
		{[]string{"k", "-1", "1", "1"}, "-ERR max_burst is -1, want 0 to 1099511627775"},
		{[]string{"k", "1099511627776", "1", "1"}, "-ERR max_burst is 1099511627776, want 0 to 1099511627775"},
		{[]string{"k", "9223372036854775807", "1", "1"},
			"-ERR max_burst is 9223372036854775807, want 0 to 1099511627775"},
		{[]string{"k", "1", "0", "1"}, "-ERR count is 0, want 1 to 1099511627776"},
		{[]string{"k", "1", "-5", "1"}, "-ERR count is -5, want 1 to 1099511627776"},
		{[]string{"k", "1", "1", "0"}, "-ERR period is 0, want 1 to 31622400 seconds"},
		{[]string{"k", "1", "1", "31622401"}, "-ERR period is 31622401, want 1 to 31622400 seconds"},
	} {
		if got := throttled(t, s, tt.words...); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.words, got, tt.want)
		}
	}
	if keys := b.table.Stats().Keys; keys != 0 || s.limits.Len() != 0 {
		t.Errorf("%d keys and %d limits are held", keys, s.limits.Len())
	}
	if got := throttled(t, s, "k", "1099511627775", "1", "31622400"); got[:5] != "-ERR " {
		t.Errorf("a bucket that takes longer than the world to fill: %s", got)
	}
	if got := throttled(t, s, "k", "1", "1", "1", "9223372036854775807"); got != "[1 2 2 -1 0]" {
		t.Errorf("more than can ever be: %s", got)
	}
}

// What a decision says that is not in the table's power: one that is let pass by its mode.
func TestThrottleInShadowMode(t *testing.T) {
	d := counters.Decision{Allowed: true, Waived: true, Limit: 5, RetryAfter: time.Minute, ResetAfter: 1}
	if got := throttled(t, New(fixed(d), quiet()), "k", "4", "1", "1"); got != "[0 5 0 -1 1]" {
		t.Errorf("waived: %s", got)
	}
}

var noon = time.Unix(1_700_000_000, 0)

func mustGet(t *testing.T, l *limits.Keeper[throttleLimit], s throttleLimit, now time.Time) *counters.Limit {
	t.Helper()
	limit, err := l.Charge(s, netip.Addr{}, now)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

func TestThrottleLimits(t *testing.T) {
	l := newLimits(&Options{})
	limit := mustGet(t, l, throttleLimit{15, 30, 60}, noon)
	want := counters.Meter{
		Rule: "%cl.throttle/15/30/60", Algorithm: counters.TokenBucket, Window: time.Minute, Sub: time.Minute,
	}
	if limit.Meter() != want || limit.Max() != 16 || limit.Refill() != 30 {
		t.Errorf("%+v, %d, %d", limit.Meter(), limit.Max(), limit.Refill())
	}
	if mustGet(t, l, throttleLimit{15, 30, 60}, noon.Add(time.Hour)) != limit {
		t.Error("the same numbers make another limit")
	}
	for _, other := range []throttleLimit{{16, 30, 60}, {15, 31, 60}, {15, 30, 61}} {
		if mustGet(t, l, other, noon).Meter() == limit.Meter() {
			t.Errorf("%v shares the meter", other)
		}
	}
}
