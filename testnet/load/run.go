package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/testnet/record"
)

// ErrBehind says that requests were sent later than planned: the load was not the one that was asked for.
var ErrBehind = errors.New("the load generator fell behind; ask for less, give it more workers, or run it on a machine that is less busy")

// Sink takes what is recorded; record.Writer is one. It is called by many goroutines.
type Sink interface {
	Write(record.Entry) error
}

// Summary says what was offered.
type Summary struct {
	Offered  int // requests sent, those asked elsewhere counted once
	Allowed  int
	Denied   int
	Failed   int           // requests that nobody answered
	Moved    int           // requests that were answered elsewhere
	Lost     int           // answers lost on the way: the node may have decided all the same
	Late     time.Duration // the most that a request was sent later than planned
	Took     time.Duration
	FailedBy map[string]int // by error, the first 20 kinds
}

// job is a request that is due.
type job struct {
	arrival
	due time.Time
}

// Run offers the load until the duration has passed or ctx ends, which is no error, and waits for the answers to what was sent. Every
// decision is written to sink. An error wraps ErrBehind, or says what could not be recorded.
func Run(ctx context.Context, options Options, sink Sink) (Summary, error) {
	if err := options.Validate(); err != nil {
		return Summary{}, err
	}
	o := options.withDefaults()
	g := &generator{options: o, sink: sink, summary: Summary{FailedBy: make(map[string]int)}}
	g.prepare()
	started := time.Now()
	jobs := make(chan job)
	var workers sync.WaitGroup
	for range o.Workers {
		workers.Go(func() {
			for j := range jobs {
				g.offer(j)
			}
		})
	}
	g.dispatch(ctx, started, jobs)
	close(jobs)
	workers.Wait()
	o.Client.CloseIdleConnections()
	g.summary.Took = time.Since(started)
	err := g.failed
	if g.summary.Late > o.Tolerance {
		err = errors.Join(err, fmt.Errorf("a request was sent %v late, at most %v are tolerated: %w", g.summary.Late.Round(time.Millisecond), o.Tolerance, ErrBehind))
	}
	return g.summary, err
}

type generator struct {
	options Options
	sink    Sink
	bodies  [][]byte // by stream

	mu      sync.Mutex
	summary Summary
	failed  error // the first decision that could not be recorded
}

// dispatch hands each request to a worker when it is due. It does not skip what it is late for: that would offer less.
func (g *generator) dispatch(ctx context.Context, started time.Time, jobs chan<- job) {
	plan := newSchedule(&g.options)
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for ctx.Err() == nil {
		next := plan.pop()
		if next.after >= g.options.Duration {
			return
		}
		due := started.Add(next.after)
		if wait := time.Until(due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
		}
		select {
		case jobs <- job{next, due}:
			continue
		default: // all workers wait for answers
		}
		select {
		case <-ctx.Done():
			g.late(time.Since(due)) // nobody will send it, and it would have been this late
			return
		case jobs <- job{next, due}:
		}
	}
}

func (g *generator) late(by time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.summary.Late = max(g.summary.Late, by)
}

// offer sends a request, and records what became of it.
func (g *generator) offer(j job) {
	g.late(time.Since(j.due))
	outcome, moved, lost := g.ask(j)
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.summary
	s.Offered++
	s.Lost += lost
	switch {
	case outcome.Error != "":
		s.Failed++
		if _, known := s.FailedBy[outcome.Error]; known || len(s.FailedBy) < 20 {
			s.FailedBy[outcome.Error]++
		}
	case outcome.Allowed:
		s.Allowed++
	default:
		s.Denied++
	}
	if outcome.Error == "" && moved {
		s.Moved++
	}
}

// ask asks the target and, if it is to, the others in turn. A node that could not be reached has decided nothing, so that when somebody
// else answers there is nothing to record of it.
func (g *generator) ask(j job) (last record.Decision, moved bool, lost int) {
	n := len(g.options.Targets)
	tries := 1
	if g.options.Elsewhere {
		tries = n
	}
	for i := range tries {
		d, reached := g.try(j, (j.target+i)%n)
		if last, moved = d, i > 0; d.Error == "" {
			g.record(d)
			return last, moved, lost
		}
		if reached {
			lost++
			g.record(d)
		} else if i == tries-1 {
			g.record(d)
		}
	}
	return last, moved, lost
}

func (g *generator) record(d record.Decision) {
	if err := g.sink.Write(record.Entry{Decision: &d}); err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.failed = cmp.Or(g.failed, err)
	}
}

// Kinds returns the errors that requests failed with, commonest first.
func (s *Summary) Kinds() []string {
	var kinds []string
	for k := range s.FailedBy {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b string) int {
		return cmp.Or(cmp.Compare(s.FailedBy[b], s.FailedBy[a]), cmp.Compare(a, b))
	})
	return kinds
}
