package rulefile

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// notifier reports that files may have changed. Without support of the file system it reports nothing.
type notifier struct {
	hints chan struct{}     // at most one
	fs    *fsnotify.Watcher // nil: not supported
	done  sync.WaitGroup

	log   *slog.Logger
	poll  time.Duration // for the log
	blind bool          // the log has the warning
}

func newNotifier(log *slog.Logger, poll time.Duration) *notifier {
	n := &notifier{hints: make(chan struct{}, 1), log: log, poll: poll}
	events, err := fsnotify.NewWatcher()
	if n.note(err); err == nil {
		n.fs = events
		n.done.Go(n.forward)
	}
	return n
}

// forward turns all events into hints, errors too: an event may be lost.
func (n *notifier) forward() {
	for open := true; open; n.hint() {
		select {
		case _, open = <-n.fs.Events:
		case _, open = <-n.fs.Errors:
		}
	}
}

func (n *notifier) hint() {
	select {
	case n.hints <- struct{}{}:
	default:
	}
}

func (n *notifier) close() {
	if n.fs != nil {
		_ = n.fs.Close()
		n.done.Wait()
	}
}

// watch watches directories in place of the former ones.
func (n *notifier) watch(dirs []string) {
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
func (n *notifier) note(err error) {
	switch was := n.blind; {
	case err != nil && !was:
		n.log.Warn("cannot watch rule files, polling them instead", "every", n.poll, "error", err)
	case err == nil && was:
		n.log.Info("rule files are watched again")
	}
	n.blind = err != nil
}

// around returns the directories, links resolved, in which a change may affect the files at the paths: a directory
// among the paths with those of its subdirectories that are read, those of the files, and those of every link on the
// way. It skips missing ones.
func (o Options) around(paths []string) []string {
	var dirs []string
	add := func(dir string) {
		if real, err := filepath.EvalSymlinks(dir); err == nil && !slices.Contains(dirs, real) {
			dirs = append(dirs, real)
		}
	}
	for _, path := range paths {
		path, err := filepath.Abs(path)
		if err != nil {
			continue
		}
		for at := path; at != filepath.Dir(at); at = filepath.Dir(at) {
			if info, err := os.Lstat(at); at == path || err == nil && info.Mode()&fs.ModeSymlink != 0 {
				add(filepath.Dir(at))
			}
		}
		l, _ := o.filesAt(path)
		for _, dir := range l.dirs {
			add(dir)
		}
		for _, file := range l.files {
			if real, err := filepath.EvalSymlinks(file); err == nil {
				add(filepath.Dir(real))
			}
		}
	}
	return dirs
}
