package load

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Target is a node that is asked.
type Target struct {
	Node, Region string
	URL          string // of its HTTP door, as http://127.0.0.1:8111, without a path
}

// Spacing is how the requests of a stream follow each other.
type Spacing string

// The spacings: Poisson is what many clients that know nothing of each other do; Even leaves the same time between any two.
const (
	Poisson Spacing = "poisson"
	Even    Spacing = "even"
)

// Stream is the requests for one identity.
type Stream struct {
	Identity string
	// Rate is requests per second, over all targets.
	Rate float64
	// Spacing is Poisson if empty.
	Spacing Spacing
	// Weights are the parts of the targets, by place; nil: all get the same, in turn where the spacing is even, else at random.
	Weights []float64
}

// Options say what is offered.
type Options struct {
	// Rule is the name of the rule that every request names.
	Rule    string
	Targets []Target
	Streams []Stream
	// Duration is when the last request is sent at the latest; Run's context may end it earlier. At most an hour.
	Duration time.Duration
	// Seed decides all times and targets.
	Seed uint64
	// Workers are how many requests can be under way at once; 0: 256.
	Workers int
	// Timeout is how long an answer may take; 0: 2 s.
	Timeout time.Duration
	// Elsewhere has a request that got no answer asked once of each other target, as a client with several addresses does.
	Elsewhere bool
	// Tolerance is how late requests may be sent; 0: 250 ms.
	Tolerance time.Duration
	// Client sends the requests; nil: one with connections that are kept.
	Client *http.Client
}

// The most that a run may offer.
const (
	MaxRate     = 20_000 // requests a second
	MaxRequests = 5_000_000
	MaxDuration = time.Hour
)

// Defaults of Options.
const (
	DefaultWorkers   = 256
	DefaultTimeout   = 2 * time.Second
	DefaultTolerance = 250 * time.Millisecond
)

// withDefaults fills in what was left open.
func (o Options) withDefaults() Options {
	if o.Workers == 0 {
		o.Workers = DefaultWorkers
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Tolerance == 0 {
		o.Tolerance = DefaultTolerance
	}
	if o.Client == nil {
		o.Client = NewClient(o.Workers)
	}
	return o
}

// NewClient returns a client that keeps up to so many connections to each node, so that none is made while it is measured.
func NewClient(connections int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxIdleConns: 0, MaxIdleConnsPerHost: connections, IdleConnTimeout: time.Minute, DisableCompression: true,
	}}
}

// Validate reports everything that is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Rule == "" {
		wrong("no rule: name the one that requests are to meet")
	}
	if len(o.Targets) == 0 {
		wrong("no targets: name at least one node")
	}
	for _, t := range o.Targets {
		if u, err := url.Parse(t.URL); err != nil || u.Host == "" || t.Node == "" {
			wrong("target %q at %q: give it a name and the URL of its door", t.Node, t.URL)
		}
	}
	if len(o.Streams) == 0 {
		wrong("no streams: nothing would be offered")
	}
	total := 0.0
	for i := range o.Streams {
		if err := o.Streams[i].validate(len(o.Targets)); err != nil {
			errs = append(errs, err)
		}
		total += o.Streams[i].Rate
	}
	if total > MaxRate || total*o.Duration.Seconds() > MaxRequests {
		wrong("%.0f requests a second for %v: at most %d a second and %d in all", total, o.Duration, MaxRate, MaxRequests)
	}
	if o.Duration <= 0 || o.Duration > MaxDuration {
		wrong("a duration of %v: want more than 0 and at most %v", o.Duration, MaxDuration)
	}
	if o.Workers < 0 || o.Timeout < 0 || o.Tolerance < 0 {
		wrong("workers %d, timeout %v, tolerance %v: none may be below 0", o.Workers, o.Timeout, o.Tolerance)
	}
	return errors.Join(errs...)
}

func (s *Stream) validate(targets int) error {
	sum := 0.0
	for _, w := range s.Weights {
		if w < 0 {
			return fmt.Errorf("stream %s: a weight of %v, want at least 0", s.Identity, w)
		}
		sum += w
	}
	switch {
	case s.Identity == "":
		return errors.New("a stream without an identity")
	case !(s.Rate > 0):
		return fmt.Errorf("stream %s: a rate of %v, want more than 0", s.Identity, s.Rate)
	case s.Spacing != "" && s.Spacing != Poisson && s.Spacing != Even:
		return fmt.Errorf("stream %s: spacing %q, want %s or %s", s.Identity, s.Spacing, Poisson, Even)
	case s.Weights != nil && (len(s.Weights) != targets || sum == 0):
		return fmt.Errorf("stream %s: %d weights with a sum of %v for %d targets", s.Identity, len(s.Weights), sum, targets)
	}
	return nil
}

// Pattern is how requests are spread over the targets.
type Pattern string

// The patterns: all alike, most on one node, or all on one node.
const (
	EvenPattern Pattern = "even"
	SkewPattern Pattern = "skew"
	OnePattern  Pattern = "one"
)

// skewed is the part of the favoured node in SkewPattern.
const skewed = 0.7

// Weights are those of a pattern over the targets; node is whom skew and one favour, the first target if it is empty.
func (p Pattern) Weights(targets []Target, node string) ([]float64, error) {
	at := 0
	if node != "" {
		at = slices.IndexFunc(targets, func(t Target) bool { return t.Node == node })
	}
	if at < 0 || len(targets) == 0 {
		var names []string
		for _, t := range targets {
			names = append(names, t.Node)
		}
		return nil, fmt.Errorf("node %q is not among the targets: %s", node, strings.Join(names, ", "))
	}
	weights := make([]float64, len(targets))
	switch p {
	case EvenPattern:
		return nil, nil
	case SkewPattern:
		for i := range weights {
			weights[i] = (1 - skewed) / float64(max(1, len(targets)-1))
		}
		weights[at] = skewed
	case OnePattern:
		weights[at] = 1
	default:
		return nil, fmt.Errorf("pattern %q: want %s, %s or %s", p, EvenPattern, SkewPattern, OnePattern)
	}
	return weights, nil
}
