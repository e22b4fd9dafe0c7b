// Package load offers requests to the nodes of a testnet and records what becomes of each.
//
// It is an open loop: when a request is sent depends on the clock and a seed, never on how fast others are answered. A generator that
// waits for answers asks less of whoever is slow, and so hides the very thing it is to show. Where it cannot keep up itself, the run is
// no measurement, and [Run] says so: [ErrBehind].
package load
