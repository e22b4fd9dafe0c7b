// Package status is what a node answers operators about itself and its cluster: the types of the status API, the events
// of a node, and the identities that a rule denies most.
package status
