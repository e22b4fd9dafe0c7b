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
	ca, stranger := newAuthority(t, dir, "ca"), newAuthority(t, dir, "stranger")
	serverCert, serverKey := ca.issue(t, dir, "server")
	s := &TLSServer{CAFile: ca.file, StrangerFile: stranger.file}
	s.CertFile, s.KeyFile = ca.issue(t, dir, "client")

	pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	s.Server = newServer(t, "redis-server", "--tls-cert-file", serverCert, "--tls-key-file", serverKey,
		"--tls-ca-cert-file", ca.file)
	s.tls = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
	s.launch()
	return s
}

type authority struct {
	file string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, dir, name string) authority {
	t.Helper()
	a := authority{file: filepath.Join(dir, name+".pem"), key: newKey(t)}
	a.cert = template(name)
	a.cert.IsCA, a.cert.BasicConstraintsValid, a.cert.KeyUsage = true, true, x509.KeyUsageCertSign
	a.cert = sign(t, a.file, a.cert, a.cert, a.key, a.key)
	return a
}

// issue writes a certificate and its key.
func (a authority) issue(t testing.TB, dir, name string) (certFile, keyFile string) {
	t.Helper()
	certFile, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	c := template(name)
	c.DNSNames, c.IPAddresses = []string{"redis.test"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	key := newKey(t)
	sign(t, certFile, c, a.cert, key, a.key)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, keyFile, "EC PRIVATE KEY", der)
	return certFile, keyFile
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(
	t testing.TB, file string, cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey,
) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, file, "CERTIFICATE", der)
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func writePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
