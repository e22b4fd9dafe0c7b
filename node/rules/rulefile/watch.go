package rulefile

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

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
	n := newNotifier(w.log, w.poll)
	defer n.close()
	w.follow(ctx, n, loaded)
}

// Changes come in bursts, and files may be half written: files are read once nothing has changed for settling, or
// settlesFor after the first change.
const (
	settling   = 100 * time.Millisecond
	settlesFor = 2 * time.Second
)

const (
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
	news    bool // report set and err
	set     *rules.Set
	err     error
}

// follower is the state of a running Watcher. It reads the files in a goroutine, one read at a time, so that nothing
// waits for a read that hangs.
type follower struct {
	*Watcher
	notifier *notifier
	results  chan result
	again    *time.Timer // fires at earliest
	earliest time.Time
	want     reading
	busy     bool
	begun    time.Time
	slow     bool // the log has the warning
}

func (w *Watcher) follow(ctx context.Context, n *notifier, loaded func(*rules.Set, error)) {
	f := follower{Watcher: w, notifier: n, results: make(chan result, 1), again: time.NewTimer(time.Hour)}
	defer f.again.Stop()
	tick := time.NewTicker(w.poll)
	defer tick.Stop()
	settled := time.NewTimer(0) // at once: nothing was watched since Load
	defer settled.Stop()
	var first time.Time // change not read yet; zero: none
	for {
		select {
		case <-ctx.Done():
			f.end()
			return
		case <-w.asked:
			f.read(asked)
		case <-settled.C:
			first = time.Time{}
			f.read(hinted)
		case <-f.again.C:
			f.read(nothing)
		case <-tick.C:
			f.read(polled)
		case r := <-f.results:
			f.busy, f.slow = false, false
			if r.changed {
				n.hint()
			}
			if r.news {
				loaded(r.set, r.err)
			}
			f.read(nothing)
		case <-n.hints:
			now := time.Now()
			if first.IsZero() {
				first = now
			}
			settled.Reset(max(0, min(settling, settlesFor-now.Sub(first))))
		}
	}
}

// read starts a read for the reason given, or for a former one that had to wait.
func (f *follower) read(why reading) {
	now := time.Now()
	f.want = max(f.want, why)
	switch wait := f.earliest.Sub(now); {
	case f.want == nothing:
	case f.busy:
		if now.Sub(f.begun) > slowRead && !f.slow {
			f.slow = true
			f.log.Warn("reading rule files is slow, the rules in force stay", "since",
				f.begun.Format(time.RFC3339))
		}
	case wait > 0:
		f.again.Reset(wait)
	default:
		why, f.want = f.want, nothing
		f.busy, f.begun, f.earliest = true, now, now.Add(reloadEvery)
		if why == asked {
			if n := f.reloads.Swap(0); n > 1 {
				f.log.Info("several reloads of the rules were merged", "merged", n)
			}
		}
		go func() {
			f.notifier.watch(f.paths) // before reading, so that nothing happens in between
			f.results <- f.look(why)
		}()
	}
}

// end waits for a running read, up to abandonAfter.
func (f *follower) end() {
	if !f.busy {
		return
	}
	select {
	case <-f.results:
	case <-time.After(abandonAfter):
		f.log.Warn("rule files are still being read at shutdown", "since", f.begun.Format(time.RFC3339))
	}
}

// look reads the files and, unless they are only polled, loads them if they have changed or after Reload.
func (w *Watcher) look(why reading) (r result) {
	texts := readAll(w.paths)
	d := digestOf(texts)
	switch {
	case why == polled:
		return result{changed: d != w.known}
	case d == w.known && why != asked:
		return result{}
	}
	w.known = d
	r.news = true
	r.set, r.err = w.options.parse(texts)
	return r
}

// digest identifies the content and the read errors of files.
type digest [sha256.Size]byte

func digestOf(texts []text) digest {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%q %v %d\n", t.file, t.err, len(t.data))
		h.Write(t.data)
	}
	return digest(h.Sum(nil))
}
