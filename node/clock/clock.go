package clock

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Tick is how old the coarse time may be, while it is kept and the machine is not overloaded. It costs one or two hundredths of a core; where
// a longer one was tried it cost little less, and a shorter one came no more often (Linux, Go 1.26).
const Tick = time.Millisecond

const (
	lookEvery = time.Second // at the machine's wall clock
	attentive = 256         // ticks for which the coarse time is kept after somebody asked for it
)

// Clock is the time of one node. Its methods are safe for concurrent use.
type Clock struct {
	source
	log    *slog.Logger
	ahead  func() (time.Duration, bool)
	line   atomic.Pointer[line]
	coarse atomic.Int64 // 0: it is not kept
	asked  chan struct{}
	steps  steps // Run's
}

// source is the machine's clocks.
type source struct {
	mono func() int64              // nanoseconds since some moment, never set
	both func() (wall, mono int64) // at one moment
}

func machine() source {
	base := time.Now()
	return source{
		mono: func() int64 { return int64(time.Since(base)) },
		both: func() (wall, mono int64) {
			now := time.Now()
			return now.UnixNano(), int64(now.Sub(base))
		},
	}
}

// New returns a clock that shows the machine's wall time. ahead says how far it is ahead of other nodes' clocks, and whether that is
// known; nil: it never is. What is worth telling of the machine's clock goes to the log.
func New(log *slog.Logger, ahead func() (time.Duration, bool)) *Clock {
	return newClock(machine(), log, ahead)
}

func newClock(s source, log *slog.Logger, ahead func() (time.Duration, bool)) *Clock {
	if ahead == nil {
		ahead = func() (time.Duration, bool) { return 0, false }
	}
	c := &Clock{source: s, log: log, ahead: ahead, asked: make(chan struct{}, 1)}
	wall, mono := s.both()
	c.line.Store(&line{from: mono, at: wall})
	return c
}

// Now is the time in Unix nanoseconds.
func (c *Clock) Now() int64 { return c.line.Load().now(c.mono()) }

// Coarse is the time as it was at most a Tick ago, or longer where the machine has no time for its clock. Before Run and after, and at
// the first call after a quarter of a second without any, it is Now.
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

// Run keeps the coarse time while somebody asks for it, and follows the machine's wall clock, until ctx ends. It returns nil. It may be
// called once.
func (c *Clock) Run(ctx context.Context) error {
	ticker, look := time.NewTicker(Tick), time.NewTicker(lookEvery)
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
			left = attentive
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

// follow looks at the machine's wall clock.
func (c *Clock) follow() {
	wall, mono := c.both()
	ahead, known := c.ahead()
	next, say, due := c.steps.follow(c.line.Load(), wall, mono, ahead, known)
	if next != nil {
		c.line.Store(next)
	}
	switch off := slog.Duration("off", due); say {
	case noticed:
		c.log.Warn("the machine's clock was set; this node's follows if that lasts", off)
	case doubted:
		c.log.Warn("the machine's clock was set, but other nodes' clocks agree with the time before: run NTP on this machine", off,
			slog.Duration("followed_in", doubt))
	case returned:
		c.log.Info("the machine's clock was set back to what it was")
	case jumped:
		c.log.Warn("this node's clock jumped to the machine's, and windows with it", off)
	}
}
