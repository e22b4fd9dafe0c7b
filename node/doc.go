// Package node is the embeddable runtime of edgelimit: one node that matches requests against rules, decides in its own memory, and
// keeps its counts in agreement with its peers and with the store of its region.
//
// A request goes one way: door -> [Node.Decide] -> rules.Set.Match -> counters.Table -> decision -> door. Beside it, never in its
// way, deltas go Table.DrainDirty -> gossip -> peers -> Table.Merge, and Table -> regions.Reconciler -> store -> Table.Merge.
//
//	n, err := node.New(cfg)            // opens what cfg names
//	go n.Run(ctx)                      // until ctx ends, then stops in order
//	d, err := n.Take(ctx, node.Request{Rule: "per_ip", Identity: "192.0.2.1"})
package node
