package rlsapi

import (
	"crypto/tls"
	"net"
	"testing"

	"google.golang.org/grpc/credentials"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// behind returns the connection whose resets are counted.
func behind(conn net.Conn) net.Conn { return conn.(*calmConn).Conn }

// A connection that comes with its TLS handshake done is described to handlers as one of credentials.NewTLS, with the
// client's certificate; others are plain.
func TestListenerCredentials(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	client, creds := ca.Issue(t, "client"), newListenerCredentials(nil).Clone()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	conn, info, err := creds.ServerHandshake(here)
	if behind(conn) != here || err != nil || info.AuthType() != "insecure" {
		t.Errorf("plain text: %v, %v, %v", conn, info, err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "server").Pair()},
		ClientAuth: tls.RequireAnyClientCert}
	trusting := ca.Client(client)
	trusting.ServerName = "localhost"
	secure, dialed := tls.Server(here, cfg), tls.Client(there, trusting)
	shaken := make(chan error, 1)
	go func() { shaken <- dialed.Handshake() }()
	testkit.Must(t, secure.Handshake())
	testkit.Must(t, <-shaken)
	conn, info, err = creds.ServerHandshake(secure)
	if behind(conn) != secure || err != nil {
		t.Fatal(conn, err)
	}
	state, ok := info.(credentials.TLSInfo)
	if !ok || state.SecurityLevel != credentials.PrivacyAndIntegrity || len(state.State.PeerCertificates) != 1 ||
		!state.State.PeerCertificates[0].Equal(client.Certificate) {
		t.Errorf("%+v", info)
	}
}
