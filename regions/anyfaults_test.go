package regions_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Whatever happens to the store and in whatever order: two flushes after it works again nothing is lost, nothing was
// ever counted twice, and a cold node starts with the truth. The faults follow from the seed; when flushes happen among
// them does not.
func TestAnyFaults(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			testkit.VirtualTime(t, func(t *testing.T) { anyFaults(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func anyFaults(t *testing.T, random *rand.Rand) {
	f := regionstest.NewFaulty(embedded)
	var nodes []node
	for origin := range 3 {
		nodes = append(nodes, start(t, counters.Origin(origin+1), f, func(c *regions.Config) {
			c.MaxPending, c.Chunk = 20+random.IntN(100), 1+random.IntN(40)
		}))
	}
	for range 300 {
		for _, n := range nodes {
			if random.IntN(3) > 0 {
				n.take(&hour, keys(1+random.IntN(1+random.IntN(120)))...)
			}
		}
		switch random.IntN(20) {
		case 0:
			f.Set(regionstest.Fault(random.IntN(int(regionstest.AnswerLost) + 1)))
		case 1:
			f.Set(regionstest.Works)
		case 2:
			testkit.Must(t, f.Save())
		case 3:
			lapses[random.IntN(len(lapses))].lapse(t, f)
		}
		time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
	}
	f.Set(regionstest.Works)
	time.Sleep(1250 * time.Millisecond) // the cool-down and a call that hangs: the first flush
	flushes(1)
	agree(t, f, nodes...)

	truth := held(t, f)
	for _, n := range nodes {
		for at, count := range n.counts() {
			if count > truth[at] {
				t.Errorf("origin %d believes %d of key %d, the truth is %d", n.own, count, at.key, truth[at])
			}
		}
	}
	cold := start(t, 9, f, nil)
	testkit.Must(t, cold.Warm(t.Context()))
	if !maps.Equal(cold.counts(), truth) {
		t.Errorf("a cold node started with %d slots, want %d", len(cold.counts()), len(truth))
	}
}
