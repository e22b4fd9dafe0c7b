// Package bubble runs tests on virtual time.
package bubble

import (
	"runtime"
	"testing"
	"testing/synctest"
)

// Test is synctest.Test on one processor. With the race detector, timers of one bubble that fire on two processors at once share a
// context of the detector that only one of them may use, and now and then the process crashes in it (seen with Go 1.26: SIGSEGV in
// __tsan::SlotLock below runtime.unlockAndRun). On one processor they cannot; what the detector finds does not depend on it.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, f)
}
