package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// resident is what the process holds in memory now, in bytes.
func resident() (uint64, error) { return statusField("VmRSS:") }

// statusField reads a field in kB of what Linux tells of this process.
func statusField(name string) (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("resident memory can be read on Linux only: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, name); ok {
			kb, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no %s", name)
}

// watch looks for the most memory that the process holds.
type watch struct {
	end  chan struct{}
	done chan struct{}
	most uint64
	err  error
	own  bool // the kernel's own maximum starts here
}

func startWatch() *watch {
	w := &watch{end: make(chan struct{}), done: make(chan struct{})}
	w.own = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) == nil // resets VmHWM
	go func() {
		defer close(w.done)
		ticks := time.NewTicker(100 * time.Millisecond)
		defer ticks.Stop()
		for {
			rss, err := resident()
			if err != nil {
				w.err = err
				return
			}
			w.most = max(w.most, rss)
			select {
			case <-w.end:
				return
			case <-ticks.C:
			}
		}
	}()
	return w
}

// stop returns the most since the start, in bytes.
func (w *watch) stop() (uint64, error) {
	close(w.end)
	<-w.done
	if w.err == nil && w.own {
		high, err := statusField("VmHWM:")
		w.most, w.err = max(w.most, high), err
	}
	return w.most, w.err
}
