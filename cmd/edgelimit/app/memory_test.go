package app

import (
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestServeLimitsItsMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	t.Setenv("GOMEMLIMIT", "1TiB")
	if limitMemory(1<<30, nil)(); debug.SetMemoryLimit(-1) != before {
		t.Error("it goes over what the user set")
	}
	t.Setenv("GOMEMLIMIT", "")
	testkit.VirtualTime(t, func(t *testing.T) {
		var connections atomic.Int64
		stop := limitMemory(1<<30, func() int { return int(connections.Load()) })
		for _, tt := range []struct{ connections, steps int64 }{{0, 0}, {255, 0}, {256, 1}, {511, 1}, {10_000, 39},
			{300, 1}, {0, 0}} {
			connections.Store(tt.connections)
			time.Sleep(connectionsInterval)
			synctest.Wait()
			if got, want := debug.SetMemoryLimit(-1), int64(1<<30+1<<30/10+96<<20)+tt.steps*256*24<<10; got != want {
				t.Errorf("with %d connections limited to %d, want %d", tt.connections, got, want)
			}
		}
		stop()
		connections.Store(10_000)
		time.Sleep(2 * connectionsInterval)
		if got := debug.SetMemoryLimit(-1); got != 1<<30+1<<30/10+96<<20 {
			t.Errorf("after the end limited to %d", got)
		}
	})
}
