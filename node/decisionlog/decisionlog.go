// Package decisionlog writes some of a node's decisions to a file, as lines of JSON, for those who ask why a client was
// denied. It names clients by the keyed hash that nodes exchange, never in clear.
package decisionlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/logfile"
)

// Config says which decisions are logged, and where. Without a File none are.
type Config struct {
	// File is where lines are appended; it may be renamed at any time. "stdout" is standard output.
	File string `yaml:"file"`
	// Sample is the part of all decisions that is logged, 0 to 1.
	Sample float64 `yaml:"sample"`
	// Denied logs all decisions that deny as well.
	Denied bool `yaml:"denied"`
	// MaxPerSecond is how many lines are written at most, 1 to 100000. Those beyond are dropped and counted.
	MaxPerSecond int `yaml:"max_per_second"`
}

// DefaultConfig returns the configuration of a log of one decision in a hundred and of all denials, without a file.
func DefaultConfig() Config { return Config{Sample: 0.01, Denied: true, MaxPerSecond: 1000} }

// Validate reports everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var errs []error
	if !(c.Sample >= 0 && c.Sample <= 1) {
		errs = append(errs, fmt.Errorf("sample: %v, want 0 to 1", c.Sample))
	}
	if c.MaxPerSecond < 1 || c.MaxPerSecond > 100_000 {
		errs = append(errs, fmt.Errorf("max_per_second: %d, want 1 to 100000", c.MaxPerSecond))
	}
	if c.File != "" && c.Sample == 0 && !c.Denied {
		errs = append(errs, errors.New("file: nothing would be logged: set sample, or denied"))
	}
	return errors.Join(errs...)
}

// Entry is a decision on one layer of a request.
type Entry struct {
	At       int64        // Unix time, ns
	Rule     string       // its public name
	Identity counters.Key // the keyed hash of the identity
	Outcome  string       // as in decisions_total
	Cost     uint64       // 0: it has none that could be compared with the limit
	Decision counters.Decision
}

// line is an Entry as it is written.
type line struct {
	Time         time.Time `json:"time"`
	Rule         string    `json:"rule"`
	Identity     string    `json:"identity"`
	Outcome      string    `json:"outcome"`
	Cost         uint64    `json:"cost,omitempty"`
	Limit        uint64    `json:"limit"`
	Remaining    uint64    `json:"remaining"`
	RetryAfterMS int64     `json:"retry_after_ms,omitempty"` // -1: no wait helps
	Degraded     bool      `json:"degraded,omitempty"`
}

// Log is an open log. Run writes it; Wants, Add and Stats are safe for concurrent use and never block.
type Log struct {
	cfg     Config
	file    *logfile.File
	queue   chan Entry // of as many as are written in a second
	written atomic.Uint64
	dropped atomic.Uint64
}

// Open opens the file of a valid configuration that has one. The caller calls Close, after Run has returned.
func Open(cfg Config, log *slog.Logger) (*Log, error) {
	file, err := logfile.Open(cfg.File, "decision log", log)
	if err != nil {
		return nil, err
	}
	return &Log{cfg: cfg, file: file, queue: make(chan Entry, cfg.MaxPerSecond)}, nil
}

// Wants reports whether to log a decision, by chance and by whether it denies.
func (l *Log) Wants(denied bool) bool {
	return l.cfg.Denied && denied || l.cfg.Sample > 0 && rand.Float64() < l.cfg.Sample
}

// Add takes an entry to be written within a second, or drops it where more come than may be written.
func (l *Log) Add(e *Entry) {
	select {
	case l.queue <- *e:
	default:
		l.dropped.Add(1)
	}
}

// Run writes once a second what was added, until ctx ends.
func (l *Log) Run(ctx context.Context) { l.file.Run(ctx, l.collect) }

// collect hands on what was added before it: no more than fits the queue, that is a second's.
func (l *Log) collect() {
	for range len(l.queue) {
		e := <-l.queue
		l.file.Add(e.append)
		l.written.Add(1)
	}
}

func (e *Entry) append(b []byte) []byte {
	retry := (e.Decision.RetryAfter + time.Millisecond - 1).Milliseconds()
	if e.Decision.RetryAfter == counters.Never {
		retry = -1
	}
	text, err := json.Marshal(&line{Time: time.Unix(0, e.At).UTC(), Rule: e.Rule,
		Identity: fmt.Sprintf("%016x", uint64(e.Identity)), Outcome: e.Outcome, Cost: e.Cost, Limit: e.Decision.Limit,
		Remaining: e.Decision.Remaining, RetryAfterMS: retry, Degraded: e.Decision.Degraded})
	if err != nil {
		panic(err) // strings, numbers and a time of this millennium: it cannot fail
	}
	return append(b, text...)
}

// Stats are totals since the log was opened.
type Stats struct {
	Written  uint64 // lines
	Dropped  uint64 // entries beyond MaxPerSecond
	Failures uint64 // of writes, each of which may have lost many lines
}

// Stats returns the totals.
func (l *Log) Stats() Stats {
	return Stats{Written: l.written.Load(), Dropped: l.dropped.Load(), Failures: l.file.Failures()}
}

// Close writes what was added, and closes the file.
func (l *Log) Close() {
	l.collect()
	l.file.Close()
}
