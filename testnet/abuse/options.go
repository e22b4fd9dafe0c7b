package abuse

import (
	"errors"
	"fmt"
	"time"
)

// Target holds the host:port of each listener of a node.
type Target struct {
	HTTP, RESP, GRPC, Health string
}

// Options set the amount of abuse. DefaultOptions suit a machine with two cores and 20,000 file descriptors a process.
type Options struct {
	Rule          string // the node's rule that compliant HTTP clients check
	Idle, Stalled int    // connections that stay idle, and connections that never complete a request
	Watches       int    // open health watches, on a few connections
	Bodies        int    // connections that send a long batch without its end
	// Workers send invalid requests, or reset streams, concurrently. Each sends Rounds of each kind.
	Workers, Rounds int
	// Clients is the number of compliant clients of each of the HTTP, Redis protocol and gRPC listeners. One more
	// probes the health listener. In each phase each client sends Requests requests, one per Interval, or without a
	// pause if Interval is 0.
	Clients, Requests int
	Interval          time.Duration
	ProbeTimeout      time.Duration // of a health probe
	Timeout           time.Duration // of any other answer, and of the release of resources after a phase
}

// DefaultOptions take about a minute and a half.
func DefaultOptions() Options {
	return Options{Rule: "per_ip", Idle: 10_000, Stalled: 10_000, Watches: 1000, Bodies: 200, Workers: 16, Rounds: 50,
		Clients: 8, Requests: 500, Interval: 20 * time.Millisecond, ProbeTimeout: time.Second, Timeout: time.Minute}
}

// Validate reports every invalid option at once.
func (o *Options) Validate() error {
	var errs []error
	for _, f := range []struct {
		name        string
		n, min, max int
	}{
		{"idle", o.Idle, 0, 1_000_000}, {"stalled", o.Stalled, 0, 1_000_000}, {"bodies", o.Bodies, 0, 1_000_000},
		{"watches", o.Watches, 0, 1_000_000}, {"rounds", o.Rounds, 0, 1_000_000},
		{"workers", o.Workers, 1, 100_000}, {"clients", o.Clients, 1, 100_000}, {"requests", o.Requests, 1, 100_000},
	} {
		if f.n < f.min || f.n > f.max {
			errs = append(errs, fmt.Errorf("%s: %d, want %d to %d", f.name, f.n, f.min, f.max))
		}
	}
	if o.Interval < 0 || o.Timeout <= 0 || o.ProbeTimeout <= 0 {
		errs = append(errs, errors.New("the interval must not be negative, and the timeouts must be above 0"))
	}
	return errors.Join(errs...)
}
