// Package demo runs a whole multi-region cluster in one process, offers it more than its limit, partitions a region and
// heals it, and compares what was admitted with what the same algorithm would have admitted with instant global
// knowledge (the oracle).
//
// The nodes are real: they gossip over sockets on loopback, each through a transport that can drop what it sends.
package demo

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/replay"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// Options say what is demonstrated.
type Options struct {
	Regions   int           // how many regions
	Nodes     int           // nodes in each
	Limit     uint64        // requests per window, of one client over the whole cluster
	Window    time.Duration //
	Interval  time.Duration // T: the gossip interval
	Load      float64       // offered by all nodes together, as a multiple of the limit; unused with Log
	Duration  time.Duration // how long requests come
	Partition time.Duration // how long one region is partitioned; 0: not at all
	Seed      uint64        // of arrivals and their distribution over the nodes
	// OnPartition is what either side of a partition does with the limit.
	OnPartition counters.Partition
	// Log, if any, is offered instead of generated requests: an access log, sped up to last Duration. Each address is a
	// client.
	Log []replay.Entry
}

// DefaultOptions are those of the demo without flags: the whole story in well under a minute.
func DefaultOptions() Options {
	return Options{
		Regions: 3, Nodes: 2, Limit: 1000, Window: 10 * time.Second, Interval: 100 * time.Millisecond,
		Load: 2, Duration: 36 * time.Second, Partition: 8 * time.Second, Seed: 1,
	}
}

// DefaultLogLimit is the limit for traffic from a log unless another is asked for: per address, where the generated
// traffic is that of one busy client.
const DefaultLogLimit = 50

// Validate reports everything that is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	within := func(d, from, to time.Duration) bool { return d >= from && d <= to }
	check(o.Regions >= 1 && o.Nodes >= 1 && o.Regions <= 64 && o.Nodes <= 64 && o.Regions*o.Nodes <= 64,
		"%d regions of %d nodes: want 1 to 64 nodes in all", o.Regions, o.Nodes)
	check(o.Limit >= 1 && o.Limit <= 1e6, "a limit of %d: want 1 to 1000000", o.Limit)
	check(within(o.Window, time.Second, time.Hour), "a window of %v: want 1s to 1h", o.Window)
	check(o.Interval <= o.Window/4, "an interval of %v for a window of %v: want at most a quarter of it",
		o.Interval, o.Window)
	check(within(o.Interval, 10*time.Millisecond, 5*time.Second), "an interval of %v: want 10ms to 5s", o.Interval)
	check(o.Load >= 0.01 && o.Load <= 1000, "a load of %g: want 0.01 to 1000", o.Load)
	check(within(o.Duration, time.Second, time.Hour), "a duration of %v: want 1s to 1h", o.Duration)
	check(within(o.Partition, 0, o.Duration/2), "a partition of %v in %v: want at most half of it",
		o.Partition, o.Duration)
	check(o.Partition <= 0 || o.Regions >= 2, "a partition needs at least two regions; use --cut 0s with one")
	return errors.Join(errs...)
}

// schedule returns when, after the start, the partition begins and ends; both 0 without one. Before it the window can
// fill and settle, after it the excess can leave the window.
func (o *Options) schedule() (begin, heal time.Duration) {
	if o.Partition == 0 {
		return 0, 0
	}
	begin = min(o.Window*14/10, (o.Duration-o.Partition)/2)
	return begin, begin + o.Partition
}

// regionName names the regions as the compose testnet does, and goes on from there.
func regionName(i int) string {
	names := []string{"us-east", "eu-west", "ap-south"}
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("region-%d", i+1)
}

// compliant is the client that keeps to its limit. No log names one so: names have no spaces in them.
const compliant = "the compliant client"

// arrivals returns what is offered: the log, or a client that asks for Load times the limit and beside it a compliant
// one.
func (o *Options) arrivals() traffic.Source {
	r, nodes := rand.New(rand.NewPCG(o.Seed, 2)), o.Regions*o.Nodes
	if len(o.Log) > 0 {
		return traffic.Replay(o.sortedLog(), o.Duration, nodes, r)
	}
	load := traffic.Stream{Identity: "client", Rate: o.Load * float64(o.Limit) / o.Window.Seconds()}
	beside := traffic.Compliant(compliant, o.Limit, o.Window, nodes)
	return traffic.Merge(load.Arrivals(nodes, r), beside).Until(o.Duration)
}

// planned is how many requests should come.
func (o *Options) planned() float64 {
	if len(o.Log) > 0 {
		return float64(len(o.Log))
	}
	return o.Load * float64(o.Limit) * o.Duration.Seconds() / o.Window.Seconds()
}

// Speed is how many times faster than it happened the log is offered; 1 without one.
func (o *Options) Speed() float64 {
	if len(o.Log) == 0 {
		return 1
	}
	return traffic.LogSpan(o.sortedLog()).Seconds() / o.Duration.Seconds()
}

// sortedLog is the log in the order of time: servers write requests when they end.
func (o *Options) sortedLog() []replay.Entry {
	log := slices.Clone(o.Log)
	slices.SortStableFunc(log, func(a, b replay.Entry) int { return a.Time.Compare(b.Time) })
	return log
}
