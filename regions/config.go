package regions

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Config configures a Reconciler. DefaultConfig is a good start; the zero value is invalid.
type Config struct {
	// Interval is the time between two flushes while the store answers; up to a tenth less, so that nodes spread out. A
	// shorter one costs the store more calls and loses fewer counts with a node. Default 750 ms.
	Interval time.Duration
	// Timeout bounds one call of the store. Default 250 ms.
	Timeout time.Duration
	// Cooldown is how long a store that failed is left alone, up to a tenth less, before one small call. Default 1 s.
	Cooldown time.Duration
	// LastFlush is how long the flush at a graceful stop may take, full push included. Default 1.5 s.
	LastFlush time.Duration
	// Chunk is how many slots one call of the store carries at most. Default 512.
	Chunk int
	// MaxPending caps the slots that wait for the store, at some 250 bytes each. A slot beyond it is counted and causes
	// a push of all own slots, which costs more. Default 65536.
	MaxPending int
	// Restore caps the slots of other origins that each node writes after the store lost data, those of the keys that
	// count most: so the counts of nodes that are gone survive. Default 65536; 0 writes none.
	Restore int
	// MinWindow is the shortest window whose counts are written: shorter ones pass before a cold node could use them.
	// Default 10 s; 0 writes all.
	MinWindow time.Duration
	// Worth reports whether to write a slot; nil: every one. Enqueue and Run call it, also at the same time.
	Worth func(*counters.Slot) bool
	// Alone says that the node exchanges counts with no other: whoever else counts in the store has limits of its own,
	// which a log line says once.
	Alone bool
	// OnCall gets the duration and the error of each call of the store; may be nil.
	OnCall func(took time.Duration, err error)
	// Now is the wall time by which windows are indexed and slots expire: the node's clock, which may be set. It is
	// safe for concurrent use. Nil means time.Now.
	Now func() time.Time
	// Elapsed is a monotonic clock, safe for concurrent use. Nil means the machine's.
	Elapsed func() time.Duration
	// Log gets changes of state: the store fails, is back, lost data; slots find no room. Nil is silent.
	Log *slog.Logger
}

// DefaultConfig returns the defaults, silent and on the wall clock.
func DefaultConfig() Config {
	return Config{
		Interval: 750 * time.Millisecond, Timeout: 250 * time.Millisecond, Cooldown: time.Second,
		LastFlush: 1500 * time.Millisecond, Chunk: 512, MaxPending: 1 << 16, Restore: 1 << 16,
		MinWindow: 10 * time.Second,
	}
}

// Validate reports all that is wrong with the configuration, or nil.
func (c Config) Validate() error {
	var problems []error
	for _, p := range []struct {
		wrong bool
		say   string
		value any
	}{
		{c.Interval <= 0, "the interval is %v, it has to be positive", c.Interval},
		{c.Timeout <= 0, "the time-out of a call is %v, it has to be positive", c.Timeout},
		{c.Cooldown <= 0, "the cool-down is %v, it has to be positive", c.Cooldown},
		{c.LastFlush <= 0, "the time for the last flush is %v, it has to be positive", c.LastFlush},
		{c.Chunk <= 0, "a chunk has %d slots, it has to have at least one", c.Chunk},
		{c.MaxPending <= 0, "the cap on pending slots is %d, it has to be at least one", c.MaxPending},
		{c.Restore < 0, "the cap on slots to restore is %d, it must not be negative", c.Restore},
		{c.MinWindow < 0, "the shortest window is %v, it must not be negative", c.MinWindow},
	} {
		if p.wrong {
			problems = append(problems, fmt.Errorf("reconciler: "+p.say, p.value))
		}
	}
	return errors.Join(problems...)
}
