package rlsapi

import (
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/edgelimit/edgelimit/node/limits"
)

// listenerCredentials are those of a listener that may speak TLS by itself: its connections come with their handshake
// done. Handlers and interceptors see the state of TLS in the peer's AuthInfo, as with credentials.NewTLS. Resets are
// counted where frames are plain text.
type listenerCredentials struct {
	credentials.TransportCredentials
	budgets *limits.Budgets
	resets  limits.Resets
}

func newListenerCredentials(budgets *limits.Budgets) listenerCredentials {
	return listenerCredentials{insecure.NewCredentials(), budgets, limits.NewResets(budgets, "grpc")}
}

// ServerHandshake implements credentials.TransportCredentials.
func (c listenerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	calm := newCalmConn(conn, c.budgets.SourceAt(conn.RemoteAddr()), c.resets)
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return c.TransportCredentials.ServerHandshake(calm)
	}
	return calm, credentials.TLSInfo{State: secure.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

// Clone implements credentials.TransportCredentials.
func (c listenerCredentials) Clone() credentials.TransportCredentials { return c }
