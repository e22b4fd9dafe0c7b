//go:build !unix

package listen

import "net"

// Inherit returns no sockets: these systems pass none.
func Inherit() (map[string]net.Listener, error) { return nil, nil }
