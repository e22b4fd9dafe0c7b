package listen

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/node/certs"
	"github.com/edgelimit/edgelimit/node/files"
)

// What TLS.ClientCerts may be.
const (
	ClientCertsOff      = "off"
	ClientCertsOptional = "optional"
	ClientCertsRequired = "required"
)

// TLS says how a listener speaks TLS. The zero value means that it does not.
type TLS struct {
	// CertFile and KeyFile are PEM files of the certificate, with those of its issuers behind it, and of its key. All
	// files are read again when they change.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ClientCAFile is a PEM file of the authorities that clients' certificates are verified by.
	ClientCAFile string `yaml:"client_ca_file"`
	// ClientCerts is what is asked of clients: nothing (off), a certificate from those that have one (optional), or a
	// certificate (required). Empty: required with ClientCAFile, else off. A certificate that is shown must be valid.
	ClientCerts string `yaml:"client_certs"`
	// ClientNames, unless there are none, are the names of which a client's certificate must have one: a URI, DNS name
	// or IP address. Its common name does not count.
	ClientNames []string `yaml:"client_names"`
	// MinVersion is the lowest version: "1.2" (also if empty) or "1.3".
	MinVersion string `yaml:"min_version"`
}

// versions are the values of TLS.MinVersion.
var versions = map[string]uint16{"": tls.VersionTLS12, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// clientAuth returns what is asked of clients.
func (t *TLS) clientAuth() tls.ClientAuthType {
	switch {
	case t.ClientCerts == ClientCertsOptional:
		return tls.VerifyClientCertIfGiven
	case t.ClientCerts == ClientCertsRequired, t.ClientCerts == "" && t.ClientCAFile != "":
		return tls.RequireAndVerifyClientCert
	}
	return tls.NoClientCert
}

// RequiresClientCerts reports whether nobody connects without a certificate of ClientCAFile's authorities.
func (t *TLS) RequiresClientCerts() bool { return t.clientAuth() == tls.RequireAndVerifyClientCert }

// AsksForClientCerts reports whether clients may show a certificate.
func (t *TLS) AsksForClientCerts() bool { return t.clientAuth() != tls.NoClientCert }

// Validate reports everything that is wrong with the settings. It reads no file.
func (t *TLS) Validate() error {
	var errs []error
	check := func(ok bool, text string) {
		if !ok {
			errs = append(errs, errors.New(text))
		}
	}
	check(t.CertFile != "" && t.KeyFile != "", "cert_file and key_file: TLS needs both")
	known := []string{"", ClientCertsOff, ClientCertsOptional, ClientCertsRequired}
	check(slices.Contains(known, t.ClientCerts),
		fmt.Sprintf("client_certs: %.80q, want off, optional or required", t.ClientCerts))
	_, ok := versions[t.MinVersion]
	check(ok, fmt.Sprintf("min_version: %.80q, want \"1.2\" or \"1.3\"", t.MinVersion))
	asks := t.AsksForClientCerts()
	check(!asks || t.ClientCAFile != "", "client_certs: without client_ca_file no certificate can be verified")
	check(asks || t.ClientCAFile == "", "client_ca_file: with client_certs: off it has no effect")
	check(asks || len(t.ClientNames) == 0, "client_names: without client certificates they have no effect: set "+
		"client_ca_file")
	check(!slices.Contains(t.ClientNames, ""), "client_names: one is empty")
	return errors.Join(errs...)
}

// files returns the files that are read.
func (t *TLS) files() []string {
	return slices.DeleteFunc([]string{t.CertFile, t.KeyFile, t.ClientCAFile}, func(f string) bool { return f == "" })
}

// errClientName means that a client's certificate has none of TLS.ClientNames.
var errClientName = errors.New("the certificate has none of client_names")

// load reads the files.
func (t *TLS) load(alpn []string) (*loadedTLS, error) {
	pair, err := certs.Pair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("cert_file, key_file: %w", err)
	}
	l := &loadedTLS{chain: pair.Certificate, config: &tls.Config{Certificates: []tls.Certificate{pair},
		MinVersion: versions[t.MinVersion], ClientAuth: t.clientAuth(), NextProtos: alpn}}
	for _, der := range pair.Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("cert_file: %s: %w", t.CertFile, err)
		}
		if l.expires.IsZero() || cert.NotAfter.Before(l.expires) {
			l.expires = cert.NotAfter
		}
	}
	if t.ClientCAFile != "" {
		if l.config.ClientCAs, err = certs.Pool(t.ClientCAFile); err != nil {
			return nil, fmt.Errorf("client_ca_file: %w", err)
		}
	}
	if len(t.ClientNames) > 0 { // of resumed sessions as well
		l.config.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || slices.ContainsFunc(t.ClientNames, func(name string) bool {
				return certs.HasName(state.PeerCertificates[0], name)
			}) {
				return nil
			}
			return errClientName
		}
	}
	return l, nil
}

