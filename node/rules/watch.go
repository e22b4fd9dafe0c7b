package rules

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"time"
)

// Watcher reads rule files again when they change. What the file system tells is only a reason to look: whether there is anything new is
// decided by what the files hold. So it is all the same whether an editor writes into a file or renames another one over it, a link to the
// file or to a directory above it is turned elsewhere, or files come to a directory and go.
type Watcher struct {
	options Options
	paths   []string
	poll    time.Duration
	log     *slog.Logger
	asked   chan struct{}
	known   digest // of what was read last
}

// Watch returns a Watcher of files and directories of them, as Load takes them. It looks at them when the file system tells of a change,
// and every poll (more than 0) for file systems that do not tell. logger hears of files that cannot be watched.
func (o Options) Watch(paths []string, poll time.Duration, logger *slog.Logger) *Watcher {
	return &Watcher{options: o, paths: paths, poll: poll, log: logger, asked: make(chan struct{}, 1)}
}

// Load reads the files, as Options.Load does. It is for the time before Run.
func (w *Watcher) Load() (*Set, error) {
	_, set, err := w.look(true)
	return set, err
}

// Reload has Run read the files now, or as soon as it runs, whether they have changed or not. It does not wait for that, and may be
// called from anywhere.
func (w *Watcher) Reload() {
	select {
	case w.asked <- struct{}{}:
	default: // somebody has asked already
	}
}

// Run watches until ctx ends, and calls loaded with what Load would return whenever the files have changed since they were read last, or
// Reload was called. Files that stay wrong are told once.
func (w *Watcher) Run(ctx context.Context, loaded func(*Set, error)) {
	n := newNotifier(w.log, w.poll)
	defer n.close()
	w.follow(ctx, n, loaded)
}

// A change may be one of many, and half of a file: files are read once nothing has changed for the time of settling. Where something
// always changes, they are read that much later at most.
const (
	settling   = 100 * time.Millisecond
	settlesFor = 2 * time.Second
)

func (w *Watcher) follow(ctx context.Context, n *notifier, loaded func(*Set, error)) {
	tick := time.NewTicker(w.poll)
	defer tick.Stop()
	settled := time.NewTimer(0) // at once: nobody has watched since Load
	defer settled.Stop()
	var first time.Time // of the changes that were not looked at yet; zero: there are none
	look := func(asked bool) {
		n.watch(w.paths) // before reading, so that nothing happens in between
		if news, set, err := w.look(asked); news {
			loaded(set, err)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.asked:
			look(true)
		case <-settled.C:
			first = time.Time{}
			look(false)
		case <-tick.C:
			n.watch(w.paths)
			if digestOf(readAll(w.paths)) != w.known {
				n.hint()
			}
		case <-n.hints:
			now := time.Now()
			if first.IsZero() {
				first = now
			}
			settled.Reset(max(0, min(settling, settlesFor-now.Sub(first))))
		}
	}
}

// look reads the files. Unless it was asked for, it makes something of them only if they have changed.
func (w *Watcher) look(asked bool) (news bool, set *Set, err error) {
	texts := readAll(w.paths)
	d := digestOf(texts)
	if d == w.known && !asked {
		return false, nil, nil
	}
	w.known = d
	set, err = w.options.parse(texts)
	return true, set, err
}

// digest tells what stood in files, and which could not be read, from anything else.
type digest [sha256.Size]byte

func digestOf(texts []text) digest {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%q %v %d\n", t.file, t.err, len(t.data))
		h.Write(t.data)
	}
	return digest(h.Sum(nil))
}
