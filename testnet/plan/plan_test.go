package plan

import (
	"fmt"
	"math"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/sim"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// simulated is what each node sends on average in a simulation of a load with all of its keys and nodes.
func simulated(t *testing.T, l sim.Load) (messages, mbit float64, s *sim.Sample) {
	t.Helper()
	l.MaxNodes, l.MaxRequests = l.Total(), 1e9
	s, err := sim.TakeSample(t.Context(), l)
	testkit.Must(t, err)
	if s.OneIn != 1 || s.StandIns != 0 || s.HotKeys != l.Keys {
		t.Fatalf("not all is simulated: %+v", s)
	}
	for i := range s.Region {
		for j, frames := range s.Region[i].SimFrames {
			messages += frames / float64(len(s.Region))
			mbit += (s.Region[i].SimBytes[j] + frames*packetBytes) * 8 / 1e6 / float64(len(s.Region))
		}
	}
	return messages, mbit, s
}

// A plan from a sample is what a simulation of everything shows, within 25 % of messages and bytes and 15 % of memory.
func TestPlanAgreesWithSimulation(t *testing.T) {
	load := func(regions, nodes, keysOfNode int, requests float64) sim.Load {
		l := MixedLoad(regions, nodes)
		l.KeysTotal, l.Requests, l.MaxRequests, l.MaxNodes = regions*nodes*keysOfNode, requests, 800, 20
		return l
	}
	hot := HotLoad(3, 20, 12)
	hot.MaxRequests, hot.MaxNodes = 3000, 20
	rows := []sim.Load{
		load(3, 4, 400, 100),  // a mesh
		load(3, 20, 100, 100), // owners, and a node for each other region
		load(3, 20, 100, 20),
		load(5, 13, 60, 150),
		hot,
	}
	for _, l := range rows {
		t.Run(fmt.Sprintf("%dx%d, %g requests, %d hot", l.Regions, l.Nodes, l.Requests, l.Keys), func(t *testing.T) {
			r, err := Compute(t.Context(), l, DefaultBudget())
			testkit.Must(t, err)
			if r.Sampled.OneIn < 2 && r.Sampled.HotKeys == l.Keys || r.Owners != (r.Sampled.StandIns > 0) {
				t.Errorf("sampled is %+v", r.Sampled)
			}
			messages, mbit, all := simulated(t, l)
			exact := (&model{&l, all}).mean(1)
			if !r.Owners {
				exact = (&model{&l, all}).mesh(1)
			}
			for _, x := range []struct {
				what             string
				plan, want, most float64
			}{
				{"messages", r.Mean.MessagesOut, messages, 0.25}, {"Mbit/s", r.Mean.MbitOut, mbit, 0.25},
				{"MiB", r.Mean.MiB - mebibytes(0), exact.MiB - mebibytes(0), 0.15},
				{"merging", r.Mean.CPU.Merging, exact.CPU.Merging, 0.15},
			} {
				t.Logf("%s: planned %.3g, simulated %.3g", x.what, x.plan, x.want)
				if off := math.Abs(x.plan/x.want - 1); off > x.most {
					t.Errorf("%s: planned %.3g, simulated %.3g: more than %g apart", x.what, x.plan, x.want, x.most)
				}
			}
		})
	}
}

// A node of 1,500 keeps to its budget, on average: of the mixed load 10 Mbit/s, 1,500 messages/s, 10 % of a core and
// 256 MiB, and of 1,000 keys that are hot everywhere 15 Mbit/s. A full mesh needs ten times the messages, and eight
// times the bytes.
func TestBudgets(t *testing.T) {
	rows := []struct {
		load           sim.Load
		mbit, messages float64
	}{
		{MixedLoad(30, 50), 10, 1500},
		{HotLoad(30, 50, 1000), 15, math.Inf(1)},
	}
	for _, row := range rows {
		row.load.MaxRequests = 10_000 // of fewer, one key stands for a thousand, and the busiest node is where one fell
		r, err := Compute(t.Context(), row.load, Budget{Mbit: row.mbit, CPU: 10, MiB: 256})
		testkit.Must(t, err)
		c := r.Mean
		t.Logf("mean %+v, busiest %+v", c, r.Busiest)
		if max(c.MbitOut, c.MbitIn) > row.mbit || c.MessagesOut > row.messages || c.CPU.Total() > 10 || c.MiB > 256 {
			t.Errorf("a node needs %+v", c)
		}
		if r.Busiest.MbitOut > row.mbit || r.Busiest.MiB > 256 {
			t.Errorf("the busiest node needs %+v", r.Busiest)
		}
		if r.Mesh.MbitOut < 8*c.MbitOut || r.Mesh.MessagesOut < 10*c.MessagesOut {
			t.Errorf("a full mesh needs %+v, little more than %+v", r.Mesh, c)
		}
	}
}
