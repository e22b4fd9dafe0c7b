package netem

import "sync/atomic"

// Counts are the packets and streams so far. Of packets:
//
//	Sent + Duplicated = Delivered + Lost + Partitioned + Dropped + those still delayed
type Counts struct {
	// Sent counts the packets that were sent; Delivered the copies that reached the receiver's queue (in memory) or the
	// real transport (wrapped).
	Sent, Delivered uint64
	// Lost and Duplicated count packets; Delayed counts the copies held back by Reorder.
	Lost, Duplicated, Delayed uint64
	// Partitioned counts the packets and copies that a partition stopped.
	Partitioned uint64
	// Dropped counts the copies that the receiver did not take: no endpoint at that address, its queue full, its
	// transport shut down, or an error of the real transport.
	Dropped uint64
	// Refused counts the dials that a partition stopped; Reset the open streams that it closed.
	Refused, Reset uint64
}

// packetCounters are the counters behind Counts.
type packetCounters struct {
	sent, delivered, lost, duplicated, delayed, partitioned, dropped, refused, reset atomic.Uint64
}

// Counts returns the counts so far. Each is exact; under traffic they are not of one instant.
func (l *Links) Counts() Counts {
	t := &l.counters
	return Counts{
		Sent: t.sent.Load(), Delivered: t.delivered.Load(),
		Lost: t.lost.Load(), Duplicated: t.duplicated.Load(), Delayed: t.delayed.Load(),
		Partitioned: t.partitioned.Load(), Dropped: t.dropped.Load(), Refused: t.refused.Load(), Reset: t.reset.Load(),
	}
}
