// Package rules finds the rules that a request meets: a [Set] holds the rules of rule files, and [Set.Match] finds the
// rule and the key of each layer of a [Request]. Package rulefile reads rule files; README.md describes their format,
// and how requests meet rules.
//
// # Invariants
//
//   - A [Set] never changes once it is used. It is safe for concurrent use, and [Set.Match] allocates nothing.
//   - Full names are unique, and depend on nothing but the rule's own place in the tree. They are the meter's rule
//     names, so that editing a limit, or any other rule, keeps the counts.
//   - Identities leave this package only as a keyed hash, which is the same on every node of a cluster.
//   - {Rule: "login", Identity: "198.51.100.7"} has the same [counters.Key] as the descriptor that meets the rule
//     with that identity, hence the same count.
package rules
