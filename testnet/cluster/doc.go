// Package cluster drives the cluster of docker-compose.multiregion.yml through the docker and compose commands of this
// machine: it builds the images, starts the containers, injects faults and observes the nodes.
//
//	c, err := cluster.Open(cluster.Options{Root: "."})
//	err = c.Up(ctx)                                     // until all nodes see each other
//	nodes, err := c.Nodes(ctx)                          // their APIs and metrics, as URLs
//	err = c.Partition(ctx, "eu-west", cluster.Both)
//	err = c.Heal(ctx)                                   // until all nodes see each other again
//	err = c.Down(ctx)
//
// Every fault is verified: a method that returns nil has observed in the engine, in the node or in both that the fault
// is in force (or gone). The package keeps no state of its own. It asks the engine each time, by the label of the
// compose project, and touches nothing else on the machine.
package cluster
