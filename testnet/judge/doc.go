// Package judge compares what nodes decided with the oracle: the same algorithm with zero-latency global knowledge
// ([oracle.Model]). [Tracker] compares decisions as they come. [Check] judges the record of a testnet run
// (package record): was more admitted than the nodes' bound allowed, was a compliant client denied, and did the nodes
// agree in the end. It trusts what the client saw admitted, not what a node reports of its own over-admission.
//
// # What is certain
//
// A record says when a request was sent and answered, not when a node decided, nor whether it admitted a request whose
// answer was lost. So there are two truths, and every verdict uses the one that acquits:
//
//   - the least: what was answered "allowed", from its answer on, in the earliest sub-window that it may lie in;
//   - the most: that and what was lost, from its sending on, in the latest sub-window that it may lie in.
//
// A violation therefore holds whatever happened in between, as long as the nodes' clocks are the recorder's or up to
// [ClockLag] behind. A scenario that sets clocks wrong on purpose breaks I1 to I4 by itself; judge it by its total.
//
// # Figures
//
// [Figures] are given for the whole run, for each phase (the time between two events) and for each second. A request
// belongs to the time at which it was sent. Percentages are of the limit L, but for net_pct.
//
//   - offered, admitted, denied: requests that were answered. failed: those that were not. The oracle is not asked
//     about these, so that a node that is down does not pass for thrift.
//   - oracle_admitted: what the oracle would have admitted, asked in the order of sending.
//   - net_pct: admitted cost against the oracle's, less 100.
//   - over_limit_pct: the fullest rolling window (t-W, t] of any client that ends in this time, above L. The algorithm
//     itself may exceed L by an even share of a sub-window, as it does not know where in it requests were.
//   - over_oracle_pct: the same above the oracle's own fullest window of that client in the whole run: what is due to
//     replication.
//   - excess_pct: the most by which the algorithm's own count of what was certainly admitted was above L, for any
//     client. The bound limits this figure: a node admits only while its count is at most L, so everything above is
//     what it had not received.
//   - bound_pct: the largest bound that a node exported in this time; for a second, up to two seconds after it as well.
//   - ceiling_pct (phases): what the sides of a partition may admit above L, sides * (1 + steady bound) - 1. The steady
//     bound is the largest while no fault shows: in a partition the bound grows until it excuses anything. A partition
//     shows until the window and two sub-windows have passed.
//   - sides (phases): every target of a partition is one, and so is the rest of the cluster.
//   - false_rejections: denials of clients that keep to 95 % of their limit; see I4. Others may be denied although the
//     limit has room: so nodes share out what is left of it.
//   - burst_denied: denials of clients that stayed below 95 % of L in every rolling window, and that the algorithm may
//     have counted above it. A sliding window of n sub-windows does that to a client that spends all at once and
//     returns after W; from W + W/n on, never. It is a property of the algorithm, and no violation.
//   - latency_p50_ms, latency_p99_ms: of requests that were answered.
//
// [Report].agree_ms is the time from the last answer, or the end of the last fault, until the last node agreed for
// good.
//
// # Invariants
//
//   - I1, agreement: at most 5 s (or half a window, if that is less) after the last answer or fault, every node counts
//     what was admitted, and goes on to. Under traffic every node counts what was admitted that long ago, unless a
//     fault was in force since or the node has just restarted. Lost answers may be in the counts or not. What a node
//     admitted in the last second before it was killed is expected of no other node.
//   - I2, growth: within a boot, a node's count of an identity falls by no more than what can have left the window.
//   - I3, truth: no node counts more than was admitted, neither when it is observed nor in an answer (limit less
//     remaining). A delta that was counted twice shows here.
//   - I4, compliant: a client that the oracle never counts at more than 95 % of L is never denied, not even in a
//     partition: a count that is too low denies nobody. The largest truth decides, at the time of sending, with all
//     that was sent before the answer came.
//   - I5, bounded: in each second, excess_pct is at most the bound that some node exports no later than two seconds
//     after. A bound that was not observed bounds nothing.
//   - ceiling: in each second in which a partition shows, excess_pct is at most the ceiling.
//
// An invariant of which the record shows no trace counts as broken where holding it would have left one: a run without
// observations fails.
//
// The bound does not cover a client that begins all at once at every node, or inside a partition (see the README): such
// a scenario may break I5 and the ceiling rightly. Requests are of one rule. A count at the limit says "that or more".
package judge
