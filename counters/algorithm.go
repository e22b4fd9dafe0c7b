package counters

import "strconv"

// Algorithm is how a key's slots become a count.
type Algorithm uint8

// Nodes send these numbers: they are never reused.
const (
	// SlidingWindow sums the sub-windows of the window that ends now; the oldest counts in proportion.
	SlidingWindow Algorithm = 1
	// FixedWindow sums the window that holds now. Windows are aligned to the Unix epoch.
	FixedWindow Algorithm = 2
	// SlidingLog sums the requests of the window that ends now. It knows the time of each request that this table
	// admitted; a count of others leaves with the start of its sub-window.
	SlidingLog Algorithm = 3
	// TokenBucket holds tokens and is refilled continuously; a request takes its cost in tokens: GCRA.
	TokenBucket Algorithm = 4
	// LeakyBucket is the same arithmetic: a request pours its cost into the bucket, and a full bucket denies.
	LeakyBucket Algorithm = 5
	// LeakyQueue is a leaky bucket in which requests wait: a decision says how long to delay its request.
	LeakyQueue Algorithm = 6
	// Ban is not for limits: its slots hold the time until which their key is banned (LimitConfig.Ban).
	Ban Algorithm = 7
	// lifts is not for limits: its slots hold the time up to which bans of their key are lifted ([Table.LiftBan]).
	lifts Algorithm = 8
	// credits is not for limits: its slots count what token buckets of the same meter got back ([Debts.GiveBack]).
	credits Algorithm = 9
)

var algorithms = [...]string{
	SlidingWindow: "sliding_window", FixedWindow: "fixed_window", SlidingLog: "sliding_log",
	TokenBucket: "token_bucket", LeakyBucket: "leaky_bucket", LeakyQueue: "leaky_queue", Ban: "ban", lifts: "lift",
	credits: "credit",
}

// String returns the name that rule files use.
func (a Algorithm) String() string {
	if !a.Known() {
		return "algorithm(" + strconv.Itoa(int(a)) + ")"
	}
	return algorithms[a]
}

// ParseAlgorithm returns the algorithm with a name in rule files.
func ParseAlgorithm(name string) (a Algorithm, ok bool) {
	for a, known := range algorithms {
		if known == name && known != "" && Algorithm(a).Counts() {
			return Algorithm(a), true
		}
	}
	return 0, false
}

// Known reports whether this version has the algorithm. Peers may run a later version.
func (a Algorithm) Known() bool { return a > 0 && int(a) < len(algorithms) }

// Counts reports whether slots of the algorithm count admitted cost: those of Ban and lifts hold a time, those of
// credits what was given back.
func (a Algorithm) Counts() bool { return a < Ban }
func (a Algorithm) bucket() bool { return a >= TokenBucket && a <= LeakyQueue }
func (a Algorithm) timed() bool  { return a == Ban || a == lifts }
