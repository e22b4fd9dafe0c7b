// Package scenario offers load to the testnet, injects a fault, and judges the outcome.
//
// Every scenario starts with a complete cluster and identities that no node has counted yet, and restores the cluster.
// It first verifies that its fault took hold: without a fault the run would show nothing, so it fails. Then it judges
// the record of the run: package checker's invariants hold in all scenarios, and each has assertions of its own.
//
// A failed run is repeated, once, only if this process was kept from running for longer than [MaxPause]; the records of
// both runs are kept. A run that broke an invariant is never repeated.
package scenario
