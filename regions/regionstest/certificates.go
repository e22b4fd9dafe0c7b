package regionstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
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
	dir := t.TempDir()
	ca, stranger := issue(t, dir, "ca", nil), issue(t, dir, "stranger", nil)
	server, client := issue(t, dir, "server", ca), issue(t, dir, "client", ca)
	pair, err := tls.LoadX509KeyPair(client.certFile, client.keyFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	s := newServer(t, "redis-server", "--tls-cert-file", server.certFile, "--tls-key-file", server.keyFile,
		"--tls-ca-cert-file", ca.certFile)
	s.tls = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
	s.launch()
	return &TLSServer{s, ca.certFile, client.certFile, client.keyFile, stranger.certFile}
}

type certificate struct {
	certFile, keyFile string
	cert              *x509.Certificate
	key               *ecdsa.PrivateKey
}

// issue writes a certificate and its key as PEM files. Without an issuer it is that of an authority.
func issue(t testing.TB, dir, name string, issuer *certificate) *certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &certificate{filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key"), &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}, key}
	if issuer == nil {
		issuer = c
		c.cert.IsCA, c.cert.BasicConstraintsValid, c.cert.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		c.cert.DNSNames, c.cert.IPAddresses = []string{"redis.test"}, []net.IP{net.IPv4(127, 0, 0, 1)}
		c.cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, c.cert, issuer.cert, &key.PublicKey, issuer.key)
	if err != nil {
		t.Fatal(err)
	}
	if c.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		c.certFile: {Type: "CERTIFICATE", Bytes: der}, c.keyFile: {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}
