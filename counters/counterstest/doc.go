// Package counterstest says what package counters has to be, slowly and plainly, so that the fast code can be held against it.
//
//   - [Model] is the sliding-window counter, exact and naive. With one model for all nodes of a cluster it is also the oracle: the
//     same algorithm with zero-latency global knowledge.
//   - [Rolling] is a log of what was admitted, and finds the fullest rolling window in it.
//
// The laws under which slots are merged are in package mergelaws.
//
// Nothing in it is safe for concurrent use: whoever shares a Model or a Rolling between goroutines brings the lock.
package counterstest
