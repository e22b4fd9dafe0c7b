package testkit

import (
	"testing"

	"go.uber.org/goleak"
)

// KnownGoroutines are goroutines of libraries that run on for some seconds.
var KnownGoroutines = []goleak.Option{
	// memberlist: probes in flight at its shutdown.
	goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"),
	goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).sendPingAndWaitForAck"),
	goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).handleIndirectPing.func2"),
	// go-redis: after failed dials it retries in the background, and notices Close a second late.
	goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
}

// MainWithoutLeaks runs the tests of a package and fails if they leave a goroutine running. Call it from TestMain.
func MainWithoutLeaks(m *testing.M) { goleak.VerifyTestMain(m, KnownGoroutines...) }

// NoLeaks fails the test if it leaves a goroutine running: defer testkit.NoLeaks(t)().
func NoLeaks(t *testing.T) func() {
	t.Helper()
	before := goleak.IgnoreCurrent()
	return func() { goleak.VerifyNone(t, append([]goleak.Option{before}, KnownGoroutines...)...) }
}
