package regionstest

import (
	"crypto/x509"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// TLSServer is a server that accepts TLS only, and asks its clients for a certificate.
type TLSServer struct {
	*Server
	CAFile            string // the authority of the server's and the client's certificates
	CertFile, KeyFile string // the client's
	StrangerFile      string // an authority that has signed nothing here
}

// StartRedisTLS starts a server whose certificate is for 127.0.0.1 and redis.test.
func StartRedisTLS(t testing.TB) *TLSServer {
	t.Helper()
	ca, stranger := testkit.NewAuthority(t, "ca"), testkit.NewAuthority(t, "stranger")
	server := ca.Issue(t, "server", func(c *x509.Certificate) { c.DNSNames = []string{"redis.test"} })
	client := ca.Issue(t, "client")
	s := newServer(t, "redis-server", "--tls-cert-file", server.CertFile, "--tls-key-file", server.KeyFile,
		"--tls-ca-cert-file", ca.CertFile)
	s.tls = ca.Client(client)
	s.launch()
	return &TLSServer{s, ca.CertFile, client.CertFile, client.KeyFile, stranger.CertFile}
}
