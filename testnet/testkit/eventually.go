package testkit

import (
	"testing"
	"time"
)

// Patience is how long a test waits on a busy machine for what takes no time on an idle one.
const Patience = time.Minute

// Eventually polls the condition every 3 ms, and fails the test if it does not hold within Patience.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	EventuallyWithin(t, Patience, what, holds)
}

// EventuallyWithin is Eventually with another timeout.
func EventuallyWithin(t testing.TB, timeout time.Duration, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(3 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.After(timeout); !holds(); {
		select {
		case <-deadline:
			t.Fatalf("not within %v: %s", timeout, what)
		case <-ticker.C:
		}
	}
}
