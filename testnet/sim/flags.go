package sim

import "fmt"

// Flags is the command line of `edgelimit sim` that simulates the options, as far as it has flags for them: those that are not as usual.
func (o *Options) Flags() []string {
	var flags []string
	usual := DefaultOptions()
	flag := func(name string, value, usual any) {
		if value != usual {
			flags = append(flags, "--"+name, fmt.Sprint(value))
		}
	}
	flag("regions", o.Regions, usual.Regions)
	flag("nodes", o.Nodes, usual.Nodes)
	flag("limit", o.Limit, usual.Limit)
	flag("window", o.Window, usual.Window)
	flag("interval", o.Interval, usual.Interval)
	flag("algorithm", o.Method, usual.Method)
	flag("strategy", o.Strategy, usual.Strategy)
	flag("on-partition", o.OnPartition, usual.OnPartition)
	flag("pattern", o.Pattern, usual.Pattern)
	if o.Pattern.HasLoad() {
		flag("load", o.Load, usual.Load)
	}
	if o.Pattern == CompliantBurst {
		flag("burst", o.Burst, usual.Burst)
		flag("burst-at", o.BurstAt, usual.BurstAt)
		flag("keys", o.Keys, BurstKeys)
	} else {
		flag("keys", o.Keys, usual.Keys)
	}
	flag("beside", o.Beside, usual.Beside)
	flag("wan-delay", o.WANDelay, usual.WANDelay)
	flag("lan-delay", o.LANDelay, usual.LANDelay)
	flag("loss", o.Loss, usual.Loss)
	flag("duplicate", o.Duplicate, usual.Duplicate)
	flag("reorder", o.Reorder, usual.Reorder)
	flag("skew", o.Skew, usual.Skew)
	for _, p := range o.Partitions {
		flag("partition", p.String(), "")
	}
	for _, f := range o.StoreFaults {
		flag("redis-fault", f.String(), "")
	}
	flag("duration", o.Duration, usual.Duration)
	flag("seed", o.Seed, usual.Seed)
	return flags
}
