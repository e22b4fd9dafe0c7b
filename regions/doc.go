// Package regions holds the store that the nodes of a region share, and the reconciler that keeps a node's table and
// that store in agreement, off the path of every request.
//
// A node decides in its own memory. About once a second it raises its own slots in the [Store] of its region and takes
// from it what others sent there; a node that starts cold loads the store before it is ready. A store that is slow,
// away, failed over or flushed changes no decision: what it missed is sent again, and counts are merged by max.
//
// # Invariants
//
//   - A store never lowers a slot and never adds two up: [Store.Merge] is commutative, associative and idempotent.
//   - Only an origin raises its own slots. What the store holds of another origin is sent to it again only after it
//     lost data, so that the counts of nodes that are gone survive: by max, like everything.
//   - What was enqueued stays pending until the store acknowledged it or its window has passed. What finds no room, and
//     what the store lost, is repaired by a push of all own slots.
//   - A store that fails gets one small call per cool-down, until one succeeds ([BreakerState]).
//   - No lock is held across a call of the store or the table.
//
// [Embedded] keeps the region in the memory of one process, [Redis] in a Redis: DESIGN.md says how, and what happens in
// each fault. The suite in regionstest holds for every store.
package regions
