// Package counters is the pure core of edgelimit: it decides whether a request may pass, and it keeps the replicated
// counts on which it decides.
//
// It imports only the standard library, starts no goroutine, does no I/O and reads no clock: `now` is always an
// argument, in nanoseconds since the Unix epoch.
//
// # Words
//
// A [Limit] is a [Meter] with a maximum. The meter is what gives a count its meaning: rule, algorithm, window,
// sub-window length. It does not hold the maximum, so that editing a limit keeps its counts. A [Key] is the keyed
// hash of an identity under a rule. A [Slot] is one cumulative count: of one meter and key, in one sub-window, by one
// [Origin] (a node's boot), since one birth. A cell is what a [Table] keeps of a meter and key. A [Scope] says which
// nodes keep a limit together; it is part of the meter's name, so that no count of another region's, or another
// node's, ever meets one of this.
//
// # Algorithms
//
// For a limit of L in a window W, each has an example that runs:
//
//   - [SlidingWindow] counts the window that ends now. It knows counts by sub-window (ten, unless the meter says
//     otherwise), and of the one that is half gone it counts half: it may be wrong by what a client does inside that
//     one. 144 bytes a key.
//   - [FixedWindow] counts the window that the clock is in: the cheapest to explain, and L twice around the full hour
//     pass.
//   - [SlidingLog] remembers each request: exact, at 16 bytes for each.
//   - [TokenBucket] lets a burst of its capacity pass, then as much as is refilled. Capacity and refill are set apart
//     ([NewBucket]).
//   - [LeakyBucket] is the same arithmetic under its other name: a request pours in, and what has leaked out may pour
//     in again.
//   - [LeakyQueue] spaces requests out: each gets the delay after which it may go, and is denied where the queue is
//     full.
//
// All of them take costs other than one, answer a cost of zero as a peek, and say exactly what is left, after which
// wait the same request passes, and when all of the limit is back.
//
// # Penalties
//
// A limit may ban a key that it denies for a time ([Limit.Ban]), on all tables alike, and it may count what it
// denies. Either is for those who go on asking: a client below 95 % of its limit is never denied, and so never meets
// them.
//
// # How fair a sliding window is by itself
//
// It takes what came in the oldest sub-window as evenly spread, which a burst is not. A client that spends 95 % of
// its limit in 0.2 s and comes back 0.1 s after the window has passed is rejected in 19 % of its requests by ten
// sub-windows of a second each, though no window ever holds more than 95 %: in 26 % by one (the classic two buckets),
// 12 % by twenty, none by fifty. One that waits for a window and a sub-window never is. Ten are as many as fit into
// 160 bytes a key. To count the oldest in full would reject even clients, and not to count it would let a shorter
// window hold the limit twice: testnet/ACCURACY.md has all of it as measured.
//
// # Invariants
//
//   - A slot never decreases. Slots are merged by max, so that lost, repeated, reordered and replayed deltas change
//     nothing ([Table.Merge] is commutative, associative and idempotent).
//   - What a table believes of a key (its view) never exceeds what was admitted everywhere: a plain count cannot
//     reject a client that keeps to its limit. Buckets and logs, which know the times of their own requests only,
//     believe of the others' the earliest that can be.
//   - A count that no node can have admitted is not believed, and whoever sends one leaves each key half an even
//     share of its limit at least (plausibility.go).
//   - Nothing is ever subtracted. Layers are checked first and charged together afterwards.
//   - A limit is passed only by a lender, by what others were promised (elastic.go), by what is reported after the
//     fact (report.go), and by denials that count (rejected.go): up to twice, and nothing is admitted or lent then.
//   - A denial leaves no count, unless its limit counts what it denies ([Limit.CountRejected]) or the charge may
//     overdraw the limit ([Charge.Overdraw]). A cost of zero (a peek) leaves no trace at all.
//   - A cell that was evicted and created again has a later birth, so that max cannot swallow its new counts; births
//     add up.
//   - A new key is never admitted untracked: at the end of the budget another cell goes for it.
//
// Why cells lie in memory as they do is sent in DESIGN.md.
package counters
