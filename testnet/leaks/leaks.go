// Package leaks finds goroutines that tests have left running.
package leaks

import (
	"testing"

	"go.uber.org/goleak"
)

// Known are goroutines of libraries that outlive what they were started for by some seconds, and no more.
var Known = []goleak.Option{
	// memberlist: probes that are under way when it shuts down.
	goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"),
	goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).sendPingAndWaitForAck"),
	goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).handleIndirectPing.func2"),
	// go-redis: after a number of failed dials it tries in the background, and notices a second late that it was closed.
	goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
}

// Main runs the tests of a package and fails if they leave anything else running: func TestMain(m *testing.M) { leaks.Main(m) }.
func Main(m *testing.M) { goleak.VerifyTestMain(m, Known...) }

// Check fails the test if it leaves anything else running: defer leaks.Check(t)().
func Check(t *testing.T) func() {
	t.Helper()
	before := goleak.IgnoreCurrent()
	return func() { goleak.VerifyNone(t, append([]goleak.Option{before}, Known...)...) }
}
