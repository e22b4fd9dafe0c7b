package plan

import "time"

// What things cost on one core, measured on 2026-11-22 on a machine of 2 cores at about 2.5 GHz (testnet/bench, and
// BenchmarkUpdatedKey of gossip). They are constants, so that a plan is the same on every machine; a test compares them
// with the machine that it runs on.
const (
	sendCost    = 21 * time.Microsecond // a message, by memberlist, encrypted
	receiveCost = 10 * time.Microsecond
	slotOutCost = 200 * time.Nanosecond // a count that is drained, added up and packed
	slotInCost  = 300 * time.Nanosecond // a count that is merged
	takeCost    = 460 * time.Nanosecond // a decision on one of a million keys; the API around it is not in it
)

// Bytes on the wire.
const (
	// packetBytes is what a packet has beside the frame: IPv4 and UDP (28), memberlist's label of the cluster (23, as
	// in a region of seven letters), encryption (29), checksum and type (6).
	packetBytes = 86
	frameBytes  = 44 // of a frame beside its groups, with an acknowledgement
	groupBytes  = 46 // of a group beside its counts: a rule's name and window, and whose counts it has
	roomBytes   = 1200 - frameBytes
)

// What the nodes' code does; see gossip.
const (
	linkLasts  = 1200 * time.Millisecond // two nodes that shared a key so lately send something each interval
	idleBeacon = time.Second             // others, so often
	flushGap   = 10 * time.Millisecond
	ownersGap  = 5 * time.Millisecond // flushGap where owners add up
	queueSize  = 1024                 // messages that wait in memberlist's receive queue; it drops what comes then
	maxOrigins = 65535                // that a table can tell apart
	meshMost   = 16                   // nodes, in a cluster in which every node sends to every other one
)

// Bytes of a table (counters/DESIGN.md), of ten sub-windows.
const (
	cellBytes   = 149     // with its place in the index
	slotBytes   = 16      // a count of another node
	fixedBytes  = 1 << 20 // whatever is in it
	memoryShare = 1.06    // of the budget to what is in use: pages that are not full
	sweepTime   = 10 * time.Second
)
