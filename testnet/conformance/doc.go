// Package conformance is one suite for every door: the same requests, asked by each protocol and by the library, each of a node of its
// own, have to get the same decisions. What is right is said by a model that only counts: the windows are so long that nothing expires.
package conformance
