package rlsapi

import (
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// listenerCredentials are those of a listener that may speak TLS by itself: its connections come with their handshake
// done. Handlers and interceptors see the state of TLS in the peer's AuthInfo, as with credentials.NewTLS.
type listenerCredentials struct {
	credentials.TransportCredentials
}

func newListenerCredentials() listenerCredentials {
	return listenerCredentials{insecure.NewCredentials()}
}

// ServerHandshake implements credentials.TransportCredentials.
func (c listenerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return c.TransportCredentials.ServerHandshake(conn)
	}
	return conn, credentials.TLSInfo{State: secure.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

// Clone implements credentials.TransportCredentials.
func (c listenerCredentials) Clone() credentials.TransportCredentials { return c }
