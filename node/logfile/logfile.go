// Package logfile appends lines to a file that others rename, remove or read meanwhile, as logrotate does.
package logfile

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/edgelimit/edgelimit/node/limits"
)

// Stdout as the name of a file is standard output.
const Stdout = "stdout"

const (
	// flushInterval is how long a line may be in memory only.
	flushInterval = time.Second
	bufferSize    = 64 << 10
	// maxPending is how many bytes of lines wait in memory for a slow write.
	maxPending = 1 << 20
	// maxStall is how long a write may hold up others; one to a named pipe whose reader has stopped fails then.
	maxStall = 50 * time.Millisecond
	// maxClose is how long Close waits for a write at hand, and then for its own.
	maxClose = 500 * time.Millisecond
)

// errStuck is why lines are dropped while a write does not end.
var errStuck = errors.New("an earlier write does not end: does anybody read the pipe?")

// File is a log of lines. It is safe for concurrent use. A write that does not end holds up none of its methods.
type File struct {
	name, what string
	log        *slog.Logger
	failed     atomic.Uint64
	warning    limits.OncePerMinute

	// busy has room while nobody writes. Who fills it owns file and written until it is empty again.
	busy    chan struct{}
	file    *os.File
	written []byte

	mu      sync.Mutex // not held during a write
	pending []byte     // lines in memory, of up to maxPending, or one longer line
	line    []byte
	stuck   bool // the write at hand has been waited for in vain
	closed  bool
}

// Open opens a file for appending, and makes it with mode 0640 if it is missing. what names it in the log. The caller
// calls Close.
func Open(name, what string, log *slog.Logger) (*File, error) {
	f := &File{name: name, what: what, log: log, busy: make(chan struct{}, 1)}
	file, err := f.open()
	if err != nil {
		return nil, err
	}
	f.file = file
	return f, nil
}

func (f *File) open() (*os.File, error) {
	if f.name == Stdout {
		return os.Stdout, nil
	}
	// Without O_NONBLOCK a named pipe would be waited for until somebody reads.
	return os.OpenFile(f.name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, 0o640)
}

// Run writes what is in memory once a second until ctx ends, and before that calls collect, which may add lines; nil:
// nothing.
func (f *File) Run(ctx context.Context, collect func()) {
	ticker := time.NewTicker(flushInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if collect != nil {
				collect()
			}
			f.Flush()
		}
	}
}

// Flush writes what is in memory. Later lines go to the file that has the name then: one that was renamed is left. It
// waits for a moment, after which a slow write goes on without it.
func (f *File) Flush() {
	f.mu.Lock()
	done := f.handOver(maxStall, false)
	f.mu.Unlock()
	_ = endsWithin(done, maxStall)
}

// handOver has what is in memory written by another goroutine, for which an earlier write must end, and returns what
// is closed when it is. It returns nil if the earlier one does not end in time; the next calls do not wait for that
// one. The lock is held.
func (f *File) handOver(patience time.Duration, last bool) (done chan struct{}) {
	select {
	case f.busy <- struct{}{}:
	default:
		if f.stuck || patience == 0 {
			return nil
		}
		select {
		case f.busy <- struct{}{}:
		case <-time.After(patience):
			f.stuck = true
			return nil
		}
	}
	f.stuck = false
	f.pending, f.written = f.written[:0], f.pending
	done = make(chan struct{})
	go func() {
		defer close(done)
		f.write(last)
	}()
	return done
}

func endsWithin(done <-chan struct{}, patience time.Duration) bool {
	if done == nil {
		return false
	}
	select {
	case <-done:
		return true
	case <-time.After(patience):
		return false
	}
}

// write writes what was handed over, and opens the file that has the name now or, with the last lines, closes it.
func (f *File) write(last bool) {
	_ = f.file.SetWriteDeadline(time.Now().Add(maxStall)) // a named pipe blocks without; standard output may have none
	if _, err := f.file.Write(f.written); err != nil && len(f.written) > 0 {
		f.fail(err)
	}
	if last {
		if f.file != os.Stdout {
			_ = f.file.Close()
		}
		return // busy for ever: nobody writes to a closed file
	}
	if f.name != Stdout && !isSame(f.file, f.name) {
		if file, err := f.open(); err != nil {
			f.fail(err)
		} else {
			_ = f.file.Close()
			f.file = file
		}
	}
	<-f.busy
}

func isSame(file *os.File, name string) bool {
	opened, err := file.Stat()
	named, missing := os.Stat(name)
	return err == nil && missing == nil && os.SameFile(opened, named)
}

// fail takes note of an error, with which lines are lost.
func (f *File) fail(err error) {
	f.failed.Add(1)
	if f.warning.Due(time.Now()) {
		f.log.Warn("the "+f.what+" cannot be written: lines are lost", "file", f.name, "error", err)
	}
}

// Add adds the line that format appends to b, without its end. While a write does not end, the lines that no longer fit
// into memory are dropped.
func (f *File) Add(format func(b []byte) []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.line = append(format(f.line[:0]), '\n')
	switch size := len(f.pending) + len(f.line); {
	case len(f.pending) == 0 || size <= bufferSize:
	case size <= maxPending:
		f.handOver(0, false)
	case f.handOver(maxStall, false) == nil:
		f.fail(errStuck)
		f.pending = f.pending[:0]
	}
	f.pending = append(f.pending, f.line...)
}

// Failures returns how many writes have failed or were given up, each of which may have lost many lines.
func (f *File) Failures() uint64 { return f.failed.Load() }

// Close writes what is in memory, and closes the file. A write that does not end within a second is left alone.
func (f *File) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.closed, f.stuck = true, false
	if !endsWithin(f.handOver(maxClose, true), maxClose) {
		f.fail(errStuck)
	}
}
