// Package demo runs a whole multi-region cluster in one process, offers it more than its limit, cuts a region off and heals it, and
// compares what was admitted with what the same algorithm would have admitted with instant global knowledge (the oracle).
//
// The nodes are real: they gossip over sockets on loopback, each through a transport that can be told to cut it off.
package demo

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/accesslog"
)

// Options say what is demonstrated.
type Options struct {
	Regions  int           // how many regions
	Nodes    int           // nodes in each
	Limit    uint64        // requests per window, of one client over the whole cluster
	Window   time.Duration //
	Interval time.Duration // T: how often nodes tell each other what they admitted
	Load     float64       // offered by all nodes together, as a multiple of the limit; unused with Log
	Duration time.Duration // how long requests come
	Cut      time.Duration // how long one region is cut off; 0: not at all
	Seed     uint64        // of arrivals and their distribution over the nodes
	// OnPartition is what either side of a cut does with the limit.
	OnPartition counters.Partition
	// Log, if any, is offered instead of generated requests: an access log, sped up to last Duration. Each address is a client.
	Log []accesslog.Entry
}

// DefaultOptions are those of the demo without flags: the main job in well under a minute.
func DefaultOptions() Options {
	return Options{
		Regions: 3, Nodes: 2, Limit: 1000, Window: 10 * time.Second, Interval: 100 * time.Millisecond,
		Load: 2, Duration: 36 * time.Second, Cut: 8 * time.Second, Seed: 1,
	}
}

// DefaultLogLimit is the limit for traffic from a log unless another is asked for: per address, where the generated traffic is that
// of one busy client.
const DefaultLogLimit = 50

// Validate reports everything that is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	for _, p := range []struct {
		wrong bool
		say   string
	}{
		{o.Regions < 1 || o.Nodes < 1 || o.Regions > 64 || o.Nodes > 64 || o.Regions*o.Nodes > 64, fmt.Sprintf("%d regions of %d nodes: want 1 to 64 nodes in all", o.Regions, o.Nodes)},
		{o.Limit < 1 || o.Limit > 1e6, fmt.Sprintf("a limit of %d: want 1 to 1000000", o.Limit)},
		{o.Window < time.Second || o.Window > time.Hour, fmt.Sprintf("a window of %v: want 1s to 1h", o.Window)},
		{o.Interval > o.Window/4, fmt.Sprintf("an interval of %v for a window of %v: want at most a quarter of it", o.Interval, o.Window)},
		{o.Interval < 10*time.Millisecond || o.Interval > 5*time.Second, fmt.Sprintf("an interval of %v: want 10ms to 5s", o.Interval)},
		{!(o.Load >= 0.01 && o.Load <= 1000), fmt.Sprintf("a load of %g: want 0.01 to 1000", o.Load)},
		{o.Duration < time.Second || o.Duration > time.Hour, fmt.Sprintf("a duration of %v: want 1s to 1h", o.Duration)},
		{o.Cut < 0 || o.Cut > o.Duration/2, fmt.Sprintf("a cut of %v in %v: want at most half of it", o.Cut, o.Duration)},
		{o.Cut > 0 && o.Regions < 2, "a cut needs at least two regions; use --cut 0s with one"},
	} {
		if p.wrong {
			errs = append(errs, errors.New(p.say))
		}
	}
	return errors.Join(errs...)
}

// schedule is when, after the start, the cut begins and ends; both 0 without one. Before it the window can fill and settle, after it
// the excess can leave the window.
func (o *Options) schedule() (cut, heal time.Duration) {
	if o.Cut == 0 {
		return 0, 0
	}
	free := o.Duration - o.Cut
	cut = min(o.Window*14/10, free/2)
	return cut, cut + o.Cut
}

// regionName names the regions as the compose testnet does, and goes on from there.
func regionName(i int) string {
	names := []string{"us-east", "eu-west", "ap-south"}
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("region-%d", i+1)
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
	log := o.sortedLog()
	return (log[len(log)-1].Time.Sub(log[0].Time) + time.Second).Seconds() / o.Duration.Seconds()
}

// sortedLog is the log in the order of time: servers write requests when they end.
func (o *Options) sortedLog() []accesslog.Entry {
	log := slices.Clone(o.Log)
	slices.SortStableFunc(log, func(a, b accesslog.Entry) int { return a.Time.Compare(b.Time) })
	return log
}
