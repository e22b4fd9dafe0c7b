package netem

import (
	"math"
	"net"
	"os"
	"sync"
	"time"
)

// delayedPackets are the delayed packets of one transport. The zero value is ready. It is safe for concurrent use.
type delayedPackets struct {
	mu     sync.Mutex
	closed bool
	timers map[*time.Timer]struct{}
	wg     sync.WaitGroup // every packet that is not delivered yet
}

// schedule calls deliver after the delay: before it returns if there is none, else from its own goroutine. It returns
// false after cancel or drain, and if f is nil.
func (f *delayedPackets) schedule(delay time.Duration, deliver func()) bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return false
	}
	f.wg.Add(1)
	if delay <= 0 {
		f.mu.Unlock()
		defer f.wg.Done()
		deliver()
		return true
	}
	defer f.mu.Unlock()
	if f.timers == nil {
		f.timers = make(map[*time.Timer]struct{})
	}
	var timer *time.Timer
	timer = time.AfterFunc(delay, func() {
		defer f.wg.Done()
		f.mu.Lock()
		delete(f.timers, timer)
		f.mu.Unlock()
		deliver()
	})
	f.timers[timer] = struct{}{}
	return true
}

// cancel refuses new packets, stops the delayed ones and returns their number. When it returns, no delivery runs.
func (f *delayedPackets) cancel() (stopped int) {
	f.mu.Lock()
	f.closed = true
	for timer := range f.timers {
		if timer.Stop() {
			stopped++
			f.wg.Done()
		}
	}
	clear(f.timers)
	f.mu.Unlock()
	f.wg.Wait()
	return stopped
}

// drain refuses new packets and waits until the delayed ones are delivered.
func (f *delayedPackets) drain() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.wg.Wait()
}

// forever is longer than any delay.
const forever time.Duration = math.MaxInt64

// pause waits for d. A limit other than zero ends it with os.ErrDeadlineExceeded if it is the shorter, done with
// net.ErrClosed.
func pause(d, limit time.Duration, done <-chan struct{}) error {
	var late error
	if limit != 0 && limit < d {
		d, late = max(limit, 0), os.ErrDeadlineExceeded
	}
	select {
	case <-done:
		return net.ErrClosed
	default:
	}
	if d <= 0 {
		return late
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return late
	case <-done:
		return net.ErrClosed
	}
}
