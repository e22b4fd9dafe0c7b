package plan

import (
	"context"
	"fmt"

	"github.com/edgelimit/edgelimit/testnet/sim"
)

// MixedLoad is the load of many keys that deployments are compared by: 6,667 live keys a node and as many requests a
// second, 5 % of the keys in three regions, and 5 % at two nodes of a region.
func MixedLoad(regions, nodes int) sim.Load {
	l := sim.Load{Options: sim.DefaultOptions(), Overlap: 0.05, KeysTotal: regions * nodes * 10_000_000 / 1500}
	l.Regions, l.Nodes, l.Keys = regions, nodes, 0
	return l
}

// HotLoad is so many keys that are hot at every node, at twice the limit in all.
func HotLoad(regions, nodes, keys int) sim.Load {
	l := sim.Load{Options: sim.DefaultOptions()}
	l.Regions, l.Nodes, l.Keys = regions, nodes, keys
	return l
}

// CurveSizes are the clusters of the curve, as regions and nodes in each: 12, 50, 120, 500 and 1,500 nodes.
var CurveSizes = [][2]int{{3, 4}, {5, 10}, {3, 40}, {10, 50}, {30, 50}}

// Curve returns a table of what a node needs in clusters of those sizes, under the mixed load, beside what it would
// need in a full mesh.
func Curve(ctx context.Context, sizes [][2]int) (head []string, rows [][]string, err error) {
	head = []string{
		"nodes", "Mbit/s", "messages/s", "% of a core", "MiB", "busiest: Mbit/s", "mesh: Mbit/s", "mesh: messages/s",
		"mesh: % of a core", "mesh: MiB",
	}
	for _, size := range sizes {
		r, err := Compute(ctx, MixedLoad(size[0], size[1]), DefaultBudget())
		if err != nil {
			return nil, nil, err
		}
		rows = append(rows, []string{
			fmt.Sprintf("%s (%d x %d)", thousands(float64(size[0]*size[1])), size[0], size[1]),
			Figure(r.Mean.MbitOut), Figure(r.Mean.MessagesOut), Figure(r.Mean.CPU.Total()), Figure(r.Mean.MiB),
			Figure(r.Busiest.MbitOut),
			Figure(r.Mesh.MbitOut), Figure(r.Mesh.MessagesOut), Figure(r.Mesh.CPU.Total()), Figure(r.Mesh.MiB),
		})
	}
	return head, rows, nil
}
