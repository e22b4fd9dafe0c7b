// Package weather makes the WAN of a node that is served as slow and as lossy as a real one, where all regions stand on one machine.
//
// It acts in the node that sends, between gossip and its sockets, and on the WAN pool alone: what nodes of one region tell each
// other over the LAN, and what clients ask, is left as it is. A cut is not its business; those are made outside the node.
package weather
