package respapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
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

// Rates of more than one in a millisecond come back as fast as they say, but for parts of a nanosecond.
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
		left := int64(time.Second/2) / (int64(time.Second) / rate)
		if got, want := ask(0), fmt.Sprintf("[0 %d %d -1 1]", rate, left); got != want {
			t.Errorf("half a second later: %s, want %s", got, want)
		}
	}
}

func TestThrottleKeepsKeysApart(t *testing.T) {
	s := New(newBank(), quiet())
	for _, key := range []string{"a", "b", "", "a\x00", "\x00", "\x00\x00", "\x00\x01a"} {
		if got := throttled(t, s, key, "0", "1", "10"); got[:2] != "[0" {
			t.Errorf("the first of %q: %s", key, got)
		}
		if got := throttled(t, s, key, "0", "1", "10"); got[:2] != "[1" {
			t.Errorf("the second of %q: %s", key, got)
		}
	}
}

// A key whose numbers change keeps its debt.
func TestThrottleKeepsDebt(t *testing.T) {
	s := New(newBank(), quiet())
	for _, tt := range []struct{ numbers, want string }{
		{"15 30 60 16", "[0 16 0 -1 32]"},
		{"15 30 60", "[1 16 0 2 32]"},
		{"9 1 1", "[1 10 0 23 32]"},            // 10 s would hold 10 tokens of a second: 32 s are owed
		{"9 1 1 0", "[1 10 0 22 32]"},          // and a peek says so
		{"99 1 1", "[0 100 67 -1 33]"},         // there is room for 100 s
		{"999 1 3600", "[0 1000 998 -1 3633]"}, // in a class of its own
		{"99 1 1", "[1 100 0 3534 3633]"},      // and back
		{"99 1 1 -3600", "[0 100 67 -1 33]"},
	} {
		if got := throttled(t, s, append([]string{"k"}, strings.Fields(tt.numbers)...)...); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.numbers, got, tt.want)
		}
	}
}

func TestThrottleRefuses(t *testing.T) {
	const noInteger = "-Cell error: Store error: Couldn't parse as integer: "
	const tooLarge = "-ERR count and period are negative or too large here: want 1 or more, and a bucket that is " +
		"full again within 68 years"
	b := newBank()
	s := New(b, quiet())
	for _, tt := range []struct {
		words []string
		want  string
	}{
		{[]string{}, "-" + usage},
		{[]string{"k", "1", "1"}, "-" + usage},
		{[]string{"k", "1", "1", "1", "1", "1"}, "-" + usage},
		{[]string{"k", "x", "1", "1"}, noInteger + "x"},
		{[]string{"k", "1", "1.5", "1"}, noInteger + "1.5"},
		{[]string{"k", "1", "1", ""}, noInteger},
		{[]string{"k", "1", "1", "1", "9223372036854775808"}, noInteger + "9223372036854775808"},
		{[]string{"k", "1", "0", "1"}, "-Cell error: Store error: Zero rates are not supported"},
		{[]string{"k", "1", "1", "0"}, "-Cell error: Store error: Zero rates are not supported"},
		{[]string{"k", "1", "2000000000", "1"}, "-Cell error: Store error: Zero rates are not supported"},
		{[]string{"k", "1", "1", "1", "-1"}, "-Cell error: Store error: Error while setting key expire"},
		{[]string{"k", "1", "-5", "1"}, tooLarge},
		{[]string{"k", "1", "5", "-1"}, tooLarge},
		{[]string{"k", "9223372036854775807", "1", "1"}, tooLarge},
		{[]string{"k", "9223372036854775806", "1", "1"}, tooLarge},
		{[]string{"k", "1", "1", "9223372036854775807"}, tooLarge},
		{[]string{"k", "69", "1", "31622400"}, tooLarge},
	} {
		if got := throttled(t, s, tt.words...); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.words, got, tt.want)
		}
	}
	if keys := b.table.Stats().Keys; keys != 0 {
		t.Errorf("%d keys are held", keys)
	}
	for words, want := range map[string]string{
		"a 1 1 1 9223372036854775807": "[1 2 2 -1 0]",
		"b 67 1 31622400":             "[0 68 67 -1 31622400]",
		"c +67 01 31622400":           "[0 68 67 -1 31622400]",
		"n -1 1 1":                    "[1 0 0 -1 0]",
		"n -1 1 1 0":                  "[0 0 0 -1 0]",
		"n -5 1 1 0":                  "[1 -4 0 -1 0]",
		"n -5 1 1":                    "[1 -4 0 -1 0]",
	} {
		if got := throttled(t, New(b, quiet()), strings.Fields(words)...); got != want {
			t.Errorf("%s: %s, want %s", words, got, want)
		}
	}
}

// What a decision says that is not in the table's power: one that is let pass by its mode.
func TestThrottleInShadowMode(t *testing.T) {
	d := counters.Decision{Allowed: true, Waived: true, RetryAfter: time.Minute, ResetAfter: 1}
	if got := throttled(t, New(fixed(d), quiet()), "k", "4", "1", "1"); got != "[0 5 4 -1 0]" {
		t.Errorf("waived: %s", got)
	}
}

var noon = time.Unix(1_700_000_000, 0)
