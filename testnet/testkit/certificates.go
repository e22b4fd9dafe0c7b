package testkit

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

// Certificate is a certificate with its key, both in PEM files as well.
type Certificate struct {
	*x509.Certificate
	CertFile, KeyFile string

	key *ecdsa.PrivateKey
}

// NewAuthority makes the certificate of an authority, in a directory of the test's.
func NewAuthority(t testing.TB, name string) *Certificate {
	t.Helper()
	return issue(t, name, nil, func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	})
}

// Issue makes a certificate that the authority has signed, for an hour ago to tomorrow: of a server at 127.0.0.1, ::1
// and localhost, or of a client. Changes are made before it is signed.
func (c *Certificate) Issue(t testing.TB, name string, changes ...func(*x509.Certificate)) *Certificate {
	t.Helper()
	return issue(t, name, c, append([]func(*x509.Certificate){func(c *x509.Certificate) {
		c.DNSNames, c.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}}, changes...)...)
}

// issue makes a certificate; without an issuer it signs itself.
func issue(t testing.TB, name string, issuer *Certificate, changes ...func(*x509.Certificate)) *Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := &Certificate{&x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}, filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key"), key}
	for _, change := range changes {
		change(c.Certificate)
	}
	if issuer == nil {
		issuer = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c.Certificate, issuer.Certificate, &key.PublicKey, issuer.key)
	if err != nil {
		t.Fatal(err)
	}
	if c.Certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		c.CertFile: {Type: "CERTIFICATE", Bytes: der}, c.KeyFile: {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// Pair returns the certificate with its key.
func (c *Certificate) Pair() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: c.key, Leaf: c.Certificate}
}

// Client returns the configuration of a client that trusts the authority, and shows the certificates, if there are any.
func (c *Certificate) Client(shown ...*Certificate) *tls.Config {
	cfg := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS10} // servers refuse old versions
	cfg.RootCAs.AddCert(c.Certificate)
	for _, s := range shown {
		cfg.Certificates = append(cfg.Certificates, s.Pair())
	}
	return cfg
}
