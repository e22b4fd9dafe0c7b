// Package sim is a deterministic simulator of a cluster: the real code of counters, the gossip state machine and the
// reconciler of a region, on virtual time, over a network that delays, loses, duplicates, reorders and partitions, with
// clocks that differ, nodes that pause, crash and start again, and stores that fail as a Redis does. There is no
// socket and no clock, and one thing happens after the other. The same [Options] give the same run, byte for byte.
//
// Each concern draws from a random stream of its own, so that turning a fault on does not change when and where
// requests arrive.
//
// # What is real and what is a model
//
// Real: decisions and merges (counters.Table), frames, acknowledgements, repair, snapshots and the bound
// (gossip.Replica, gossip.Peak), and, with [Options].Store, the reconciler of each region (regions.Reconciler).
//
// A model: memberlist. A member that is unreachable, also through a third region, fails after as long as memberlist
// takes with its defaults, and rejoins as the rejoin loop has it. Packets travel alone; a machine takes no time for
// them, and memberlist's own traffic is not simulated. Tables are large enough to evict nobody. The store of a region
// is an embedded one, and a [StoreFault] is what befalls it. Simulated nodes write every key to it; real ones only keys
// past a part of their limit.
//
// # Figures
//
// Every request is asked of the oracle as well: the same algorithm with zero-latency global knowledge (testnet/judge).
// Percentages are of the limit L unless stated otherwise; [Report] explains each. They mean the same for every
// algorithm. Peak is the most by which a rolling window of W was fuller than the oracle's own of the same time, or than
// L where that is more: what an algorithm itself lets a window hold above L (a bucket that is full at first, two fixed
// windows that meet, a sub-window that came unevenly) is not the replication's. Excess and bound are about the
// algorithm's own count: of a bucket its debt, with L for its capacity. A queue is judged by when it lets requests in.
package sim
