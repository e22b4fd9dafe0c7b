package testkit

import (
	"runtime"
	"testing"
	"testing/synctest"
)

// VirtualTime is synctest.Test on one processor. On several, timers of one bubble that fire at once share a context of
// the race detector, and now and then the process crashes (Go 1.26: SIGSEGV in __tsan::SlotLock below
// runtime.unlockAndRun). What the detector finds does not depend on it.
func VirtualTime(t *testing.T, f func(*testing.T)) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, f)
}
