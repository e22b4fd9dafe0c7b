// Package fleet runs a large cluster on one machine: each node a process of its own, each region with a Redis, all on
// loopback. It offers load, measures how old and how right what the nodes know is, and restarts every node in turn.
//
// The nodes share the processors with the load. So a run measures how long it was kept from running itself: where that
// is longer than a gossip interval, staleness says more of the machine than of the nodes, and is not judged.
package fleet
