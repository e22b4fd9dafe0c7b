// Package testkit holds what tests of several packages need: free ports, child processes, logs that can be read while
// they are written, waiting for a condition, virtual time, leaked goroutines, and the race detector. No product code
// imports it.
package testkit
