// Package certs reads the files of TLS, and names clients by their certificates.
package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/edgelimit/edgelimit/node/files"
)

// maxFile is the longest file that is read, in bytes.
const maxFile = 1 << 20

// read reads a PEM file. It refuses one that is too long, or has blocks that end nowhere, as while it is written: what
// is left would do for less than what it is to have.
func read(file string) ([]byte, error) {
	text, err := files.Read(file, maxFile+1)
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxFile:
		return nil, fmt.Errorf("%s is longer than %d bytes", file, maxFile)
	}
	blocks := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		blocks++
	}
	if begun := bytes.Count(text, []byte("-----BEGIN ")); begun != blocks {
		return nil, fmt.Errorf("%s is cut or malformed: %d of its %d blocks of PEM can be read", file, blocks, begun)
	}
	return text, nil
}

// Pool reads the certificates of authorities from a PEM file.
func Pool(file string) (*x509.CertPool, error) {
	text, err := read(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", file)
	}
	return pool, nil
}

// Pair reads a certificate, with those of its issuers behind it, and its key, from PEM files. Leaf of the result is
// set.
func Pair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := read(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := read(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err == nil && pair.Leaf == nil { // with GODEBUG=x509keypairleaf=0
		pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0])
	}
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	return pair, nil
}

// Client says how a client trusts a server, and is trusted by it. The zero value trusts the system's authorities.
type Client struct {
	CAFile            string // PEM of the authorities to trust in place of the system's
	CertFile, KeyFile string // PEM of the client's certificate; empty: none
	ServerName        string // the name in the server's certificate; empty: the host that was dialed
}

// Validate reports a certificate without its key, or a key without its certificate.
func (c *Client) Validate() error {
	if (c.CertFile == "") != (c.KeyFile == "") {
		return errors.New("cert_file and key_file: a certificate needs both")
	}
	return nil
}

// Config reads the files. The error names the setting: ca_file or cert_file.
func (c *Client) Config() (*tls.Config, error) {
	cfg := &tls.Config{ServerName: c.ServerName, MinVersion: tls.VersionTLS12}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.CAFile != "" {
		var err error
		if cfg.RootCAs, err = Pool(c.CAFile); err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
	}
	if c.CertFile != "" {
		pair, err := Pair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("cert_file: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// ClientName names the client of a connection by its verified certificate: its first URI (as a SPIFFE ID), else its
// first DNS name, else its common name. It is empty without TLS, without a certificate, and if nobody has verified it.
func ClientName(state *tls.ConnectionState) string {
	if state == nil || len(state.VerifiedChains) == 0 {
		return ""
	}
	switch cert := state.VerifiedChains[0][0]; {
	case len(cert.URIs) > 0:
		return cert.URIs[0].String()
	case len(cert.DNSNames) > 0:
		return cert.DNSNames[0]
	default:
		return cert.Subject.CommonName
	}
}

// HasName reports whether a certificate is for a name: one of its URIs, or a DNS name or IP address as clients verify
// those of servers. The common name does not count.
func HasName(cert *x509.Certificate, name string) bool {
	for _, uri := range cert.URIs {
		if uri.String() == name {
			return true
		}
	}
	return cert.VerifyHostname(name) == nil
}
