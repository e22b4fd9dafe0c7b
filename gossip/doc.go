// Package gossip tells the nodes of a cluster what each of them admitted.
//
// [Replica] is the protocol: a pure state machine of (event, now) -> (state, messages to send), without sockets, goroutines or
// clock. [Cluster] is the thin adapter that lets it speak through hashicorp/memberlist, which contributes membership, liveness
// and encryption, and runs it every interval.
//
// # Protocol
//
// Every interval T a replica packs the slots that rose since the last one into frames of at most [MaxFrame] bytes and sends each
// frame to every peer, point to point. A frame has a tick: 1, 2, 3 and so on for each origin. Peers acknowledge the ticks they
// have, in their own frames: a cumulative tick and a bitmap of what came beyond it. A frame that stays unacknowledged is sent
// again as it was: counts are cumulative and merged by max, so an old frame does no harm. That is the whole repair, and a key that
// goes quiet right after its last frame was lost still arrives. A peer that is new, or further behind than the frames that are
// kept, gets a snapshot of all live slots of all origins.
//
// A replica with nothing to tell sends a beacon instead: every T while requests come, every second when none do.
//
// A replica that stops says goodbye, so that the others leave it out of their bound: memberlist does not tell a member that left
// from one that failed.
//
// Through frames and beacons each replica knows at what time its knowledge of every other one was whole. That age, times what the
// other one is asked for, bounds what it cannot know: see [Replica.Audit].
//
// # Trust
//
// Whoever holds the gossip key may speak. Frames are decoded by hand from untrusted bytes: nothing that a frame declares is
// allocated before it was checked against the bytes that are there.
package gossip
