package gossiptest

import "sync/atomic"

// Counts is what the weather has done so far. Of packets:
//
//	Sent + Duplicated = Delivered + Lost + Cut + Dropped + what is still in the air
type Counts struct {
	// Sent counts the packets handed to the weather; Delivered the copies that reached the receiver's queue (in memory) or
	// the real transport (wrapped).
	Sent, Delivered uint64
	// Lost and Duplicated count packets; Delayed counts the copies held back by Reorder.
	Lost, Duplicated, Delayed uint64
	// Cut counts the packets and copies that met a cut.
	Cut uint64
	// Dropped counts the copies that no weather stopped and that still reached nobody: no endpoint at that address, its
	// queue full, its transport shut down, or a real transport that refused them.
	Dropped uint64
	// Refused counts the streams that a cut did not let open; Severed those that it closed.
	Refused, Severed uint64
}

// tally is Counts in the making.
type tally struct {
	sent, delivered, lost, duplicated, delayed, cut, dropped, refused, severed atomic.Uint64
}

// Counts returns what the weather has done so far. Each number is exact; while traffic flows they are not of one instant.
func (l *Links) Counts() Counts {
	t := &l.tally
	return Counts{
		Sent: t.sent.Load(), Delivered: t.delivered.Load(),
		Lost: t.lost.Load(), Duplicated: t.duplicated.Load(), Delayed: t.delayed.Load(),
		Cut: t.cut.Load(), Dropped: t.dropped.Load(),
		Refused: t.refused.Load(), Severed: t.severed.Load(),
	}
}
