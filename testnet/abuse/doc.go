// Package abuse tests one node under abusive clients: thousands of connections that stay idle, that never complete a
// request or that send invalid bytes, long request bodies without an end, and HTTP/2 streams that are reset as fast as
// they are opened. Compliant clients send requests at the same time, and the report compares their latency with and
// without the abuse.
//
// The node must stay alive, answer every request of a compliant client, answer health probes within a second, refuse
// connections over its limit with an error of the protocol, and release all connections, file descriptors and
// goroutines when the abuse ends.
package abuse
