// Package sim is a deterministic simulator of a cluster: the real code of counters, the gossip state machine and the
// reconciler of a region, on virtual time, over a network that delays, loses, duplicates, reorders and cuts, with
// clocks that differ and nodes that pause, crash and start again, and stores that fail as a Redis does. There is no
// socket, no clock, and nothing happens at once with something else. The same [Options] give the same run, byte for
// byte.
//
// Each concern draws from a random stream of its own, so that turning a fault on does not change when and where
// requests arrive.
//
// # What is real and what is a model
//
// Real: decisions and merges (counters.Table), frames, acknowledgements, repair, snapshots and the bound
// (gossip.Replica, gossip.Peak), and, with [Options].Store, the reconciler of each region (regions.Reconciler).
//
// A model: memberlist. A member that cannot be reached, not even through a third region, is given up after as long as
// memberlist takes for it with its defaults, and joined again as the rejoin loop does it. Packets travel alone; how
// long a machine takes for them is not simulated, and neither is memberlist's own traffic. Tables are large enough to
// forget nobody. The store of a region is an embedded one, and a [StoreFault] is what befalls it; it is told of every
// key, while a node tells it of those that are past a part of their limit.
//
// # Figures
//
// Every request is asked of the oracle as well: the same algorithm with zero-latency global knowledge (testnet/judge).
// Percentages are of the limit L unless said otherwise; [Report] explains each.
//
// They mean the same for every algorithm. Net is what was admitted against what the oracle would have on the same
// arrivals. Peak is the most by which a rolling window of W was fuller than the oracle's own of the same time, or than
// L where that is more: where an algorithm itself lets a rolling window hold more than L (a bucket that is full at
// first, two fixed windows that meet, a sub-window that came unevenly), that is the algorithm's and not the
// replication's. Excess and bound are about the algorithm's own count: of a bucket its debt, with L for its capacity. A
// queue is judged by when it lets requests in.
package sim
