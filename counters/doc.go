// Package counters is the pure core of edgelimit: it decides whether a request may pass, and it keeps the replicated
// counts on which it decides.
//
// It imports only the standard library, starts no goroutine, does no I/O and reads no clock: `now` is always an argument,
// in nanoseconds since the Unix epoch.
//
// # Words
//
// A [Limit] is a [Meter] with a maximum. The meter is what gives a count its meaning: rule, algorithm, window, sub-window
// length. It does not hold the maximum, so that editing a limit keeps its counts. A [Key] is the keyed hash of an identity
// under a rule. A [Slot] is one cumulative count: of one meter and key, in one sub-window, by one [Origin] (a node's boot),
// since one birth. A cell is what a [Table] keeps of a meter and key: all its slots.
//
// # Invariants
//
//   - A slot never decreases. Slots are merged by max, so that lost, repeated, reordered and replayed deltas change nothing
//     ([Table.Merge] is commutative, associative and idempotent).
//   - What a table believes of a key (its view) never exceeds what was admitted everywhere: a plain count cannot reject a
//     client that keeps to its limit.
//   - Nothing is ever subtracted. Layers are checked first and charged together afterwards.
//   - A denial leaves no count. A cost of zero (a peek) leaves no trace at all.
//   - A cell that was evicted and created again has a later birth, so that max cannot swallow its new counts; births add up.
package counters
