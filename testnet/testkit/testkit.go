// Package testkit holds what tests of several packages need: free ports, child processes, connections, logs that can be
// read while they are written, waiting for a condition, virtual time, leaked goroutines, and the race detector. No
// product code imports it.
package testkit

import (
	"context"
	"flag"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Patience is how long a test waits on a busy machine for what takes no time on an idle one.
const Patience = time.Minute

// Must ends a test of any kind, rapid's included, unless err is nil.
func Must(t interface {
	Helper()
	Fatal(args ...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually polls the condition every 3 ms, and fails the test if it does not hold within Patience.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	EventuallyWithin(t, Patience, what, holds)
}

// EventuallyWithin is Eventually with another timeout.
func EventuallyWithin(t testing.TB, timeout time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !holds(); time.Sleep(3 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", timeout, what)
		}
	}
}

// Background runs run until stop is called or the test ends, and waits for its end then. An error of it fails the test.
func Background(t testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("what ran in the background: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// VirtualTime is synctest.Test on one processor. On several, timers of one bubble that fire at once share a context of
// the race detector, and now and then the process crashes (Go 1.26: SIGSEGV in __tsan::SlotLock below
// runtime.unlockAndRun). What the detector finds does not depend on it.
func VirtualTime(t *testing.T, f func(*testing.T)) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, f)
}

// Tenth returns a tenth of n with the race detector, at least 1, and n without. The detector slows simulations down
// tenfold, and finds nothing in the hundredth that it did not find in the tenth. make test runs both.
func Tenth(n int) int {
	if Enabled {
		return max(1, n/10)
	}
	return n
}

// Some returns the first tenth of all with the race detector, at least one, and all without; see Tenth.
func Some[T any](all []T) []T { return all[:Tenth(len(all))] }

// FewerChecks has rapid check a tenth as many examples of each property with the race detector; see Tenth. It is for a
// package that make test tests without the detector as well.
func FewerChecks() {
	const usual = 100
	if err := flag.Set("rapid.checks", strconv.Itoa(Tenth(usual))); err != nil {
		panic(err) // the package does not import rapid
	}
}
