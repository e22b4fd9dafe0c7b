// Package mergelaws holds whatever keeps replicated slots against the laws under which they are merged: commutative, associative,
// idempotent, births add up, a slot never decreases, and nothing is taken from the past or the future. [Run] checks them with random
// slots.
package mergelaws
