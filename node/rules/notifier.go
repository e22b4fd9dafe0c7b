package rules

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

// notifier tells when something may have changed about files. Where the file system cannot be asked, it never does by itself.
type notifier struct {
	hints chan struct{}     // holds at most one
	fs    *fsnotify.Watcher // nil: it cannot be asked
	done  sync.WaitGroup

	log   *slog.Logger
	poll  time.Duration // for the log
	blind bool          // so the log says
}

func newNotifier(log *slog.Logger, poll time.Duration) *notifier {
	n := &notifier{hints: make(chan struct{}, 1), log: log, poll: poll}
	var err error
	if n.fs, err = fsnotify.NewWatcher(); err != nil {
		n.fs = nil
		n.note(err)
		return n
	}
	n.done.Go(n.forward)
	return n
}

// forward makes a hint of all that the notifier tells, also of errors: it may have lost something.
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

// watch watches where the files at the paths are now, instead of where they were.
func (n *notifier) watch(paths []string) {
	if n.fs == nil {
		return
	}
	dirs := around(paths)
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

// note says whether the files can be watched.
func (n *notifier) note(err error) {
	switch was := n.blind; {
	case err != nil && !was:
		n.log.Warn("rule files cannot be watched, and are looked at now and then", "every", n.poll, "error", err)
	case err == nil && was:
		n.log.Info("rule files are watched again")
	}
	n.blind = err != nil
}

// around returns the directories, by their true names, in which a change may be one of the files at the paths: a directory that was named,
// those of the files, and those of every link on the way. What is not there is left out.
func around(paths []string) []string {
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
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			add(path)
		}
		files, _ := filesAt(path)
		for _, file := range files {
			if real, err := filepath.EvalSymlinks(file); err == nil {
				add(filepath.Dir(real))
			}
		}
	}
	return dirs
}
