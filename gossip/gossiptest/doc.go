// Package gossiptest gives memberlist a network with weather: latency, jitter, loss, duplication, reordering, cuts.
//
// [Links] is the weather: which endpoint belongs to which group (a region, usually), what the link from one group to another
// does to packets, and which links are cut. It acts through one of two transports:
//
//   - [Network] is a network in memory, made for testing/synctest: real memberlist plays minutes in milliseconds on it.
//   - [Wrap] puts the same weather before a real transport, such as memberlist's NetTransport on loopback.
//
// What holds in both:
//
//   - Once Partition or Cut has returned, no packet sets out on that link or comes down at its end (but for one that was
//     being handed over in that very instant), and every stream across it is broken. What met a cut is lost for good:
//     healing brings nothing back.
//   - Every packet has one end: Sent + Duplicated = Delivered + Lost + Cut + Dropped, once nothing is in the air any more.
//   - The weather is applied once, by the sender of a packet and the dialler of a stream.
//   - Links draws from one seeded source. The same calls in the same order meet the same weather; concurrent senders ask in
//     no particular order, so that a cluster's run is alike from seed to seed in its statistics, not byte for byte.
//   - No packet waits for a reader in memory: queues are bounded, and what finds one full is dropped and counted. (The
//     queues of a wrapped transport are its own.)
//   - No timer and no goroutine of a transport outlives its Shutdown.
//
// Lock order: the lock of a Network may be held when that of its Links is taken, never the other way round; no other two
// locks are ever held together, and nobody is called back under one.
package gossiptest
