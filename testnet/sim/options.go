package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/regions"
)

// Options say what is simulated. The same options give the same run.
type Options struct {
	Regions     int                // how many regions
	Nodes       int                // nodes in each
	Limit       uint64             // L: requests per window and client, over the whole cluster
	Window      time.Duration      // W
	Interval    time.Duration      // T: how often nodes send each other what they admitted
	Method      counters.Algorithm // by which the limit is kept
	Strategy    Strategy           // how a node decides on what it knows
	OnPartition counters.Partition // what it does where peers are unreachable

	// Load is what all nodes together are offered for a client, as a multiple of L per W. Patterns without HasLoad do
	// not use it.
	Load      float64
	Pattern   Pattern       // when and where it is offered
	Keys      int           // clients, each with such a load of its own
	Compliant int           // clients beside them that spend 95 % of the limit evenly, and so must never be rejected
	Burst     time.Duration // CompliantBurst: how long a burst lasts; 0: 0.2 s, 1 s and 3 s in turn, client by client
	BurstAt   Placement     // CompliantBurst: where a client's bursts come; empty: all Placements in turn
	Trace     *Trace        // offered in place of a pattern, by one client
	Duration  time.Duration // how long requests come
	Start     int64         // when they begin to, in Unix ns, as sub-windows are aligned to the epoch; 0: drawn
	Seed      uint64        // of everything random

	WANDelay, LANDelay time.Duration // one way, between regions and inside of one
	Jitter             float64       // delays are drawn evenly from 1-Jitter to 1+Jitter times that
	Loss               float64       // part of the packets that never arrive
	Duplicate          float64       // part of the packets that arrive twice
	Reorder            float64       // part of the packets that are held back, for up to a second
	Skew               time.Duration // clocks are wrong by up to that, either way
	Partitions         []Partition
	Pauses             []Outage // nodes that stand still, as a machine that swaps; frames wait for them
	Crashes            []Outage // nodes that end without a word, and start again with only what others send them
	NodeFaults         []NodeFault
	Store              bool // whether each region has a store that its nodes reconcile with; StoreFaults imply it
	StoreFaults        []StoreFault

	extraLimits []*counters.Limit // that nodes know of as well
	standIns    bool              // each region but the first is one node; see sample.go
}

// Outage is a time in which a node is out of order.
type Outage struct {
	Node  int // 0 to Regions*Nodes-1, region by region
	From  time.Duration
	Until time.Duration
}

// Strategy is how a node decides on what it knows.
type Strategy string

const (
	Plain        Strategy = "plain" // admits as long as what the node knows leaves room
	Proof        Strategy = "proof" // what a node does: thins the requests of offenders, and flushes early
	NoEarlyFlush Strategy = "late"  // the same without early flushes
)

// Strategies are all of them.
var Strategies = []Strategy{Proof, NoEarlyFlush, Plain}

// alone hides from the table of a Plain node that it has peers.
type alone struct{ gossip.Counts }

func (alone) SetCluster(int, time.Duration) {}

// DefaultOptions are the reference of the accuracy goals: 12 nodes in 3 regions, twice the limit, evenly.
func DefaultOptions() Options {
	return Options{
		Regions: 3, Nodes: 4, Limit: 1000, Window: 10 * time.Second, Interval: 100 * time.Millisecond,
		Method: counters.SlidingWindow, Strategy: Proof,
		Load: 2, Pattern: Even, Keys: 1, Duration: time.Minute, Seed: 1,
		WANDelay: 75 * time.Millisecond, LANDelay: time.Millisecond, Jitter: 0.1, Loss: 0.05,
	}
}

// What can be simulated: far more than memory and patience allow together.
const (
	maxNodes    = 2000
	maxKeys     = 1_000_000
	maxBursters = 1000
	maxDuration = 24 * time.Hour
	maxRequests = 50_000_000 // some 32 bytes each
	maxBurst    = 10_000_000 // requests in a burst of all clients
)

// Total is the number of nodes.
func (o *Options) Total() int { return o.Regions * o.Nodes }

// nodesIn is the number of nodes that are simulated of a region.
func (o *Options) nodesIn(region int) int {
	if o.standIns && region > 0 {
		return 1
	}
	return o.Nodes
}

// clients is the number of clients, those beside the load included, which come last.
func (o *Options) clients() int { return o.Keys + o.Compliant }

func (o *Options) hasStores() bool { return o.Store || len(o.StoreFaults) > 0 }

