// Package sim is a deterministic simulator of a cluster: the real code of counters, the gossip state machine and the reconciler of a
// region, on virtual time, over a network that delays, loses, duplicates, reorders and cuts, with clocks that differ and nodes that pause,
// crash and start again. There is no goroutine, no socket and no clock in it. The same [Options] give the same run, byte for byte.
//
// Each concern draws from a random stream of its own, so that turning a fault on does not change when and where requests arrive.
//
// # What is real and what is a model
//
// Real: decisions and merges (counters.Table), frames, acknowledgements, repair, snapshots and the bound (gossip.Replica, gossip.Peak),
// and, with [Options].Store, the reconciler of each region over an embedded store.
//
// A model: memberlist. A member that cannot be reached, not even through a third region, is given up after as long as memberlist takes
// for it with its defaults, and joined again as the rejoin loop does it. Packets travel alone; how long a machine takes for them is not
// simulated, and neither is memberlist's own traffic. Tables are large enough to forget nobody.
//
// # Figures
//
// Every request is asked of the oracle as well: the same algorithm with zero-latency global knowledge (testnet/ledger). Percentages are of
// the limit L unless said otherwise; [Report] explains each.
package sim
