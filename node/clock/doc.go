// Package clock is a node's clock. Counts are kept by wall time, which all nodes have in common; but the machine's wall
// clock may be set, by an hour at once, and windows must neither all expire then nor stand still. So a [Clock] goes by
// the machine's monotonic clock, and follows its wall clock with care:
//
//   - A difference of up to two seconds is slewed at 1/50 of the time that passes: two seconds take a hundred. A window
//     lasts at most 2 % longer or shorter meanwhile, which a client that keeps to 95 % of its limit does not notice.
//   - A larger difference is a clock step. It has to last for ten seconds before the clock jumps; for ten minutes where
//     the other nodes agree with this clock and not with the machine's, so that an operator may correct the machine.
//     The clock jumps once an hour at most. At worst a jump admits a window twice, once before and once after it.
//
// The clock goes back in a jump only. Reading it costs half of what time.Now does, as only the monotonic clock is read.
// Decisions read a coarse copy that is up to a [Tick] old, for the price of an atomic load; it is kept only while it is
// read.
package clock
