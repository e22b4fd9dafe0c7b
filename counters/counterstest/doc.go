// Package counterstest checks the laws of merging replicated slots with random slots: it is commutative, associative
// and idempotent, births add up, a slot never decreases, and slots of the past or the future are refused.
package counterstest
