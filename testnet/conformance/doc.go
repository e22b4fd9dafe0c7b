// Package conformance is one test suite for every API: the same requests over each protocol and by the library, each to
// a node of its own, must get the same decisions. A model that only counts gives the expected ones: windows are so long
// that nothing expires.
package conformance
