package counters

import "strconv"

// Algorithm names a way to turn a key's slots into a count.
type Algorithm uint8

// The numbers travel between nodes: they are never reused.
const (
	// SlidingWindow sums the sub-windows of the window that ends now, the oldest weighted by how much of it overlaps.
	SlidingWindow Algorithm = 1
	// FixedWindow sums the window that holds now. Windows are aligned to the Unix epoch.
	FixedWindow Algorithm = 2
	// SlidingLog remembers the time of each request that this table admitted, and sums those of the window that ends
	// now. What others admitted leaves with the beginning of its sub-window.
	SlidingLog Algorithm = 3
	// TokenBucket holds a capacity of tokens and is refilled without a break, a request takes its cost: GCRA.
	TokenBucket Algorithm = 4
	// LeakyBucket is the same seen from below: a request pours its cost in, a full bucket denies.
	LeakyBucket Algorithm = 5
	// LeakyQueue is a leaky bucket that requests wait in: a decision says how long to delay its request.
	LeakyQueue Algorithm = 6
	// Ban is no algorithm of a limit: its slots say until when their key is banned ([Limit.Ban]).
	Ban Algorithm = 7
	// Lift is no algorithm of a limit either: its slots hold the time up to which bans of their key are lifted
	// ([Table.Lift]).
	Lift Algorithm = 8
)

var algorithms = [...]string{
	SlidingWindow: "sliding_window", FixedWindow: "fixed_window", SlidingLog: "sliding_log",
	TokenBucket: "token_bucket", LeakyBucket: "leaky_bucket", LeakyQueue: "leaky_queue", Ban: "ban", Lift: "lift",
}

// String returns the name that rule files use.
func (a Algorithm) String() string {
	if !a.Known() {
		return "algorithm(" + strconv.Itoa(int(a)) + ")"
	}
	return algorithms[a]
}

// ParseAlgorithm returns the algorithm that rule files call by the name.
func ParseAlgorithm(name string) (a Algorithm, ok bool) {
	for a, known := range algorithms {
		if known == name && known != "" && Algorithm(a).Counts() {
			return Algorithm(a), true
		}
	}
	return 0, false
}

// Known reports whether this version has the algorithm: a peer may have a later one.
func (a Algorithm) Known() bool { return a > 0 && int(a) < len(algorithms) }

// Counts reports whether slots of the algorithm count what was admitted. Those of Ban and Lift hold a time.
func (a Algorithm) Counts() bool { return a < Ban }

// bucket reports whether the algorithm is one of the buckets, which share their arithmetic.
func (a Algorithm) bucket() bool { return a >= TokenBucket && a <= LeakyQueue }
