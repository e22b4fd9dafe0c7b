// Package plan computes what the nodes of a deployment need: bandwidth, messages, CPU and memory, and which of them
// runs out first as the load grows.
//
// How often nodes send a count to whom is simulated by the nodes' own code, for a sample of the keys
// ([sim.TakeSample]); the rest is arithmetic:
//
//	messages   between two nodes that share keys: one each interval, and more where the counts do not fit into one
//	bytes      of the messages, their groups, and the counts in them
//	CPU        messages, counts and decisions, at the costs in costs.go
//	memory     of the cells and counts that the sampled nodes hold
//
// Beside it stands the full mesh, in which every node sends each count that changed to every other one: arithmetic from
// the same sample. A test holds both against simulations of everything.
package plan
