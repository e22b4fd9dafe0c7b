package replay

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
)

// Progress is how far a run has come.
type Progress struct {
	Lines uint64
	At    int64 // the latest time in the lines so far, ns since the Unix epoch; 0 before the first
}

// Run asks the rules about every request of the logs. It calls progress now and then from its own goroutine. When ctx ends it reads no
// further, and reports on what it has read.
//
// The error says what is wrong with the options, that a request meets too many limits, or that no request could be read at all. A log that
// breaks off is no error: the report says so.
func Run(ctx context.Context, o Options, logs []Log, progress func(Progress)) (*Report, error) {
	r, err := newRun(ctx, &o, logs, progress)
	if err != nil {
		return nil, err
	}
	for r.step() {
	}
	if r.failed != nil {
		return nil, r.failed
	}
	if r.requests == 0 {
		return nil, r.nothing()
	}
	return r.report(), nil
}

// run is a replay under way.
type run struct {
	options *Options
	reading *reading
	logs    int
	merged  merged
	new     *trial
	old     *trial // nil where there is nothing to compare with
	failed  error  // why a request could not be asked about

	first, now     int64
	requests, late uint64
	bothDenied     uint64
}

func newRun(ctx context.Context, o *Options, logs []Log, progress func(Progress)) (*run, error) {
	if err := o.validate(logs); err != nil {
		return nil, err
	}
	l, err := newLayout(o.Fields)
	if err != nil {
		return nil, err
	}
	r := &run{options: o, logs: len(logs)}
	if r.new, err = newTrial(o, o.Rules, l); err != nil {
		return nil, err
	}
	if o.Old != nil {
		if r.old, err = newTrial(o, o.Old, l); err != nil {
			return nil, fmt.Errorf("the old rules: %w", err)
		}
	}
	r.reading = &reading{ctx: ctx, parser: parser{layout: l, format: o.Format}, held: maxHeld / len(logs), progress: progress,
		Problems: Problems{Shown: []Problem{}, Failed: []string{}}}
	for _, log := range logs {
		s, err := r.reading.openStream(log)
		switch {
		case err != nil && ctx.Err() != nil:
			r.reading.Interrupted = true
		case err != nil:
			r.reading.Failed = append(r.reading.Failed, log.Name+": "+err.Error())
		case len(s.window) > 0:
			r.merged.streams = append(r.merged.streams, s)
		}
	}
	heap.Init(&r.merged)
	return r, nil
}

// step asks about the next request; it reports whether there was one. Afterwards failed says whether it could be asked about.
func (r *run) step() bool {
	q, ok := r.merged.next()
	if !ok {
		return false
	}
	if r.requests == 0 {
		r.first, r.now = q.at, q.at
	}
	if q.at < r.now {
		r.late++
	}
	r.requests++
	r.now = max(r.now, q.at)
	var denied, before bool
	if denied, r.failed = r.new.ask(q.values, r.now); r.failed != nil || r.old == nil {
		return r.failed == nil
	}
	if before, r.failed = r.old.ask(q.values, r.now); r.failed != nil {
		r.failed = fmt.Errorf("the old rules: %w", r.failed)
		return false
	}
	switch {
	case denied && before:
		r.bothDenied++
	case denied:
		r.new.differs()
	case before:
		r.old.differs()
	}
	return true
}

// nothing says why there was no request to ask about.
func (r *run) nothing() error {
	switch {
	case r.reading.Interrupted:
		return errors.New("interrupted before the first request")
	case len(r.reading.Failed) > 0:
		return errors.New(r.reading.Failed[0])
	case len(r.reading.Shown) > 0:
		p := r.reading.Shown[0]
		return fmt.Errorf("none of %d lines could be read as a request; the first is %s:%d: %s", r.reading.lines, p.Log, p.Line, p.Reason)
	}
	return errors.New("the logs are empty")
}
