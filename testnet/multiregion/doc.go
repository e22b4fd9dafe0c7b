// Package multiregion runs the testnet of docker-compose.multiregion.yml and makes its faults.
//
//	net := multiregion.Open(multiregion.Options{Root: "."})
//	err := net.Up(ctx)                                  // until all nodes see each other
//	nodes, err := net.Nodes(ctx)                        // their doors and metrics, as URLs
//	err = net.Partition(ctx, "eu-west", multiregion.Both)
//	err = net.Heal(ctx)                                 // until all nodes see each other again
//	err = net.Down(ctx)
//
// Every fault is checked: a method that returns nil has seen in the engine, in the node or in both that the fault is there (or gone).
// What the testnet is made of is read from the engine each time, by the label of the compose project: there is no state of its own
// that could be wrong, and nothing else on the machine is touched.
package multiregion
