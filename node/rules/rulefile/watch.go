package rulefile

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/node/files"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Watcher reads rule files again when they change. Events of the file system are only hints: the content decides. So
// editors may write or rename files, links to files or to directories above them may change, and directories may gain
// and lose files.
type Watcher struct {
	options Options
	paths   []string
	poll    time.Duration
	log     *slog.Logger
	asked   chan struct{}
	reloads atomic.Int64 // that were asked for and have not begun
	known   digest       // of what was read last
}

// Watch returns a Watcher of files and directories, as in Load. It reads them after events of the file system, and
// every poll (more than 0) for file systems without events. logger gets problems with watching.
func (o Options) Watch(paths []string, poll time.Duration, logger *slog.Logger) *Watcher {
	return &Watcher{options: o, paths: paths, poll: poll, log: logger, asked: make(chan struct{}, 1)}
}

// Load reads the files as Options.Load does. It is for the time before Run.
func (w *Watcher) Load() (*rules.Set, error) {
	r := w.look(asked)
	return r.set, r.err
}

// Reload makes Run read the files now, or once it runs, whether they have changed or not. It does not wait, and is safe
// for concurrent use. Calls within reloadEvery are one.
func (w *Watcher) Reload() {
	w.reloads.Add(1)
	select {
	case w.asked <- struct{}{}:
	default: // already requested
	}
}

// Run watches until ctx ends. It calls loaded with the result of Load whenever the files have changed since they were
// read last, or after Reload. It reports files that stay invalid once. The end of ctx does not wait for reads that
// hang, as on a lost file server.
func (w *Watcher) Run(ctx context.Context, loaded func(*rules.Set, error)) {
	n := files.NewNotifier("rules", w.poll, w.log)
	defer n.Close()
	w.follow(ctx, n, loaded)
}

const (
	// Changes come in bursts, and files may be half written: files are read once nothing has changed for settling, or
	// settlesFor after the first change.
	settling     = 100 * time.Millisecond
	settlesFor   = 2 * time.Second
	reloadEvery  = 100 * time.Millisecond // at most
	slowRead     = 10 * time.Second       // before the log has a warning
	abandonAfter = time.Second            // wait for a read at the end
)

// reading is a reason to read the files; the largest of several counts.
type reading int

const (
	nothing reading = iota
	polled          // compare files with the digest
	hinted          // load files if they have changed
	asked           // load files
)

// result is the result of a read.
type result struct {
	changed bool // of polled: the files differ
	set     *rules.Set
	err     error // both nil: nothing was loaded
}

// follow reads the files in a goroutine, one read at a time, so that nothing waits for a read that hangs.
func (w *Watcher) follow(ctx context.Context, n *files.Notifier, loaded func(*rules.Set, error)) {
	results, tick := make(chan result, 1), time.Tick(w.poll)
	settled := time.After(0) // at once: nothing was watched since Load
	var again <-chan time.Time
	var want reading
	var change, begun time.Time // the first change, and the read, that have no result yet; zero: none
	var earliest time.Time      // of the next read
	slow := false               // the log has the warning
	for {
		select {
		case <-ctx.Done():
			if !begun.IsZero() {
				w.abandon(results, begun)
			}
			return
		case <-w.asked:
			want = asked
		case <-settled:
			change, want = time.Time{}, max(want, hinted)
		case <-again:
		case <-tick:
			want = max(want, polled)
		case r := <-results:
			begun, slow = time.Time{}, false
			if r.changed {
				n.Hint()
			}
			if r.set != nil || r.err != nil {
				loaded(r.set, r.err)
			}
		case <-n.Hints():
			if change.IsZero() {
				change = time.Now()
			}
			settled = time.After(min(settling, settlesFor-time.Since(change)))
		}
		switch now := time.Now(); {
		case want == nothing:
		case !begun.IsZero():
			if now.Sub(begun) > slowRead && !slow {
				slow = true
				w.log.Warn("reading rule files is slow, the rules in force stay", "since", begun.Format(time.RFC3339))
			}
		case now.Before(earliest):
			again = time.After(earliest.Sub(now))
		default:
			w.read(want, n, results)
			want, begun, earliest = nothing, now, now.Add(reloadEvery)
		}
	}
}

// read starts a read.
func (w *Watcher) read(why reading, n *files.Notifier, results chan<- result) {
	if why == asked {
		if n := w.reloads.Swap(0); n > 1 {
			w.log.Info("several reloads of the rules were merged", "merged", n)
		}
	}
	go func() {
		dirs := w.options.around(w.paths)
		n.Watch(dirs) // before reading, so that nothing happens in between
		r := w.look(why)
		if w.options.Compatibility == Ratelimit && !slices.Equal(dirs, w.options.around(w.paths)) {
			n.Hint() // a subdirectory came after its parent was listed, and before that was watched
		}
		results <- r
	}()
}

// around returns the directories, links resolved, in which a change may affect the files at the paths: a directory
// among the paths with those of its subdirectories that are read, those of the files, and those of every link on the
// way. It skips missing ones.
func (o Options) around(paths []string) []string {
	var dirs []string
	for _, path := range paths {
		dirs = files.Around(dirs, path)
		l, _ := o.filesAt(path)
		for _, dir := range l.dirs {
			dirs = files.AddDir(dirs, dir)
		}
		for _, file := range l.files {
			if real, err := filepath.EvalSymlinks(file); err == nil {
				dirs = files.AddDir(dirs, filepath.Dir(real))
			}
		}
	}
	return dirs
}

// abandon waits for a running read, up to abandonAfter.
func (w *Watcher) abandon(results <-chan result, begun time.Time) {
	select {
	case <-results:
	case <-time.After(abandonAfter):
		w.log.Warn("rule files are still being read at shutdown", "since", begun.Format(time.RFC3339))
	}
}

// look reads the files and, unless they are only polled, loads them if they have changed or after Reload.
func (w *Watcher) look(why reading) (r result) {
	texts := w.options.readAll(w.paths)
	d := digestOf(texts)
	switch {
	case why == polled:
		return result{changed: d != w.known}
	case d == w.known && why != asked:
		return result{}
	}
	w.known = d
	r.set, r.err = w.options.parse(texts)
	return r
}

// digest identifies the content and the read errors of files.
type digest [sha256.Size]byte

func digestOf(texts []content) digest {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%q %v %v %d\n", t.file, t.err, t.skipped, len(t.data))
		h.Write(t.data)
	}
	return digest(h.Sum(nil))
}
