package clock

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Tick is the most that the coarse time lags on a machine that is not overloaded. It costs 1 to 2 % of a core; a longer
// one costs little less, and a shorter one does not tick more often (Linux, Go 1.26).
const Tick = time.Millisecond

const (
	followEvery = time.Second // how often the machine's wall clock is read
	coarseTicks = 256         // for how many ticks the coarse time is kept after a call of Coarse
)

// Clock is the clock of one node. Its methods are safe for concurrent use.
type Clock struct {
	mono   func() int64     // nanoseconds since some moment, never set
	wall   func() time.Time // the machine's wall clock
	log    *slog.Logger
	ahead  func() (time.Duration, bool)
	line   atomic.Pointer[line]
	coarse atomic.Int64 // 0: not kept
	asked  chan struct{}
	steps  steps // Run's
}

// New returns a clock that shows the machine's wall time, read by wallClock; nil: by time.Now. ahead returns how far
// the clock is ahead of other nodes' clocks, and whether that is known. The log reports clock steps.
func New(wallClock func() time.Time, log *slog.Logger, ahead func() (time.Duration, bool)) *Clock {
	if wallClock == nil {
		wallClock = time.Now
	}
	base := time.Now()
	c := &Clock{mono: func() int64 { return int64(time.Since(base)) }, wall: wallClock, log: log, ahead: ahead,
		asked: make(chan struct{}, 1)}
	c.line.Store(&line{from: c.mono(), at: c.wall().UnixNano()})
	return c
}

// Now returns the time in Unix nanoseconds.
func (c *Clock) Now() int64 { return c.line.Load().now(c.mono()) }

// Coarse returns the time of at most a Tick ago, or of longer ago on an overloaded machine. Outside Run, and at the
// first call after a quarter of a second without any, it returns Now.
func (c *Clock) Coarse() int64 {
	if now := c.coarse.Load(); now != 0 {
		return now
	}
	select {
	case c.asked <- struct{}{}:
	default:
	}
	return c.Now()
}

// Run keeps the coarse time while Coarse is called, and follows the machine's wall clock, until ctx ends. It returns
// nil. It may be called once.
func (c *Clock) Run(ctx context.Context) error {
	ticker, look := time.NewTicker(Tick), time.NewTicker(followEvery)
	defer ticker.Stop()
	defer look.Stop()
	defer c.coarse.Store(0)
	ticker.Stop()
	for left := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			c.follow()
		case <-c.asked:
			left = coarseTicks
			ticker.Reset(Tick)
			c.coarse.Store(c.Now())
		case <-ticker.C:
			if left--; left > 0 {
				c.coarse.Store(c.Now())
				continue
			}
			ticker.Stop()
			c.coarse.Store(0)
		}
	}
}

// follow follows the machine's wall clock.
func (c *Clock) follow() {
	mono, wall := c.mono(), c.wall().UnixNano()
	ahead, known := c.ahead()
	next, what, due := c.steps.follow(c.line.Load(), wall, mono, ahead, known)
	if next != nil {
		c.line.Store(next)
	}
	switch off := slog.Duration("off", due); what {
	case stepped:
		c.log.Warn("the machine's clock was set; this node's follows if that lasts", off)
	case disputed:
		c.log.Warn("the machine's clock was set, but other nodes' clocks agree with the time before: run NTP on this "+
			"machine", off, slog.Duration("followed_in", disputedWait))
	case returned:
		c.log.Info("the machine's clock was set back to what it was")
	case jumped:
		c.log.Warn("this node's clock jumped to the machine's, and windows with it", off)
	}
}
