// Package gossip replicates what each node of a cluster admitted to all others. Its README.md has the protocol in
// diagrams.
//
// [Replica] is the protocol: a pure state machine of (event, now) -> (state, messages to send), without sockets,
// goroutines or clock. [Cluster] runs it every interval over hashicorp/memberlist, which contributes membership,
// liveness and encryption.
//
// # Protocol
//
// Every interval T a replica packs the slots that rose since the last one into frames of at most [MaxFrame] bytes and
// sends each frame to every peer, point to point. Of more than 16 nodes, each key has an owner in each region, who adds
// up: then a slot goes to the owner, and sums go to the owners of other regions and to the members that ask
// (owners.go). A frame has a tick: 1, 2, 3 and so on for each origin. Peers acknowledge the ticks they have, in their
// own frames: a cumulative tick and a bitmap of what came beyond it. A frame that stays unacknowledged is sent again as
// it was: counts are cumulative and merged by max, so an old frame does no harm. That is the whole repair, and a key
// that goes quiet right after its last frame was lost still arrives. A peer that is new, or further behind than the
// frames that are kept, gets a snapshot of all live slots of all origins.
//
// A replica with nothing to send sends a beacon instead: every T while requests come, every second when none do.
//
// Keys whose counts rose by much of what is left of a limit do not wait for the interval to end: an early flush sends
// them alone. Early flushes cost at most as many messages as the intervals do.
//
// A replica that stops sends a goodbye, so that the others leave it out of their bound: memberlist does not distinguish
// a member that left from one that failed.
//
// Each replica also reports by how much its hottest key rose, and in what time. From that the others compute by how
// much their own admissions may have exceeded a limit: see [Replica.Audit].
//
// # Membership
//
// The gossip key shows that a message is of the cluster, and not when it was sent. So what memberlist and rosters
// report is a candidate, which becomes a member when it answers a question that is new each time; see recency.go.
//
// Nodes of one region are in a LAN pool; of each region three nodes, its gateways, are in the WAN pool (all of them up
// to four). Every node has a socket between regions, by which the others reach it. Gateways publish rosters of their
// region and pass on those of others, so that every node knows all nodes; see gateways.go and roster.go. Where all
// nodes are gateways, there are no rosters.
//
// # Cost
//
// In a cluster without owners a frame is encoded once for all peers, but for its ack. An entry takes 8 to 11 bytes, so
// that a full frame of 1200 bytes holds some 120, and an updated key costs 9 to 11.5 bytes a peer with all that
// memberlist adds. BenchmarkUpdatedKey measures the CPU on real sockets. What a region counts for itself goes to all
// peers as well, since they acknowledge the same ticks; tables of other regions drop it.
//
// # Trust
//
// Whoever holds the gossip key may send. Frames are untrusted bytes: nothing that a frame declares is allocated before
// it was checked against the bytes that are there.
package gossip
