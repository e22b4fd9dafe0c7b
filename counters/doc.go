// Package counters is the pure core of edgelimit: it decides whether a request may pass, and keeps the replicated
// counts on which it decides.
//
// It imports only the standard library, starts no goroutine, does no I/O and reads no clock: `now` is always an
// argument, in nanoseconds since the Unix epoch.
//
// # Terms
//
// A [Meter] gives a count its meaning: rule, algorithm, window, sub-window length. A [Limit] is a meter with a maximum;
// editing the maximum keeps the counts. A [Key] is the keyed hash of an identity under a rule. A [Slot] is one
// cumulative count: of one meter and key, in one sub-window, by one [Origin] (a node's boot), since one birth. A cell
// is what a [Table] keeps of a meter and key. A [Scope] says which nodes count a limit together; it is part of the
// meter's name, so counts of different regions, or of single nodes, never mix.
//
// # Algorithms
//
// Each has an example that runs. For a limit of L in a window W:
//
//   - [SlidingWindow] counts the window that ends now by sub-window, ten by default. A client that comes evenly is
//     never rejected, and no window holds more than L and the even share of a sub-window, L/10 rounded up. 144 bytes a
//     key.
//   - [FixedWindow] counts the current window. It is the cheapest to explain, and admits up to 2L around a boundary.
//   - [SlidingLog] remembers each request: exact, at 16 bytes for each.
//   - [TokenBucket] admits a burst of its capacity, then as much as is refilled. [LimitConfig] has both.
//   - [LeakyBucket] is the same arithmetic: a request pours in, and what has leaked out makes room.
//   - [LeakyQueue] spaces requests out: each gets the delay after which it may go, and a full queue denies. One that
//     leaves before its turn is withdrawn ([Table.Withdraw]).
//
// All of them take costs other than one, answer a cost of zero as a peek, and report exactly what remains, after which
// wait the same request passes, and after which wait the complete limit is available.
//
// A limit may also ban the keys that it denies ([LimitConfig].Ban), on all tables, and count denied requests
// ([LimitConfig].CountRejected). Neither affects a client below 95 % of its limit: it is never denied.
//
// # Fairness of the sliding window
//
// The counts do not say where in its sub-window a request was. Of the oldest one, which is leaving, the window counts
// the part that is still in it, less one, and at least what exceeds an even share. So nobody who comes evenly is ever
// rejected, nobody has more than L and an even share in any window, and bursts pay for it: take a client that spends
// 95 % of its limit in 0.2 s and returns 0.1 s after the window has passed. Ten sub-windows of a second reject 37 % of
// its requests, although no window ever holds more than 95 %; fifty reject 21 %. A client that waits for a window and a
// sub-window is never rejected. To count the oldest sub-window in full would reject even clients with a steady rate;
// not to count it would admit twice the limit in a slightly shorter window. internal/window has the proofs,
// testnet/ACCURACY.md the measurements.
//
// # Invariants
//
//   - A slot never decreases. Slots are merged by max, so lost, repeated, reordered and replayed deltas change nothing:
//     [Table.Merge] is commutative, associative and idempotent.
//   - A table's view of a key never exceeds what was admitted everywhere, so plain counting never rejects a client
//     within its limit. Buckets and logs assume the earliest possible times for the requests of others.
//   - A count that no node can have admitted is refused, and for a while the table admits at least half of an even
//     share of the limit for each key, whatever peers report (plausibility.go).
//   - Layers are checked first and charged together afterwards; nothing is subtracted.
//   - A count exceeds its limit, up to twice, only through a lender's guarantees (elastic.go), reports and denied
//     requests that count (overdraft.go). Meanwhile nothing is admitted or lent.
//   - A denial leaves no count, except with [LimitConfig].CountRejected or [Charge.Overdraw]. A peek leaves no trace.
//   - A cell that was evicted and created again has a later birth, so that max does not swallow its new counts; births
//     add up.
//   - A new key is never admitted untracked: at the end of the budget another cell is evicted for it. A key of a meter
//     beyond 262,140 is denied.
//
// DESIGN.md explains the memory layout and the reasons for it.
package counters
