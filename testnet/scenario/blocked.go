package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// What has to hold while a firewall lets one protocol of gossip pass and not the other.
const (
	blockedFor     = 65 * time.Second // a window of the rule, and the time that nodes need to notice
	blockedExcess  = 10               // percent of the limit, by the algorithm's own count
	blockedChanges = 2                // of what a node says of its decisions, in any minute
)

// blocking closes one protocol between a region and the others, while a client asks for twelve times its limit.
func blocking(name, what string, protocol cluster.Protocol, way cluster.Direction) Scenario {
	return Scenario{
		Name: name, What: what + ": what is blocked has a name, counts go the other way, and the limit holds",
		Rule: "per_ip", Streams: []traffic.Stream{{Identity: ownClient, Rate: 20, Spacing: traffic.Even}},
		Steps: []Step{
			wait("load in all regions", 8*time.Second),
			{fmt.Sprintf("block %s of %s (%s) for %v", protocol, faultRegion, way, blockedFor),
				func(ctx context.Context, r *Run) error { return r.block(ctx, protocol, way) }},
			{"open it again", func(ctx context.Context, r *Run) error { return r.End(ctx) }},
			wait("load after that", 3*time.Second),
		},
		Takes: blockedFor + 45*time.Second,
		Check: checkBlocked,
	}
}

// block closes a protocol, and observes the nodes all the while.
func (r *Run) block(ctx context.Context, protocol cluster.Protocol, way cluster.Direction) error {
	began := time.Now()
	r.blocked = make(map[string][]cluster.Observation)
	watching, stop := context.WithDeadline(ctx, began.Add(blockedFor))
	defer stop()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for watching.Err() == nil {
			for _, n := range r.Nodes {
				if o, err := r.Cluster.Observe(watching, n); err == nil {
					r.blocked[n.Name] = append(r.blocked[n.Name], o)
				}
			}
			_ = sleep(watching, 500*time.Millisecond)
		}
	}()
	err := r.Begin(ctx, "block "+string(protocol), faultRegion,
		func(c Cluster, ctx context.Context, region string) error { return c.Block(ctx, region, protocol, way) },
		func(c Cluster, ctx context.Context, _ string) error { return c.Heal(ctx) })
	if err != nil {
		stop()
		<-watched
		return err
	}
	r.Observed("every node named what is blocked after %.1f s", time.Since(began).Seconds())
	r.Figure("named_s", time.Since(began).Seconds())
	<-watched
	return context.Cause(ctx)
}

func checkBlocked(r *Run) {
	samples, loose := 0, 0
	changes, node := 0, ""
	for _, n := range r.Nodes {
		all := r.blocked[n.Name]
		samples += len(all)
		for _, o := range all {
			for rule, over := range o.Overs {
				if over > o.Bounds[rule] {
					loose++
				}
			}
		}
		if most := changesInAMinute(all); most > changes {
			changes, node = most, n.Name
		}
	}
	r.Assert("a node does not flicker between degraded and not", changes <= blockedChanges,
		fmt.Sprintf("at most %d changes in a minute", blockedChanges), "%d %s", changes, node)
	r.Figure("changes_a_minute", float64(changes))
	r.Assert("what is guaranteed is never below what is estimated", loose == 0 && samples >= 20*len(r.Nodes),
		"0 samples, of 20 a node at least", "%d of %d", loose, samples)
	excess, admitted := r.Report.Total.ExcessPct, r.Admitted(r.ID(ownClient), "")
	r.Assert("the limit holds", excess <= blockedExcess && admitted >= 100,
		fmt.Sprintf("at least 100 admitted, at most %d %% over the limit", blockedExcess), "%d, %.1f %%", admitted,
		excess)
}

// changesInAMinute is how often a node became degraded or ceased to be, in the minute in which it did so most.
func changesInAMinute(all []cluster.Observation) (most int) {
	var at []time.Time
	for i := 1; i < len(all); i++ {
		if all[i].Degraded == all[i-1].Degraded {
			continue
		}
		at = append(at, all[i].At)
		for all[i].At.Sub(at[0]) >= time.Minute {
			at = at[1:]
		}
		most = max(most, len(at))
	}
	return most
}
