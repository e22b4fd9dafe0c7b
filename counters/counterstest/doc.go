// Package counterstest says what package counters has to be, slowly and plainly, so that the fast code can be held against it.
//
//   - [Model] is each of the algorithms, exact and naive. With one model for all nodes of a cluster it is also the oracle: the same
//     algorithm with zero-latency global knowledge.
//   - [Cells] is what one table knows: the same algorithms by a clock that may go back, with what it heard of others.
//   - [Rolling] is a log of what was admitted, and finds the fullest rolling window in it.
//
// The laws under which slots are merged are in package mergelaws.
//
// Waits are found by searching for the moment at which the definition says that they are over, never by solving for it.
//
// Nothing in it is safe for concurrent use: whoever shares a Model, Cells or a Rolling between goroutines brings the lock.
package counterstest
