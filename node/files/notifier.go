package files

import (
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Notifier reports that files may have changed. Without support of the file system it reports nothing. One goroutine
// uses it at a time, except for Hint and Hints.
type Notifier struct {
	hints chan struct{}     // at most one
	fs    *fsnotify.Watcher // nil: not supported
	done  sync.WaitGroup

	log   *slog.Logger
	what  string        // for the log
	poll  time.Duration // for the log
	blind bool          // the log has the warning
}

// NewNotifier returns a notifier, which Close ends. what names the files in the log, and poll says there how often the
// caller looks at them by itself.
func NewNotifier(what string, poll time.Duration, log *slog.Logger) *Notifier {
	n := Silent()
	n.log, n.what, n.poll = log, what, poll
	events, err := fsnotify.NewWatcher()
	if n.note(err); err == nil {
		n.fs = events
		n.done.Go(n.forward)
	}
	return n
}

// Silent returns a notifier that reports only what Hint does.
func Silent() *Notifier { return &Notifier{hints: make(chan struct{}, 1)} }

// Hints receives after changes. Several changes may be one hint.
func (n *Notifier) Hints() <-chan struct{} { return n.hints }

// forward turns all events into hints, errors too: an event may be lost.
func (n *Notifier) forward() {
	for open := true; open; n.Hint() {
		select {
		case _, open = <-n.fs.Events:
		case _, open = <-n.fs.Errors:
		}
	}
}

// Hint makes Hints receive.
func (n *Notifier) Hint() {
	select {
	case n.hints <- struct{}{}:
	default:
	}
}

// Close ends the notifier.
func (n *Notifier) Close() {
	if n.fs != nil {
		_ = n.fs.Close()
		n.done.Wait()
	}
}

// Watch watches directories in place of the former ones.
func (n *Notifier) Watch(dirs []string) {
	if n.fs == nil {
		return
	}
	for _, dir := range n.fs.WatchList() {
		if !slices.Contains(dirs, dir) {
			_ = n.fs.Remove(dir) // it may have gone by itself
		}
	}
	var failed error
	for _, dir := range dirs {
		if err := n.fs.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = err
		}
	}
	n.note(failed)
}

// note logs when watching stops or starts to work.
func (n *Notifier) note(err error) {
	switch was := n.blind; {
	case err != nil && !was:
		n.log.Warn("cannot watch files, polling them instead", "files", n.what, "every", n.poll, "error", err)
	case err == nil && was:
		n.log.Info("files are watched again", "files", n.what)
	}
	n.blind = err != nil
}

// settling is how long no file may have changed before they are read, as they are written one after the other.
const settling = 100 * time.Millisecond

// Follow calls read at first, after hints, every poll for file systems without them, and when asked receives, until
// done closes. It watches what affects the paths; read need not find that anything has changed.
func (n *Notifier) Follow(done, asked <-chan struct{}, poll time.Duration, paths []string, read func()) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	settled := time.After(0)
	for {
		select {
		case <-done:
			return
		case <-n.Hints():
			settled = time.After(settling)
			continue
		case <-settled:
		case <-tick.C:
		case <-asked:
		}
		var dirs []string
		for _, path := range paths {
			dirs = Around(dirs, path)
		}
		n.Watch(dirs) // before reading, so that nothing happens in between
		read()
	}
}
