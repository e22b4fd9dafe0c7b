// Package scenario offers load to the testnet, makes a fault in it, and judges what came of it.
//
// Every scenario begins with a whole testnet and identities that nobody has counted yet, and leaves the testnet whole. It proves first
// that its fault took hold: one that did not fails the scenario, because nothing would have been shown. What it then judges is the
// record of the run: package checker's invariants hold in all scenarios, and each has promises of its own.
//
// A scenario is no measurement where the machine was too busy: where the load generator fell behind, or this process was not let run
// for [BusyAfter] and a promise did not hold. It is repeated then, up to [Repeats] times, before it fails.
package scenario
