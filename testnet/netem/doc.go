// Package netem emulates a network for memberlist: latency, jitter, loss, duplication, reordering and partitions.
//
// [Links] hold the settings: the group of each endpoint (usually a region), the [Link] from one group to another, and
// the partitions. They act through one of two transports:
//
//   - [Network] is a network in memory for testing/synctest: real memberlist plays minutes in milliseconds on it.
//   - [Wrap] applies the same settings in front of a real transport, such as memberlist's NetTransport on loopback.
//
// Both guarantee:
//
//   - Once Partition or PartitionOneWay has returned, no packet leaves or arrives on that link (except one that was
//     being delivered at that instant), and every stream across it is reset. Packets that meet a partition are lost:
//     healing brings none back.
//   - Every packet has one outcome: Sent + Duplicated = Delivered + Lost + Partitioned + Dropped, once no packet is
//     delayed any more.
//   - The settings apply once: at the sender of a packet and at the dialer of a stream.
//   - Links draws from one seeded source. The same calls in the same order draw the same numbers. Concurrent senders
//     draw in no particular order: runs with one seed are alike in their statistics, not byte for byte.
//   - Queues in memory are bounded. A packet that finds one full is dropped and counted. (A wrapped transport has its
//     own queues.)
//   - No timer and no goroutine of a transport outlives its Shutdown.
//
// Lock order: a Network's lock before that of its Links. No other two locks are held together, and no callback runs
// under one.
package netem
