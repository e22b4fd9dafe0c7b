package bans

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/bans/banname"
)

// Exports returns what an export has now: it is called for each attempt. An error is one of the attempt.
type Exports func(x *Export) (Selection, error)

// Exporter keeps one Export up to date.
type Exporter struct {
	export   *Export
	registry *Registry
	exports  Exports
	log      *slog.Logger
	kernel   *kernel // nil: there is none to apply to

	hash     uint64      // of what the file has
	written  os.FileInfo // the file as it was written; nil: it was not
	restored uint64      // how often others had changed it
	due      bool        // the command is to run
	ran      time.Time
	failed   error                  // of the last run of the command, nil after a success
	spared   map[netip.Prefix]Spare // banned, and left out at last

	mu    sync.Mutex
	stats Stats // Run alone writes it
}

// Stats says how an export does.
type Stats struct {
	Name     string // format and file, or set
	Entries  int    // addresses and prefixes when it last succeeded
	Success  time.Time
	Failing  bool // the last attempt failed
	Failures uint64
	// Restored is how often others had changed, emptied or removed what was exported.
	Restored uint64
	// Spared is how many banned addresses and prefixes were left out, and Example one of them.
	Spared  int
	Example netip.Prefix
	Because Spare // the example is
}

// NewExporter returns an exporter of the registry's bans. exports reports whether those of a meter may be exported,
// whatever Export.Rules says, and which are spared. A prefix is spared whole if some of it is.
func NewExporter(x Export, r *Registry, exports Exports, log *slog.Logger) *Exporter {
	e := &Exporter{export: &x, registry: r, log: log.With("export", x.name()), exports: exports}
	e.stats = Stats{Name: x.name(), Success: time.Now()} // its age begins now
	if x.Apply {
		e.kernel = &kernel{export: &x}
	}
	return e
}

// Stats returns how the export does. It is safe for concurrent use.
func (e *Exporter) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

const (
	minRetry = time.Second
	maxRetry = 30 * time.Second
	// commandPause is the shortest time between two commands: a reload of a proxy is no small thing.
	commandPause = 5 * time.Second
	// heartbeat is how often an export is looked at while nothing changes.
	heartbeat = 10 * time.Second
)

// Run exports until ctx ends. The sets and files stay: elements of sets end by themselves, lines of files do not.
func (e *Exporter) Run(ctx context.Context) {
	changed, retry := e.registry.subscribe(), minRetry
	timer := time.NewTimer(heartbeat)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-timer.C:
		}
		began := time.Now()
		entries, err := e.once(ctx)
		if ctx.Err() != nil {
			return
		}
		e.report(entries, err)
		pause := min(max(5*time.Since(began), minPause), maxPause)
		wait := heartbeat
		if err != nil && e.failed == nil { // a command has a pause of its own
			pause, retry = retry, min(2*retry, maxRetry)
			wait = time.Millisecond
		} else if retry = minRetry; e.due {
			wait = max(time.Millisecond, commandPause-time.Since(e.ran))
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(wait)
	}
}

// report logs the first failure and the end of failures, and counts.
func (e *Exporter) report(entries int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.stats
	restored := e.restored
	if e.kernel != nil {
		restored += e.kernel.restored
	}
	if s.Restored < restored {
		e.log.Warn("others changed what is exported: it was exported anew", "times", restored)
	}
	s.Restored, s.Spared, s.Example = restored, len(e.spared), netip.Prefix{}
	for p, why := range e.spared { // the first one, so that it stays the same
		if !s.Example.IsValid() || p.Compare(s.Example) < 0 {
			s.Example, s.Because = p, why
		}
	}
	if err != nil {
		e.stats.Failures++
		if !e.stats.Failing {
			e.log.Warn("bans cannot be exported; it is tried again", "error", err)
		}
		e.stats.Failing = true
		return
	}
	if e.stats.Failing {
		e.log.Info("bans are exported again")
	}
	e.stats.Failing = false
	e.stats.Entries, e.stats.Success = entries, time.Now()
}