// Validate reports everything that is wrong with the options.
func (o *Options) Validate() error {
	_, err := newLimit(o)
	redis, keys, bursting := regions.DefaultConfig().MinWindow, maxKeys, o.Pattern == CompliantBurst
	if bursting {
		keys = maxBursters
	}
	errs := []error{
		err,
		require(o.Regions > 0 && o.Nodes > 0 && o.Regions <= maxNodes && o.Nodes <= maxNodes && o.Total() <= maxNodes,
			"%d regions of %d nodes: want 1 to %d nodes in all", o.Regions, o.Nodes, maxNodes),
		require(o.Limit > 0, "a limit of 0: want at least 1"),
		inRange("an interval of %v", o.Interval, 10*time.Millisecond, 10*time.Second),
		inRange("a window of %v", o.Window, 10*time.Millisecond, math.MaxInt64),
		require(!o.hasStores() || o.Window >= redis, "a window of %v: Redis gets those of %v and longer", o.Window,
			redis),
		oneOf("unknown strategy %q", o.Strategy, Strategies),
		oneOf("unknown pattern %q", o.Pattern, Patterns),
		require(o.Load > 0 && o.Load <= 10_000, "a load of %g: want more than 0, at most 10000", o.Load),
		inRange("%d keys", o.Keys, 1, keys),
		inRange("%d clients beside", o.Compliant, 0, maxBursters),
		require(bursting || o.Burst == 0 && o.BurstAt == "", "bursts are for the pattern %s", CompliantBurst),
		inRange("a burst of %v", o.Burst, 0, o.Window),
		oneOf("bursts at %q", o.BurstAt, append(Placements, "")),
		require(!bursting || float64(o.Limit)*float64(o.Keys) <= maxBurst,
			"bursts of %d clients of a limit of %d: want at most %d in all", o.Keys, o.Limit, maxBurst),
		require(o.Start == 0 || o.Start >= int64(time.Hour), "a start %v after the epoch: want 0s, or at least an hour",
			time.Duration(o.Start)),
		inRange("a duration of %v", o.Duration, 1, maxDuration),
		require(o.Trace != nil || o.requests() <= maxRequests, "%.0f million requests: want at most %d million",
			o.requests()/1e6, int(maxRequests/1e6)),
		require(o.Trace == nil || o.Trace.Regions <= o.Regions && o.Trace.Nodes <= o.Nodes,
			"the trace names more regions or nodes than %d of %d", o.Regions, o.Nodes),
		inRange("delays of %v between regions", o.WANDelay, 0, 10*time.Second),
		inRange("delays of %v in a region", o.LANDelay, 0, 10*time.Second),
		inRange("a jitter of %v", o.Jitter, 0, 1),
		inRange("a loss of %v", o.Loss, 0, 1),
		inRange("a duplication of %v", o.Duplicate, 0, 1),
		inRange("a reordering of %v", o.Reorder, 0, 1),
		inRange("a skew of %v", o.Skew, 0, time.Hour),
	}
	for _, p := range o.Partitions {
		errs = append(errs, p.validate(o.Regions))
	}
	for _, f := range o.NodeFaults {
		errs = append(errs, f.validate(o.Regions))
	}
	for _, f := range o.StoreFaults {
		errs = append(errs, f.validate(o.Regions))
	}
	for _, f := range slices.Concat(o.Pauses, o.Crashes) {
		errs = append(errs, require(f.Node >= 0 && f.Node < o.Total() && f.From >= 0 && f.Until >= f.From,
			"an outage of node %d from %v until %v", f.Node, f.From, f.Until))
	}
	return errors.Join(errs...)
}

