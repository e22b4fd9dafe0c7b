package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestClientConfig(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	c, other := ca.Issue(t, "client"), ca.Issue(t, "other")
	text := filepath.Join(t.TempDir(), "text")
	testkit.Must(t, os.WriteFile(text, []byte("hello"), 0o600))
	for _, tt := range []struct {
		files Client
		says  string // of the error; empty: it works
	}{
		{Client{}, ""},
		{Client{CAFile: ca.CertFile, CertFile: c.CertFile, KeyFile: c.KeyFile, ServerName: "x"}, ""},
		{Client{CAFile: "missing.pem"}, "ca_file: stat missing.pem"},
		{Client{CAFile: text}, "ca_file: " + text + " holds no certificate"},
		{Client{CAFile: ca.KeyFile}, "holds no certificate"},
		{Client{CertFile: c.CertFile}, "cert_file and key_file"},
		{Client{KeyFile: c.KeyFile}, "cert_file and key_file"},
		{Client{CertFile: c.CertFile, KeyFile: other.KeyFile}, "cert_file: " + c.CertFile + " and " + other.KeyFile},
		{Client{CertFile: t.TempDir(), KeyFile: c.KeyFile}, "a directory, not a regular file"},
	} {
		cfg, err := tt.files.Config()
		switch {
		case tt.says != "":
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%+v: %v, want %q", tt.files, err, tt.says)
			}
		case err != nil || cfg.ServerName != tt.files.ServerName || cfg.MinVersion != tls.VersionTLS12 ||
			(cfg.RootCAs == nil) != (tt.files.CAFile == "") ||
			(len(cfg.Certificates) == 0) != (tt.files.CertFile == ""):
			t.Errorf("%+v: %+v, %v", tt.files, cfg, err)
		}
	}
}

// A file that is cut within its second certificate, as while it is written, is not taken for one with the first alone.
func TestCutFiles(t *testing.T) {
	ca, other := testkit.NewAuthority(t, "ca"), testkit.NewAuthority(t, "other")
	first, err := os.ReadFile(ca.CertFile)
	testkit.Must(t, err)
	second, err := os.ReadFile(other.CertFile)
	testkit.Must(t, err)
	file := filepath.Join(t.TempDir(), "chain.pem")
	for _, tt := range []struct {
		text []byte
		ok   bool
	}{
		{slices.Concat(first, second), true},
		{slices.Concat([]byte("# two authorities\n"), first, []byte("# the other\n"), second), true},
		{slices.Concat(first, second[:len(second)/2]), false},
		{slices.Concat(first, second[:len(second)-5]), false},
		{slices.Concat(second[:len(second)/2], first), false},
		{slices.Concat(first, bytes.Repeat([]byte("\n"), maxFile-len(first)), second), false},
	} {
		testkit.Must(t, os.WriteFile(file, tt.text, 0o600))
		_, inPool := Pool(file)
		_, inPair := Pair(file, ca.KeyFile)
		if (inPool == nil) != tt.ok || (inPair == nil) != tt.ok {
			t.Errorf("%d bytes: %v, %v, want them taken: %v", len(tt.text), inPool, inPair, tt.ok)
		}
	}
}

// The name is that of a verified certificate: of its URIs, DNS names and common name the first that there is.
func TestClientName(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	parse := func(text string) *url.URL {
		u, err := url.Parse(text)
		testkit.Must(t, err)
		return u
	}
	of := func(change func(*x509.Certificate)) *tls.ConnectionState {
		c := ca.Issue(t, "common", change)
		return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c.Certificate},
			VerifiedChains: [][]*x509.Certificate{{c.Certificate, ca.Certificate}}}
	}
	unverified := of(func(*x509.Certificate) {})
	unverified.VerifiedChains = nil
	for _, tt := range []struct {
		state *tls.ConnectionState
		want  string
	}{
		{of(func(c *x509.Certificate) {
			c.URIs = []*url.URL{parse("spiffe://mesh/a"), parse("spiffe://mesh/b")}
		}), "spiffe://mesh/a"},
		{of(func(c *x509.Certificate) { c.DNSNames = []string{"a.test", "b.test"} }), "a.test"},
		{of(func(c *x509.Certificate) { c.DNSNames = nil }), "common"},
		{of(func(c *x509.Certificate) { c.DNSNames, c.Subject.CommonName = nil, "" }), ""},
		{unverified, ""},
		{&tls.ConnectionState{}, ""},
		{nil, ""},
	} {
		if got := ClientName(tt.state); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestHasName(t *testing.T) {
	uri, _ := url.Parse("spiffe://mesh/a")
	c := testkit.NewAuthority(t, "ca").Issue(t, "common.test", func(c *x509.Certificate) {
		c.DNSNames, c.URIs = []string{"a.test", "*.b.test"}, []*url.URL{uri}
	})
	for name, want := range map[string]bool{
		"a.test": true, "A.TEST": true, "x.b.test": true, "127.0.0.1": true, "::1": true, "spiffe://mesh/a": true,
		"b.test": false, "x.y.b.test": false, "127.0.0.2": false, "spiffe://mesh": false, "common.test": false,
		"": false,
	} {
		if got := HasName(c.Certificate, name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}