// once brings file and sets up to date. One that fails does not keep the other from it.
func (e *Exporter) once(ctx context.Context) (entries int, err error) {
	now := e.registry.now()
	exports, err := e.exports(e.export)
	if err != nil {
		return 0, err
	}
	selects := func(b *counters.Bans, name *banname.Name) (Spares, bool) {
		if name.Keys == banname.RuleKeys || name.Keys == banname.ManualKeys {
			return nil, false
		}
		return exports(b, name)
	}
	all, spared := e.registry.addresses(selects, now)
	e.warnOf(spared)
	var errs []error
	if e.kernel != nil {
		if err := e.kernel.apply(ctx, all, now); err != nil {
			errs = append(errs, fmt.Errorf("nftables: %w", err))
		}
	}
	if e.export.File != "" {
		errs = append(errs, e.file(all, selects, now), e.command(ctx))
	}
	return len(all), errors.Join(errs...)
}

// warnOf warns of what comes to be left out, of protected addresses once until there are none: clients can have many of
// them banned.
func (e *Exporter) warnOf(spared map[netip.Prefix]Spare) {
	before := e.spared
	e.spared = spared
	var known [Protected + 1]bool
	for _, why := range before {
		known[why] = true
	}
	for p, why := range spared {
		if _, old := before[p]; old || why == Protected && known[why] {
			continue
		}
		e.log.Warn("banned addresses are not exported", "addresses", len(spared), "example", p, "because", why)
		return
	}
}

// file writes the file if it would differ from what the node last wrote, or others have changed or removed it. One with
// timeouts, which count from its reading, is written again every so often and after a failure, for the command that is
// run again.
func (e *Exporter) file(all []entry, selects Selection, now int64) error {
	var records []Ban
	hash := sum(all)
	if !e.export.sets() { // it has no ends
		hash = sum(withoutEnds(all))
	} else if len(all) > 0 {
		hash += uint64(now/int64(refill)) + e.stats.Failures
	}
	if e.export.Format == "json" { // it has more than addresses
		records = slices.Collect(e.registry.records(selects, now))
		hash = sum(records)
	}
	if e.written != nil {
		if !isSame(e.export.File, e.written) {
			e.restored++
		} else if hash == e.hash {
			return nil
		}
	}
	written, err := replace(e.export.File, func(f *os.File) error { return e.export.write(f, all, records, now) })
	if e.written = written; err == nil {
		e.hash, e.due = hash, len(e.export.Command) > 0
	}
	return err
}

// isSame reports whether a file is the one that was written, and as it was.
func isSame(name string, written os.FileInfo) bool {
	now, err := os.Stat(name)
	return err == nil && os.SameFile(now, written) && now.Size() == written.Size() &&
		now.ModTime().Equal(written.ModTime())
}

func withoutEnds(all []entry) []entry {
	all = slices.Clone(all)
	for i := range all {
		all[i].ends = 0
	}
	return all
}

var seed = maphash.MakeSeed()

func sum[T comparable](all []T) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for i := range all {
		maphash.WriteComparable(&h, all[i])
	}
	return h.Sum64()
}

// replace writes a file beside the one of that name, and renames it: readers see the old one or the new one.
func replace(name string, write func(*os.File) error) (written os.FileInfo, err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return nil, err
	}
	err = write(f)
	if err == nil {
		err = f.Chmod(0o640)
	}
	if err == nil {
		written, err = f.Stat()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return nil, err
	}
	return written, nil
}

const commandTimeout = 30 * time.Second

// command runs the command if the file has changed, unless it ran a moment ago: then it is still due, and an error of
// that run stands.
func (e *Exporter) command(ctx context.Context) error {
	if !e.due {
		return nil
	}
	if !e.ran.IsZero() && time.Since(e.ran) < commandPause {
		return e.failed
	}
	e.ran = time.Now()
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	err := output(exec.CommandContext(ctx, e.export.Command[0], e.export.Command[1:]...))
	if e.failed = err; err != nil {
		e.failed = fmt.Errorf("command: %w", err)
	}
	e.due = err != nil
	return e.failed
}