// loadedTLS is what the files had. The keys of its sessions' tickets are its own, so that no session outlives a change
// of the files.
type loadedTLS struct {
	config  *tls.Config
	chain   [][]byte
	expires time.Time // the first of the chain
}

func (l *loadedTLS) equal(o *loadedTLS) bool {
	pool := l.config.ClientCAs
	return slices.EqualFunc(l.chain, o.chain, bytes.Equal) && (pool == nil || pool.Equal(o.config.ClientCAs))
}

// tlsFiles are the files of a listener's TLS, and what they had when they were last good.
type tlsFiles struct {
	TLS
	loaded atomic.Pointer[loadedTLS]
	bad    atomic.Bool // the files are not good now
	why    string      // they were not, when they were last read; only Watch uses it
}

// UseTLS has the listener speak TLS from Start on. It reads the files.
func (l *Listener) UseTLS(t TLS) error {
	l.tls = &tlsFiles{TLS: t}
	loaded, err := t.load(nil)
	if err != nil {
		return fmt.Errorf("tls.%s.%w", l.Name, err)
	}
	l.tls.loaded.Store(loaded)
	return nil
}

// Certificate describes what a listener that speaks TLS shows its clients.
type Certificate struct {
	File    string
	Expires time.Time // the first certificate in the file to do so
	Current bool      // the files are good: it is what they have
}

// Certificate returns the listener's certificate; nil without TLS. It is safe for concurrent use.
func (l *Listener) Certificate() *Certificate {
	if l.tls == nil {
		return nil
	}
	return &Certificate{File: l.tls.CertFile, Expires: l.tls.loaded.Load().expires, Current: !l.tls.bad.Load()}
}

// reload reads the files again. Unless they are good, the last good ones stay in use.
func (l *Listener) reload() {
	loaded, err := l.tls.load(l.Protocols)
	l.tls.bad.Store(err != nil)
	if err != nil {
		if l.tls.why != err.Error() {
			l.log.Warn("TLS files cannot be used: the last good ones stay in use", "door", l.Name, "error", err)
		}
		l.tls.why = err.Error()
		return
	}
	wasBad := l.tls.why != ""
	l.tls.why = ""
	if !loaded.equal(l.tls.loaded.Load()) {
		l.tls.loaded.Store(loaded)
		l.log.Info("TLS files in use", "door", l.Name, "certificate", l.tls.CertFile, "expires", loaded.expires)
	} else if wasBad {
		l.log.Info("TLS files are good again", "door", l.Name)
	}
}

// Watcher reads the TLS files of listeners again when they change.
type Watcher struct {
	listeners []*Listener
	asked     chan struct{}
}

// NewWatcher returns a watcher for those of the listeners that speak TLS.
func NewWatcher(listeners []*Listener) *Watcher {
	w := &Watcher{asked: make(chan struct{}, 1)}
	for _, l := range listeners {
		if l.tls != nil {
			w.listeners = append(w.listeners, l)
		}
	}
	return w
}

// Reload has Run read the files now, or once it runs. It does not wait, and is safe for concurrent use.
func (w *Watcher) Reload() {
	select {
	case w.asked <- struct{}{}:
	default:
	}
}

// Run reads the files at first, after the notifier's hints, every poll for file systems without them, and after
// Reload, until done closes. It calls looked each time.
func (w *Watcher) Run(done <-chan struct{}, n *files.Notifier, poll time.Duration, looked func()) {
	var paths []string
	for _, l := range w.listeners {
		paths = append(paths, l.tls.files()...)
	}
	n.Follow(done, w.asked, poll, paths, func() {
		for _, l := range w.listeners {
			l.reload()
		}
		looked()
	})
}
