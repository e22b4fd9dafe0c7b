package netem

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestScheduledPacketsArriveOnTime(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		var f delayedPackets
		start := time.Now()
		delivered := make(chan time.Duration, 3)
		for _, delay := range []time.Duration{20 * ms, 10 * ms, 0} {
			if !f.schedule(delay, func() { delivered <- time.Since(start) }) {
				t.Fatal("launch refused")
			}
		}
		if len(delivered) != 1 {
			t.Fatalf("%d delivered before launch returned, want the one without delay", len(delivered))
		}
		for _, want := range []time.Duration{0, 10 * ms, 20 * ms} {
			if got := <-delivered; got != want {
				t.Errorf("delivered after %v, want %v", got, want)
			}
		}
		if n := f.cancel(); n != 0 {
			t.Errorf("%d were still delayed", n)
		}
	})
}

func TestCancelStopsDelayedPackets(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		var f delayedPackets
		var delivered atomic.Int32
		for _, delay := range []time.Duration{ms, time.Second, time.Hour} {
			f.schedule(delay, func() { delivered.Add(1) })
		}
		time.Sleep(ms)
		synctest.Wait()
		if stopped := f.cancel(); stopped != 2 {
			t.Errorf("stopped %d, want 2", stopped)
		}
		if f.schedule(0, func() { delivered.Add(1) }) || f.schedule(ms, func() { delivered.Add(1) }) {
			t.Error("launched after cancel")
		}
		time.Sleep(2 * time.Hour)
		if n := delivered.Load(); n != 1 {
			t.Errorf("%d delivered, want 1", n)
		}
	})
}

func TestCancelWaitsForDeliveries(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		var f delayedPackets
		gate, cancelled := make(chan struct{}), make(chan int, 1)
		f.schedule(ms, func() { <-gate })
		time.Sleep(ms)
		synctest.Wait()
		go func() { cancelled <- f.cancel() }()
		synctest.Wait()
		if len(cancelled) != 0 {
			t.Error("cancel returned while a delivery was running")
		}
		close(gate)
		if n := <-cancelled; n != 0 {
			t.Errorf("stopped %d, want 0: it was too late", n)
		}
	})
}

func TestDrainWaits(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		var f delayedPackets
		start := time.Now()
		var delivered atomic.Int32
		f.schedule(30*ms, func() { delivered.Add(1) })
		f.schedule(50*ms, func() { delivered.Add(1) })
		f.drain()
		if took := time.Since(start); took != 50*ms || delivered.Load() != 2 {
			t.Errorf("land returned after %v with %d down, want 50ms and 2", took, delivered.Load())
		}
		if f.schedule(0, func() {}) {
			t.Error("launched after land")
		}
	})
}

func TestPause(t *testing.T) {
	for _, test := range []struct {
		name     string
		d, limit time.Duration
		stop     time.Duration // when done is closed; negative: never
		took     time.Duration
		err      error
	}{
		{"no limit", 10 * ms, 0, -1, 10 * ms, nil},
		{"within the limit", 10 * ms, 20 * ms, -1, 10 * ms, nil},
		{"exactly the limit", 10 * ms, 10 * ms, -1, 10 * ms, nil},
		{"past the limit", 20 * ms, 10 * ms, -1, 10 * ms, os.ErrDeadlineExceeded},
		{"limit already over", 20 * ms, -1, -1, 0, os.ErrDeadlineExceeded},
		{"nothing to wait for", 0, 0, -1, 0, nil},
		{"nothing to wait for, too late", 0, -1, -1, 0, os.ErrDeadlineExceeded},
		{"ended", 20 * ms, 0, 5 * ms, 5 * ms, net.ErrClosed},
		{"ended before", 0, 0, 0, 0, net.ErrClosed},
		{"for ever", forever, 30 * time.Second, -1, 30 * time.Second, os.ErrDeadlineExceeded},
	} {
		t.Run(test.name, func(t *testing.T) {
			testkit.VirtualTime(t, func(t *testing.T) {
				done := make(chan struct{})
				if test.stop == 0 {
					close(done)
				} else if test.stop > 0 {
					time.AfterFunc(test.stop, func() { close(done) })
				}
				start := time.Now()
				err := pause(test.d, test.limit, done)
				if took := time.Since(start); took != test.took || !errors.Is(err, test.err) {
					t.Errorf("returned %v after %v, want %v after %v", err, took, test.err, test.took)
				}
			})
		})
	}
}
