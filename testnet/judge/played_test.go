package judge_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/sim"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const (
	playedLimit = 300
	trafficFor  = 11 * time.Second
)

// play simulates six nodes in three regions, and returns the record: of a client that asks for twice its limit,
// "greedy", and one that keeps to it, "steady". With cut, region 2 is partitioned from 4 s until 8 s.
func play(t testing.TB, pattern sim.Pattern, cut bool, seed uint64) (record.Header, []record.Entry) {
	t.Helper()
	o := sim.DefaultOptions()
	o.Nodes, o.Limit, o.Window, o.Pattern, o.Compliant, o.Seed = 2, playedLimit, 5*time.Second, pattern, 1, seed
	o.Duration = trafficFor
	if cut {
		o.Partitions = []sim.Partition{{A: 2, From: 4 * time.Second, Until: 8 * time.Second}}
		o.OnPartition = counters.Local
	}
	h, entries, err := sim.Record(context.Background(), o)
	testkit.Must(t, err)
	names := map[string]string{"0": "greedy", "1": "steady"}
	for _, e := range entries {
		switch {
		case e.Decision != nil:
			e.Decision.Identity = names[e.Decision.Identity]
		case e.Observation != nil:
			counts := maps.Clone(e.Observation.Counts)
			clear(e.Observation.Counts)
			for id, count := range counts {
				e.Observation.Counts[names[id]] = count
			}
		}
	}
	return h, entries
}
