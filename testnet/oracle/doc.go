// Package oracle holds slow, plain models of package counters for tests to compare the fast code with.
//
//   - [Model] is each of the algorithms, exact and naive. With one model for all nodes of a cluster it is also the
//     oracle: the same algorithm with zero-latency global knowledge.
//   - [Cells] is the state of one table: the same algorithms with a clock that may step back, and with the counts that
//     the table received from others.
//   - [Rolling] is a log of admitted cost, and finds the rolling window with the most.
//
// The laws under which slots are merged are in package counterstest.
//
// Waits are found by binary search for the first time at which the definition admits, not by solving for it.
//
// Nothing in it is safe for concurrent use.
package oracle
