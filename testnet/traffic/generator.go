package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/testnet/record"
)

// ErrBehind says that requests were sent later than planned: the load was not the one that was asked for.
var ErrBehind = errors.New(
	"the load generator fell behind; ask for less, give it more workers, or run it on a machine that is less busy")

// Options say what is offered.
type Options struct {
	Rule     string // the name of the rule that every request names
	Targets  []Target
	Streams  []Stream
	Duration time.Duration // the time of the last request at the latest; Run's context may end it earlier
	Seed     uint64        // decides all times and targets
	Workers  int           // the largest number of requests under way; 0: DefaultWorkers
	Timeout  time.Duration // how long an answer may take; 0: DefaultTimeout
	// Elsewhere retries a request that got no answer once at each other target, as a client with several addresses
	// does.
	Elsewhere bool
	// Balanced asks each target every ReadyInterval whether it is ready, and sends what is meant for an unready one
	// to another one of its region, as a load balancer does. What a ready node does not answer fails all the same.
	Balanced bool
	Client   *http.Client // sends the requests; nil: one that keeps its connections
}

// Defaults and limits of Options.
const (
	DefaultWorkers = 256
	DefaultTimeout = 2 * time.Second

	MaxDuration = time.Hour
	maxRate     = 20_000 // requests a second
	maxRequests = 5_000_000
	// maxLate is how late a request may be sent. The judge goes by the time at which it was sent; beyond a second the
	// load is no longer the planned one.
	maxLate = time.Second
)

// withDefaults fills in what was left open.
func (o Options) withDefaults() Options {
	o.Workers = cmp.Or(o.Workers, DefaultWorkers)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	if o.Client == nil {
		o.Client = NewClient(o.Workers)
	}
	return o
}

// Validate reports everything that is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(o.Rule == "", "no rule: name the one that requests are to meet")
	wrong(len(o.Targets) == 0, "no targets: name at least one node")
	for _, t := range o.Targets {
		u, err := url.Parse(t.URL)
		wrong(err != nil || u.Host == "" || t.Node == "", "target %q at %q: give it a name and the URL of its HTTP API",
			t.Node, t.URL)
		wrong(o.Balanced && t.Health == "", "target %q: give it the URL of its health listener", t.Node)
	}
	wrong(len(o.Streams) == 0, "no streams: nothing would be offered")
	rate := 0.0
	for i := range o.Streams {
		errs = append(errs, o.Streams[i].validate(len(o.Targets)))
		rate += o.Streams[i].Rate
	}
	wrong(rate > maxRate || rate*o.Duration.Seconds() > maxRequests,
		"%.0f requests a second for %v: at most %d a second and %d in all", rate, o.Duration, maxRate, maxRequests)
	wrong(o.Duration <= 0 || o.Duration > MaxDuration, "a duration of %v: want more than 0 and at most %v", o.Duration,
		MaxDuration)
	wrong(o.Workers < 0 || o.Timeout < 0, "workers %d, timeout %v: none may be below 0", o.Workers, o.Timeout)
	return errors.Join(errs...)
}

// arrivals draws those of all streams. Each stream has a random source of its own, so that one more changes no other.
func (o *Options) arrivals() Source {
	var streams []Source
	for i, s := range o.Streams {
		streams = append(streams, s.Arrivals(len(o.Targets), rand.New(rand.NewPCG(o.Seed, uint64(i)))))
	}
	return Merge(streams...).Until(o.Duration)
}

// Sink takes what is recorded; record.Writer is one. Many goroutines call it.
type Sink interface {
	Write(record.Entry) error
}

// Summary says what was offered.
type Summary struct {
	Offered  int // requests sent; a retry at another target is not counted
	Allowed  int
	Denied   int
	Failed   int           // requests without an answer
	Moved    int           // requests that another target answered
	Lost     int           // answers lost on the way: the node may have decided all the same
	Late     time.Duration // the largest delay of a request against the plan
	Took     time.Duration
	FailedBy map[string]int // by error, the first 20 kinds
}

// Kinds returns the errors that requests failed with, the most frequent first.
func (s *Summary) Kinds() []string {
	return slices.SortedFunc(maps.Keys(s.FailedBy), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.FailedBy[b], s.FailedBy[a]), cmp.Compare(a, b))
	})
}

