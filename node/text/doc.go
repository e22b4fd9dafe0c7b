// Package text prints for people what may come from anybody: a rule's name, an identity, a line of a peer's.
package text
