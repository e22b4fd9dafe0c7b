// Package gossip tells the nodes of a cluster what each of them admitted.
//
// [Replica] is the protocol: a pure state machine of (event, now) -> (state, messages to send), without sockets,
// goroutines or clock. [Cluster] is the thin adapter that lets it speak through hashicorp/memberlist, which contributes
// membership, liveness and encryption, and runs it every interval.
//
// # Protocol
//
// Every interval T a replica packs the slots that rose since the last one into frames of at most [MaxFrame] bytes and
// sends each frame to every peer, point to point. A frame has a tick: 1, 2, 3 and so on for each origin. Peers
// acknowledge the ticks they have, in their own frames: a cumulative tick and a bitmap of what came beyond it. A frame
// that stays unacknowledged is sent again as it was: counts are cumulative and merged by max, so an old frame does no
// harm. That is the whole repair, and a key that goes quiet right after its last frame was lost still arrives. A peer
// that is new, or further behind than the frames that are kept, gets a snapshot of all live slots of all origins.
//
// A replica with nothing to send sends a beacon instead: every T while requests come, every second when none do.
//
// What is much of what is left of a limit does not wait for the interval to end: an early flush tells of those keys
// only, and leaves the age of what is known of all others as it is. It costs at most as many messages again as the
// intervals do. With its slots a table tells what it is asked for, and a replica tells its table who is heard and how
// long the way is: by that limits are shared out once they run short, see counters/thin.go.
//
// A replica that stops says goodbye, so that the others leave it out of their bound: memberlist does not tell a member
// that left from one that failed.
//
// With what changed each replica tells by how much its hottest key rose, and of what time it tells. So the others know,
// once that has come, how much was unseen until then, and by how much their own admissions may have gone over a limit:
// see [Replica.Audit].
//
// # Cost
//
// A frame is put together once for all peers, but for its ack. An entry takes 8 to 11 bytes, so that a full frame of
// 1200 bytes holds some 120, and an updated key 9 to 11.5 bytes a peer with all that memberlist adds.
// BenchmarkUpdatedKey measures what that costs in CPU on real sockets, from the drain of one table to the merge into
// another. What a region counts for itself goes to all peers as well, since they acknowledge the same ticks; a table of
// another region lets it go, for a small part of what a merge costs.
//
// # Trust
//
// Whoever holds the gossip key may speak. Frames are decoded by hand from untrusted bytes: nothing that a frame
// declares is allocated before it was checked against the bytes that are there.
package gossip