type generator struct {
	options Options
	sink    Sink
	bodies  map[string][]byte // of requests, by identity
	pick    func(target int) int

	mu      sync.Mutex
	summary Summary
	failed  error // the first decision that could not be recorded
}

// job is a request that is due.
type job struct {
	Arrival
	due time.Time
}

// Run offers the load until the duration has passed or ctx ends, which is no error, and waits for the answers to what
// was sent. It writes every decision to sink. An error wraps ErrBehind, or says what could not be recorded.
func Run(ctx context.Context, options Options, sink Sink) (Summary, error) {
	if err := options.Validate(); err != nil {
		return Summary{}, err
	}
	o := options.withDefaults()
	g := &generator{
		options: o, sink: sink, summary: Summary{FailedBy: make(map[string]int)}, bodies: make(map[string][]byte),
		pick: func(target int) int { return target },
	}
	if o.Balanced {
		b, stop := startBalancer(o.Client, o.Targets)
		defer stop()
		g.pick = b.pick
	}
	for _, s := range o.Streams {
		g.bodies[s.Identity] = check{Rule: o.Rule, Identity: s.Identity}.body()
	}
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
	Play(ctx, started, o.arrivals(), func(a Arrival, due time.Time) bool { return g.dispatch(ctx, jobs, job{a, due}) })
	close(jobs)
	workers.Wait()
	o.Client.CloseIdleConnections()
	g.summary.Took = time.Since(started)
	err := g.failed
	if late := g.summary.Late; late > maxLate {
		err = errors.Join(err, fmt.Errorf("a request was sent %v late, at most %v are tolerated: %w",
			late.Round(time.Millisecond), maxLate, ErrBehind))
	}
	return g.summary, err
}

// dispatch waits for a worker to take a request, unless ctx ends.
func (g *generator) dispatch(ctx context.Context, jobs chan<- job, j job) bool {
	select {
	case <-ctx.Done():
		g.late(time.Since(j.due)) // nobody will send it, and it would have been this late
		return false
	case jobs <- j:
		return true
	}
}

func (g *generator) late(by time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.summary.Late = max(g.summary.Late, by)
}

// offer sends a request, and records its outcome.
func (g *generator) offer(j job) {
	g.late(time.Since(j.due))
	outcome, moved, lost := g.ask(j)
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.summary
	s.Offered++
	s.Lost += lost
	if outcome.Error != "" {
		s.Failed++
		if _, known := s.FailedBy[outcome.Error]; known || len(s.FailedBy) < 20 {
			s.FailedBy[outcome.Error]++
		}
		return
	}
	if outcome.Allowed {
		s.Allowed++
	} else {
		s.Denied++
	}
	if moved {
		s.Moved++
	}
}

// ask asks the target and, with Elsewhere, the others in turn. A node that could not be reached has decided nothing, so
// there is nothing to record of it when another one answers.
func (g *generator) ask(j job) (last record.Decision, moved bool, lost int) {
	n, tries, first := len(g.options.Targets), 1, g.pick(j.Node)
	if g.options.Elsewhere {
		tries = n
	}
	for i := range tries {
		d, reached := g.try(j.Client, g.options.Targets[(first+i)%n])
		last, moved = d, i > 0 || first != j.Node
		if d.Error == "" || reached || i == tries-1 {
			g.record(d)
		}
		if d.Error == "" {
			break
		}
		if reached {
			lost++
		}
	}
	return last, moved, lost
}

// try asks one target. reached is false when nothing can have come to it.
func (g *generator) try(identity string, t Target) (d record.Decision, reached bool) {
	// Not the run's context: what was sent is to be answered, or given up in its time.
	ctx, cancel := context.WithTimeout(context.Background(), g.options.Timeout)
	defer cancel()
	d = record.Decision{Node: t.Node, Region: t.Region, Identity: identity, Cost: 1, Sent: time.Now().UnixNano()}
	a, err := post(ctx, g.options.Client, t, g.bodies[identity])
	d.Done = max(d.Sent, time.Now().UnixNano())
	if err != nil {
		d.Error = kind(err)
		return d, !unreached(err)
	}
	d.Allowed, d.Limit, d.Remaining = a.Allowed, a.Limit, a.Remaining
	return d, true
}

func (g *generator) record(d record.Decision) {
	if err := g.sink.Write(record.Entry{Decision: &d}); err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.failed = cmp.Or(g.failed, err)
	}
}
