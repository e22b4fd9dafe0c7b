package hostile

import (
	"errors"
	"fmt"
	"time"
)

// Target is a node: the host:port of its doors. GRPC may be empty, and so may RESP.
type Target struct {
	HTTP, RESP, GRPC, Health string
}

// Options say how much is done. DefaultOptions are for a machine with two cores and 20,000 file descriptors a process.
type Options struct {
	// Rule is one of the node's, by which the clients that behave ask.
	Rule string
	// Idle and Stalled are how many connections stay idle, and how many do not end what they begin.
	Idle, Stalled int
	// Bodies is how many connections send a long batch but for its end.
	Bodies int
	// Workers is how many connections at a time send what is no request, or reset streams; each sends Rounds of each kind.
	Workers, Rounds int
	// Clients is how many clients that behave there are for each of the doors of HTTP and of the Redis protocol. In each phase each asks Requests times, Every so often; 0: as soon as
	// it is answered.
	Clients, Requests int
	Every             time.Duration
	// Patience is how long an answer may take, and the node to give back what it took.
	Patience time.Duration
}

// DefaultOptions take about a minute and a half.
func DefaultOptions() Options {
	return Options{Rule: "per_ip", Idle: 10_000, Stalled: 10_000, Bodies: 200, Workers: 16, Rounds: 50,
		Clients: 8, Requests: 500, Every: 20 * time.Millisecond, Patience: time.Minute}
}

// Validate says everything that is wrong with the options at once.
func (o *Options) Validate() error {
	var errs []error
	for name, n := range map[string]int{"idle": o.Idle, "stalled": o.Stalled, "bodies": o.Bodies, "rounds": o.Rounds} {
		if n < 0 || n > 1_000_000 {
			errs = append(errs, fmt.Errorf("%s: %d, want 0 to 1000000", name, n))
		}
	}
	for name, n := range map[string]int{"workers": o.Workers, "clients": o.Clients, "requests": o.Requests} {
		if n < 1 || n > 100_000 {
			errs = append(errs, fmt.Errorf("%s: %d, want 1 to 100000", name, n))
		}
	}
	if o.Every < 0 || o.Patience <= 0 {
		errs = append(errs, errors.New("every is not to be negative, and patience is to be more than 0"))
	}
	return errors.Join(errs...)
}
