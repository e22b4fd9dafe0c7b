// Package clock tells a node the time. Counts are kept by wall time, which all nodes have in common; but the machine's wall clock may be
// set, by an hour at once, and windows must neither all expire then nor stand still. So a [Clock] goes by the machine's monotonic clock,
// and follows its wall clock with care:
//
//   - What is off by up to two seconds is made up for at a fiftieth of the time that passes: two seconds take a hundred. A window lasts at
//     most 2 % longer or shorter meanwhile, so that a client that keeps to 95 % of its limit does not notice.
//   - What is off by more is a jump. It has to last for ten seconds; where the other nodes agree with this clock and not with the machine's,
//     for ten minutes, in which somebody may put the machine right. There is one jump an hour at most. A jump costs no more than that a
//     window is admitted twice, once before and once after it.
//
// It never goes back but in a jump. Reading it costs half of what time.Now does, as only the monotonic clock is read; decisions read a
// coarse copy that is up to a [Tick] old, for the price of a load from memory. It is kept only while somebody asks for it.
package clock
