package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// wide cuts a region off under a load that is small enough for twenty containers on one machine. It counts to the last
// request, where partition judges by windows: so it is for clusters of any size.
func wide(lasts time.Duration) Scenario {
	return Scenario{
		Name: "wide", What: "a region is cut off the WAN under a small load, for clusters of any size: in the end " +
			"every node counts every request",
		Rule: accountRule, Streams: []traffic.Stream{{Identity: ownClient, Rate: 20}},
		// In a large cluster a node learns what the others count of a client when it is asked for it: by the load.
		Unprimed: true, Timeout: 10 * time.Second,
		Steps: []Step{
			wait("load in all regions", 5*time.Second),
			{fmt.Sprintf("partition %s for %v", faultRegion, lasts), func(ctx context.Context, r *Run) error {
				r.partition = partitionFault{way: cluster.Both, lasts: lasts}
				return r.partition.begin(ctx, r)
			}},
			{"count what crosses the partition", markSides},
			{"the rest of the partition", func(ctx context.Context, r *Run) error {
				return sleep(ctx, lasts-time.Since(r.partition.began))
			}},
			{"heal", heal},
			wait("load after the heal", 3*time.Second),
		},
		Takes: lasts + 60*time.Second,
		Check: checkWide,
	}
}

func checkWide(r *Run) {
	p := &r.partition
	r.AssertWithin("membership is complete again", "whole_s", p.complete, completeWithin)
	r.AssertWithin("then all nodes count what was admitted in the partition", "agree_after_heal_s", p.agreed,
		agreeWithin)
	admitted := r.Admitted(r.ID(ownClient), "")
	counts, err := r.Counts(context.Background(), r.rule.Name, r.ID(ownClient))
	wrong := 0
	for _, n := range counts {
		if n != admitted {
			wrong++
		}
	}
	r.Assert("in the end all nodes count what was admitted", wrong == 0 && len(counts) == len(r.Nodes) &&
		admitted > 0, fmt.Sprintf("%d at %d nodes", admitted, len(r.Nodes)), "%d of %d wrong: %v%s", wrong,
		len(counts), counts, errorText(err))
	r.Figure("nodes", float64(len(r.Nodes)))
}