// require returns an error unless ok.
func require(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func inRange[T cmp.Ordered](what string, value, least, largest T) error {
	ok := least <= value && value <= largest
	return require(ok, "%s: want %v to %v", fmt.Sprintf(what, value), least, largest)
}

func oneOf[T ~string](what string, value T, known []T) error {
	return require(slices.Contains(known, value), "%s: want one of %q", fmt.Sprintf(what, value), known)
}

// requests is how many requests are to be expected.
func (o *Options) requests() float64 {
	windows := o.Duration.Seconds() / o.Window.Seconds()
	load := o.Pattern.load(o.Load)*float64(o.Keys) + keepsTo*float64(o.Compliant)
	return math.Ceil(load * float64(o.Limit) * windows)
}

func newLimit(o *Options) (*counters.Limit, error) {
	return counters.LimitConfig{Meter: counters.NewMeter("sim/per_client", o.Method, o.Window), Max: o.Limit,
		OnPartition: o.OnPartition}.New()
}

// hasOwners reports whether owners of keys add up: in a smaller cluster every node sends to every other one.
func (o *Options) hasOwners() bool { return o.Total() > 16 }

// origins is how many origins a node holds slots of, of one key: all others, or, of an owner, the members of its region
// and the other regions, and as many that were so before.
func (o *Options) origins() int {
	if o.hasOwners() {
		return min(o.Total(), 2*(o.Nodes+o.Regions))
	}
	return o.Total()
}

// CollectSoon has the process collect garbage when it is a tenth of the heap, for simulations of many nodes: their
// tables take address space that they hardly touch, which the collector takes for memory in use. Without it, 1,500
// nodes leave 20 GB of garbage.
func CollectSoon() { debug.SetGCPercent(10) }

// newTable returns a table for slots of so many origins.
func newTable(o *Options, origin counters.Origin, origins int) *counters.Table {
	// Room for all keys with slots of every origin in every sub-window, twice, and for four in each of the 64 shards:
	// none is ever evicted.
	key := 256 + 16*origins*(counters.DefaultSubWindows+2)
	if o.Method == counters.SlidingLog {
		key += 16 * int(o.Limit) // an entry a request
	}
	memory := min(counters.MinMemory+(4*64+2*o.clients())*key, counters.MaxMemory)
	return counters.NewTable(counters.Config{Origin: origin, Seed: o.Seed ^ uint64(origin), Memory: memory})
}

// countedFor is how long an admission counts at most, for the node whose clock is furthest behind: a sliding window
// counts what came in a sub-window for as long as any of it may overlap.
func (o *Options) countedFor() time.Duration {
	limit, err := newLimit(o)
	if err != nil {
		panic(err) // Validate has made one
	}
	d := o.Window + 2*o.Skew
	if o.Method == counters.SlidingWindow {
		d += limit.Meter().Sub
	}
	return d
}

// Algorithms are all of them. A bucket holds the limit, and gets it back in each window.
var Algorithms = []counters.Algorithm{
	counters.SlidingWindow, counters.FixedWindow, counters.SlidingLog, counters.TokenBucket, counters.LeakyBucket,
	counters.LeakyQueue,
}

// ParsePolicy returns the policy for partitions of a name as rule files use it.
func ParsePolicy(name string) (counters.Partition, error) {
	if p, ok := counters.ParsePartition(name); ok {
		return p, nil
	}
	return 0, fmt.Errorf("unknown policy for partitions %q: want %v or %v", name, counters.Share, counters.Local)
}

// ParseAlgorithm returns the algorithm of a name as rule files use it; leaky_queue is a leaky_bucket with queue: true.
func ParseAlgorithm(name string) (counters.Algorithm, error) {
	if a, ok := counters.ParseAlgorithm(name); ok {
		return a, nil
	}
	return 0, fmt.Errorf("unknown algorithm %q: want one of %v", name, Algorithms)
}

// setting is a flag of `edgelimit sim`, and its value.
type setting struct {
	name  string
	value any
}

func (o *Options) settings() []setting {
	return []setting{
		{"regions", o.Regions}, {"nodes", o.Nodes}, {"limit", o.Limit}, {"window", o.Window}, {"interval", o.Interval},
		{"algorithm", o.Method}, {"strategy", o.Strategy}, {"on-partition", o.OnPartition}, {"pattern", o.Pattern},
		{"load", o.Load}, {"burst", o.Burst}, {"burst-at", o.BurstAt}, {"keys", o.Keys}, {"beside", o.Compliant},
		{"wan-delay", o.WANDelay}, {"lan-delay", o.LANDelay}, {"loss", o.Loss}, {"duplicate", o.Duplicate},
		{"reorder", o.Reorder}, {"skew", o.Skew}, {"duration", o.Duration}, {"seed", o.Seed},
	}
}

// Flags is the command line of `edgelimit sim` that simulates the options, as far as it has flags for them: those that
// are not as usual.
func (o *Options) Flags() (flags []string) {
	usual := DefaultOptions()
	if o.Pattern == CompliantBurst {
		usual.Keys = BurstKeys
	}
	if !o.Pattern.HasLoad() {
		usual.Load = o.Load // the command refuses it
	}
	for i, f := range o.settings() {
		if f.name == "duration" { // faults come before it
			for _, p := range o.Partitions {
				flags = append(flags, "--partition", p.String())
			}
			for _, f := range o.NodeFaults {
				flags = append(flags, "--node-fault", f.String())
			}
			for _, f := range o.StoreFaults {
				flags = append(flags, "--redis-fault", f.String())
			}
		}
		if f != usual.settings()[i] {
			flags = append(flags, "--"+f.name, fmt.Sprint(f.value))
		}
	}
	return flags
}
