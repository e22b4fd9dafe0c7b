// Package replay decides on past traffic: it applies rules, with the real engine (node/rules and counters.Table), to
// every request of access logs, at the time that the log gives.
//
// # From lines to requests
//
// A line is in Apache's and nginx' common or combined format (with a virtual host in front or not), or a JSON object as
// Caddy, Traefik, nginx and Envoy write it. gzip is detected. Each line's format is detected, so that one log may mix
// them. A line's fields are remote_address, path and so on ([Fields]). A descriptor is a list of fields; a request has
// the descriptors whose fields its line has. Without descriptors from the caller they are derived from the rules: for
// each rule the keys from the top of the tree to it, if all of them are fields.
//
// # Order
//
// Servers write a line when its request ends, and some log the time at which it began; several logs come from several
// servers or from rotation. Logs are merged by time, and lines of each are sorted within [Window] lines. A request that
// comes later still is decided on at the time of the one before it, because the engine's clock does not go back, and is
// counted as late.
//
// # Limits of the method
//
// A client that is denied retries, or does not; the log has what it did when nobody denied it. One node decides on all
// traffic, as a cluster without delay would. Every request costs 1. A log with times to the second says nothing about
// limits of shorter windows: all requests of a second come at the same instant.
//
// # Memory
//
// Each set of rules has two tables, for decisions and for demand. The report tracks at most [Options].MaxIdentities
// identities by name; decisions do not depend on that.
package replay

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Format is the format of a log's lines.
type Format string

const (
	Auto     Format = "auto"     // detected for each line
	Combined Format = "combined" // common or combined format, with a virtual host in front or not
	JSON     Format = "json"     // an object a line
)

const (
	Window  = 1 << 14  // lines of a log within which they are sorted
	MaxLogs = 256      // open at the same time
	maxHeld = 64 << 20 // bytes of lines in all windows
)

// Options are the rules of a run and how it applies them. DefaultOptions sets all but Rules.
type Options struct {
	Rules *rules.Set
	// Old, unless nil, are compared with Rules.
	Old *rules.Set
	// Domain is that of the rules. It may be empty where there is only one.
	Domain string
	// Descriptors are those of each request, as lists of fields: "path,remote_address". KEY=VALUE in the place of a
	// field is a constant entry. If empty, they are derived from the rules.
	Descriptors []string
	// Fields are paths in JSON lines, as KEY=PATH: "api_key=request.headers.X-Api-Key". Of several for one key the
	// first that a line has wins. They replace the built-in paths of the key; the key "time" is the request's time.
	Fields []string
	Format Format
	// Worst is the number of identities listed for each rule.
	Worst int
	// MaxIdentities is the number of identities of all rules of a set that the report tracks. Requests of others count
	// for their rule only.
	MaxIdentities int
	// Memory is the budget in bytes of each table, as in counters.Config.
	Memory int
}

// DefaultOptions returns the options of the command without flags.
func DefaultOptions() Options {
	return Options{Format: Auto, Worst: 10, MaxIdentities: 1 << 20, Memory: counters.DefaultMemory}
}

// Log is one access log. Run does not close the reader.
type Log struct {
	Name string // for the report
	io.Reader
}

func (o *Options) validate(logs []Log) error {
	var errs []error
	if o.Rules == nil {
		errs = append(errs, errors.New("there are no rules"))
	}
	if len(logs) == 0 || len(logs) > MaxLogs {
		errs = append(errs, fmt.Errorf("%d logs, want 1 to %d: join some of them", len(logs), MaxLogs))
	}
	if o.Format != Auto && o.Format != Combined && o.Format != JSON {
		errs = append(errs, fmt.Errorf("unknown format %.40q, want %s, %s or %s", o.Format, Auto, Combined, JSON))
	}
	if o.Worst < 0 || o.MaxIdentities < 0 {
		errs = append(errs, fmt.Errorf("%d worst of %d identities, want at least 0", o.Worst, o.MaxIdentities))
	}
	return errors.Join(errs...)
}

// Progress is how far a run has come.
type Progress struct {
	Lines uint64
	At    int64 // the latest time in the lines so far, ns since the Unix epoch; 0 before the first
}

// Run applies the rules to every request of the logs. It calls progress from its own goroutine every 1,024 lines. When
// ctx ends it stops reading and reports on what it has read.
//
// The error reports invalid options, a request that matches too many limits, or that no request could be read. A log
// that breaks off is no error: it is in the report.
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
	if r.Requests == 0 {
		return nil, r.noRequests()
	}
	return r.report(), nil
}

// run is a replay in progress.
type run struct {
	Report  // so far
	options *Options
	reader  *reader
	merger  merger
	new     *trial
	old     *trial // nil without Options.Old
	failed  error  // of the last decision

	first, now int64
	bothDenied uint64
}

func newRun(ctx context.Context, o *Options, logs []Log, progress func(Progress)) (*run, error) {
	if err := o.validate(logs); err != nil {
		return nil, err
	}
	l, err := newLayout(o.Fields)
	if err != nil {
		return nil, err
	}
	r := &run{options: o, Report: Report{Logs: len(logs)}}
	if r.new, err = newTrial(o, o.Rules, l); err != nil {
		return nil, err
	}
	if o.Old != nil {
		if r.old, err = newTrial(o, o.Old, l); err != nil {
			return nil, fmt.Errorf("the old rules: %w", err)
		}
	}
	r.reader = &reader{ctx: ctx, parser: parser{layout: l, format: o.Format}, maxHeld: maxHeld / len(logs),
		progress: progress, Problems: Problems{Shown: []Problem{}, Failed: []string{}}}
	for _, log := range logs {
		s, err := r.reader.openStream(log)
		switch {
		case err != nil && ctx.Err() != nil:
			r.reader.Interrupted = true
		case err != nil:
			r.reader.Failed = append(r.reader.Failed, log.Name+": "+err.Error())
		case len(s.window) > 0:
			r.merger.streams = append(r.merger.streams, s)
		}
	}
	return r, nil
}

// step decides on the next request. It returns false at the end and when a decision failed.
func (r *run) step() bool {
	q := r.merger.next()
	if q == nil {
		return false
	}
	if r.Requests == 0 {
		r.first, r.now = q.at, q.at
	}
	if q.at < r.now {
		r.Late++
	}
	r.Requests++
	r.now = max(r.now, q.at)
	var denied, before bool
	if denied, r.failed = r.new.decide(q.values, r.now); r.failed != nil || r.old == nil {
		return r.failed == nil
	}
	if before, r.failed = r.old.decide(q.values, r.now); r.failed != nil {
		r.failed = fmt.Errorf("the old rules: %w", r.failed)
		return false
	}
	switch {
	case denied && before:
		r.bothDenied++
	case denied:
		r.new.countChanged()
	case before:
		r.old.countChanged()
	}
	return true
}

// noRequests returns why no request was read.
func (r *run) noRequests() error {
	switch {
	case r.reader.Interrupted:
		return errors.New("interrupted before the first request")
	case len(r.reader.Failed) > 0:
		return errors.New(r.reader.Failed[0])
	case len(r.reader.Shown) > 0:
		p := r.reader.Shown[0]
		return fmt.Errorf("none of %d lines could be read as a request; the first is %s:%d: %s", r.reader.lines,
			p.Log, p.Line, p.Reason)
	}
	return errors.New("the logs are empty")
}
