package listen

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/edgelimit/edgelimit/node/files"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// secure opens and serves a listener that speaks TLS, with an HTTP server that answers with its client's address and
// the protocol.
func secure(t *testing.T, settings TLS, log *testkit.Log, changes ...func(*Listener)) *Listener {
	t.Helper()
	l := serving(t, 100, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.RemoteAddr+" "+r.Proto)
	}))
	l.log = log.Logger()
	if settings.CertFile != "" {
		if err := l.UseTLS(settings); err != nil {
			t.Fatal(err)
		}
	}
	for _, change := range changes {
		change(l)
	}
	l.Start(func(_ string, err error) {
		if !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() {
		select {
		case <-l.leaving: // the test has stopped it
		default:
			l.Stop(0, testkit.Patience)
		}
	})
	return l
}

// serverTLS are the settings of a listener with a certificate, which asks clients for none.
func serverTLS(c *testkit.Certificate) TLS { return TLS{CertFile: c.CertFile, KeyFile: c.KeyFile} }

// ask sends a request over a new connection, and returns the answer.
func ask(l *Listener, cfg *tls.Config) (string, error) {
	h := http.Client{Timeout: testkit.Patience, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: cfg, ForceAttemptHTTP2: true}}
	resp, err := h.Get("https://" + l.Addr().String() + "/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// exchange is ask with no more than TLS, whose error it returns.
func exchange(l *Listener, cfg *tls.Config) error {
	conn, err := tls.Dial("tcp", l.Addr().String(), cfg)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") // the server may have refused by now
	_, err = conn.Read(make([]byte, 1))
	return err
}

// failed waits until handshakes have failed so often for a reason, which the log names.
func failed(t *testing.T, l *Listener, log *testkit.Log, why failure, times uint64) {
	t.Helper()
	testkit.Eventually(t, string(why), func() bool { return l.HandshakeFailures()[string(why)] == times })
	if failures[why] != "" {
		testkit.Eventually(t, "a line about "+string(why), func() bool {
			return log.HasLine("level=WARN", "refused in their handshake", "reason="+string(why), "source=127.0.0.1",
				failures[why])
		})
	}
}

// Who may not connect is refused, each for a reason that the log and the statistics name, and others are served.
func TestRefusedHandshakes(t *testing.T) {
	ca, stranger := testkit.NewAuthority(t, "ca"), testkit.NewAuthority(t, "stranger")
	server, client := ca.Issue(t, "server"), ca.Issue(t, "client")
	settings := serverTLS(server)
	settings.ClientCAFile = ca.CertFile
	named := func(name string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.Subject.CommonName, c.DNSNames, c.IPAddresses = name, nil, nil }
	}
	version := func(v uint16) *tls.Config {
		cfg := ca.Client(client)
		cfg.MaxVersion = v
		return cfg
	}
	for _, tt := range []struct {
		name   string
		change func(*TLS)
		client *tls.Config // nil: plain text
		why    failure
	}{
		{"plain text", nil, nil, "plain_text"},
		{"TLS 1.0", nil, version(tls.VersionTLS10), "version"},
		{"TLS 1.1", nil, version(tls.VersionTLS11), "version"},
		{"TLS 1.2 where 1.3 is wanted", func(s *TLS) { s.MinVersion = "1.3" }, version(tls.VersionTLS12), "version"},
		{"no certificate", nil, ca.Client(), "no_certificate"},
		{"no certificate, TLS 1.2", nil, func() *tls.Config {
			cfg := ca.Client()
			cfg.MaxVersion = tls.VersionTLS12
			return cfg
		}(), "no_certificate"},
		{"another authority's", nil, ca.Client(stranger.Issue(t, "client")), "unknown_authority"},
		{"another authority's of the same name", nil, ca.Client(testkit.NewAuthority(t, "ca").Issue(t, "client")),
			"unknown_authority"},
		{"its own authority", nil, ca.Client(stranger), "unknown_authority"},
		{"expired", nil, ca.Client(ca.Issue(t, "old", func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Minute)
		})), "expired"},
		{"not yet valid", nil, ca.Client(ca.Issue(t, "young", func(c *x509.Certificate) {
			c.NotBefore = time.Now().Add(time.Hour)
		})), "expired"},
		{"a server's", nil, ca.Client(ca.Issue(t, "web", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		})), "bad_certificate"},
		{"another name", func(s *TLS) { s.ClientNames = []string{"proxy.test"} }, ca.Client(client), "client_name"},
		{"the name as common name", func(s *TLS) { s.ClientNames = []string{"proxy.test"} },
			ca.Client(ca.Issue(t, "cn", named("proxy.test"))), "client_name"},
		{"a bad one where none is needed", func(s *TLS) { s.ClientCerts = ClientCertsOptional },
			ca.Client(stranger.Issue(t, "client")), "unknown_authority"},
		{"a client that does not trust the server", nil, stranger.Client(client), "refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, log := settings, new(testkit.Log)
			if tt.change != nil {
				tt.change(&s)
			}
			l := secure(t, s, log)
			if tt.client == nil {
				conn := testkit.Dial(t, l.Addr().String())
				_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				if b, _ := io.ReadAll(conn); strings.Contains(string(b), "HTTP/1.1 200") {
					t.Errorf("it is answered: %q", b)
				}
			} else {
				// Go clients show no certificate that the server's authorities have not signed, unless told to.
				if len(tt.client.Certificates) > 0 {
					shown := tt.client.Certificates[0]
					tt.client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
						return &shown, nil
					}
				}
				if err := exchange(l, tt.client); err == nil {
					t.Error("it is served")
				} else if tt.why != "refused" && !strings.Contains(err.Error(), "remote error: tls: ") {
					t.Errorf("the client is not told why: %v", err)
				}
			}
			failed(t, l, log, tt.why, 1)
			testkit.Eventually(t, "its place is free", func() bool { return l.Stats().Open == 0 })
		})
	}
}

// Who may connect is served: with a certificate where one is needed, by one of its names, without where none is.
func TestAcceptedHandshakes(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	server := ca.Issue(t, "server")
	spiffe, _ := url.Parse("spiffe://edge/proxy")
	client := ca.Issue(t, "client", func(c *x509.Certificate) {
		c.DNSNames, c.URIs = []string{"proxy.test"}, []*url.URL{spiffe}
	})
	for _, tt := range []struct {
		name   string
		change func(*TLS)
		client *tls.Config
	}{
		{"no client certificates", func(s *TLS) { s.ClientCAFile = "" }, ca.Client()},
		{"optional, none", func(s *TLS) { s.ClientCerts = ClientCertsOptional }, ca.Client()},
		{"optional, a good one", func(s *TLS) { s.ClientCerts = ClientCertsOptional }, ca.Client(client)},
		{"required", func(*TLS) {}, ca.Client(client)},
		{"required, TLS 1.3", func(s *TLS) { s.MinVersion, s.ClientCerts = "1.3", ClientCertsRequired },
			ca.Client(client)},
		{"by its DNS name", func(s *TLS) { s.ClientNames = []string{"other", "proxy.test"} }, ca.Client(client)},
		{"by its URI", func(s *TLS) { s.ClientNames = []string{"spiffe://edge/proxy"} }, ca.Client(client)},
		{"by its address", func(s *TLS) { s.ClientNames = []string{"127.0.0.1"} }, ca.Client(client)},
		{"names, but optional", func(s *TLS) {
			s.ClientCerts, s.ClientNames = ClientCertsOptional, []string{"x"}
		}, ca.Client()},
	} {
		s := serverTLS(server)
		s.ClientCAFile = ca.CertFile
		tt.change(&s)
		log := new(testkit.Log)
		l := secure(t, s, log)
		if body, err := ask(l, tt.client); err != nil || !strings.HasSuffix(body, " HTTP/2.0") {
			t.Errorf("%s: %q, %v; %s", tt.name, body, err, log)
		}
	}
}

// A client chooses between HTTP/2 and HTTP/1.1; the limiter knows when either is idle.
func TestHTTPOverTLS(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	for _, proto := range []string{"h2", "http/1.1", ""} {
		l := secure(t, serverTLS(ca.Issue(t, "server")), new(testkit.Log))
		cfg := ca.Client()
		if proto != "" {
			cfg.NextProtos = []string{proto}
		}
		transport := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: proto == "h2"}
		h := http.Client{Transport: transport, Timeout: testkit.Patience}
		for range 2 {
			resp, err := h.Get("https://" + l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"h2": "HTTP/2.0"}[proto]
			if want == "" {
				want = "HTTP/1.1"
			}
			if body := read(t, resp); !strings.HasSuffix(body, want) || resp.TLS.NegotiatedProtocol != proto {
				t.Errorf("%q: %q, %q", proto, body, resp.TLS.NegotiatedProtocol)
			}
		}
		testkit.Eventually(t, "the connection is idle", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			for c := range l.conns {
				return !c.busy.Load()
			}
			return false
		})
		if s := l.Stats(); s.Accepted != 1 {
			t.Errorf("%q: %d connections", proto, s.Accepted)
		}
		transport.CloseIdleConnections()
	}
}

// A client that says nothing delays nobody, and loses its place in time; a listener that stops does not wait for it.
func TestSilentClients(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	log := new(testkit.Log)
	l := secure(t, serverTLS(ca.Issue(t, "server")), log, func(l *Listener) { l.handshakeWithin = testkit.Patience })
	for range 20 {
		testkit.Dial(t, l.Addr().String())
	}
	testkit.Eventually(t, "they have places", func() bool { return l.Stats().Open == 20 })
	if _, err := ask(l, ca.Client()); err != nil {
		t.Fatal(err)
	}
	l.Stop(0, time.Second) // far sooner than the handshakes' time
	if s := l.Stats(); s.Open != 0 {
		t.Errorf("after Stop: %+v", s)
	}
	log = new(testkit.Log)
	l = secure(t, serverTLS(ca.Issue(t, "server")), log,
		func(l *Listener) { l.handshakeWithin = 50 * time.Millisecond })
	if b, err := io.ReadAll(testkit.Dial(t, l.Addr().String())); len(b) > 0 || err != nil {
		t.Errorf("a silent client gets %q, %v", b, err)
	}
	failed(t, l, log, "timeout", 1)
	testkit.Eventually(t, "its place is free", func() bool { return l.Stats().Open == 0 })
	_ = testkit.Dial(t, l.Addr().String()).Close() // as a probe of the port
	failed(t, l, log, "closed", 1)
	if log.HasLine("reason=closed") {
		t.Error("a probe of the port is a warning")
	}
}

// Beyond the limits a TLS client is hung up on: it gets no words in plain text.
func TestFullOverTLS(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	l := secure(t, serverTLS(ca.Issue(t, "server")), new(testkit.Log), func(l *Listener) { l.limits.Max = 0 })
	conn := testkit.Dial(t, l.Addr().String())
	if b, err := io.ReadAll(conn); len(b) > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("it gets %q, %v", b, err)
	}
	if s := l.Stats(); s.RefusedFull != 1 || s.Accepted != 0 {
		t.Errorf("%+v", s)
	}
}

func TestTLSValidate(t *testing.T) {
	for _, tt := range []struct {
		settings TLS
		says     []string // nothing: it is valid
	}{
		{TLS{CertFile: "c", KeyFile: "k"}, nil},
		{TLS{CertFile: "c", KeyFile: "k", ClientCAFile: "a", MinVersion: "1.3", ClientNames: []string{"x"}}, nil},
		{TLS{CertFile: "c", KeyFile: "k", ClientCerts: "off"}, nil},
		{TLS{}, []string{"cert_file and key_file"}},
		{TLS{CertFile: "c"}, []string{"cert_file and key_file"}},
		{TLS{CertFile: "c", KeyFile: "k", MinVersion: "1.1", ClientCerts: "maybe"},
			[]string{`min_version: "1.1"`, `client_certs: "maybe", want off, optional or required`}},
		{TLS{CertFile: "c", KeyFile: "k", ClientCerts: "required"}, []string{"client_certs: without client_ca_file"}},
		{TLS{CertFile: "c", KeyFile: "k", ClientCerts: "off", ClientCAFile: "a"}, []string{"client_ca_file: with"}},
		{TLS{CertFile: "c", KeyFile: "k", ClientNames: []string{"x"}}, []string{"client_names: without"}},
		{TLS{CertFile: "c", KeyFile: "k", ClientCAFile: "a", ClientNames: []string{""}}, []string{"one is empty"}},
	} {
		err := tt.settings.Validate()
		if (err == nil) != (tt.says == nil) {
			t.Errorf("%+v: %v", tt.settings, err)
		}
		for _, say := range tt.says {
			if err != nil && !strings.Contains(err.Error(), say) {
				t.Errorf("%+v: %v does not say %q", tt.settings, err, say)
			}
		}
	}
}

// Files that cannot be used are an error, which names the setting, when the listener is opened; none hangs.
func TestUnusableFiles(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	good, other, dir := ca.Issue(t, "server"), ca.Issue(t, "other"), t.TempDir()
	pipe, text := filepath.Join(dir, "pipe"), filepath.Join(dir, "text")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(text, []byte("hello"), 0o600)); err != nil {
		t.Fatal(err)
	}
	l := open(t, 1)
	defer l.Abandon()
	for _, tt := range []struct {
		settings TLS
		says     string
	}{
		{TLS{CertFile: pipe, KeyFile: good.KeyFile}, "tls.http.cert_file, key_file: " + pipe + ": a named pipe"},
		{TLS{CertFile: good.CertFile + "x", KeyFile: good.KeyFile}, "no such file"},
		{TLS{CertFile: text, KeyFile: good.KeyFile}, "text and "},
		{TLS{CertFile: good.CertFile, KeyFile: other.KeyFile}, "private key does not match"},
		{TLS{CertFile: good.CertFile, KeyFile: good.KeyFile, ClientCAFile: text},
			"tls.http.client_ca_file: " + text + " holds no certificate"},
	} {
		if err := l.UseTLS(tt.settings); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%+v: %v, want %q", tt.settings, err, tt.says)
		}
	}
}

// watched runs a watcher of a listener until the test ends, which is asked by hand.
func watched(t *testing.T, l *Listener) (look func()) {
	t.Helper()
	w, looked, ended := NewWatcher([]*Listener{l}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(t.Context().Done(), files.Silent(), time.Hour, func() {
			select {
			case looked <- struct{}{}:
			case <-t.Context().Done():
			}
		})
	}()
	t.Cleanup(func() { <-ended })
	<-looked // at first
	return func() {
		w.Reload()
		<-looked
	}
}

// shown returns the certificate that a new client is shown.
func shown(t *testing.T, l *Listener, cfg *tls.Config) *x509.Certificate {
	t.Helper()
	conn, err := tls.Dial("tcp", l.Addr().String(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

func replace(t *testing.T, file, with string) {
	t.Helper()
	text, err := os.ReadFile(with)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// While the certificate and the key do not belong together the last good pair stays. The log and Certificate say so.
func TestHalfWrittenFiles(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	first, second := ca.Issue(t, "first"), ca.Issue(t, "second", func(c *x509.Certificate) {
		c.NotAfter = time.Now().Add(time.Hour)
	})
	log := new(testkit.Log)
	l := secure(t, serverTLS(first), log)
	look := watched(t, l)
	before := l.Certificate()
	replace(t, first.CertFile, second.CertFile)
	look()
	look()
	if got := shown(t, l, ca.Client()); got.Subject.CommonName != "first" {
		t.Errorf("%s is shown", got.Subject.CommonName)
	}
	if c := l.Certificate(); c.Current || !c.Expires.Equal(before.Expires) {
		t.Errorf("%+v", c)
	}
	if got := strings.Count(log.String(), "the last good ones stay in use"); got != 1 {
		t.Errorf("%d lines: %s", got, log)
	}
	replace(t, first.KeyFile, second.KeyFile)
	look()
	if got := shown(t, l, ca.Client()); got.Subject.CommonName != "second" {
		t.Errorf("%s is shown", got.Subject.CommonName)
	}
	if c := l.Certificate(); !c.Current || !c.Expires.Equal(second.NotAfter) {
		t.Errorf("%+v", c)
	}
	if !log.HasLine("level=INFO", "TLS files in use") {
		t.Errorf("the log is %s", log)
	}
}

// A session that was begun under other authorities is not resumed.
func TestSessionsEndWithTheirAuthorities(t *testing.T) {
	ca, next := testkit.NewAuthority(t, "ca"), testkit.NewAuthority(t, "next")
	settings := serverTLS(ca.Issue(t, "server"))
	settings.ClientCAFile = ca.CertFile
	log := new(testkit.Log)
	l := secure(t, settings, log)
	look := watched(t, l)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cfg := ca.Client(ca.Issue(t, "client"))
		cfg.MaxVersion, cfg.ClientSessionCache = version, tls.NewLRUClientSessionCache(8)
		resumed := func() (bool, error) {
			conn, err := tls.Dial("tcp", l.Addr().String(), cfg)
			if err != nil {
				return false, err
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			_, err = http.ReadResponse(bufio.NewReader(conn), nil)
			return conn.ConnectionState().DidResume, err
		}
		if again, err := resumed(); again || err != nil {
			t.Fatal(again, err)
		}
		look() // nothing has changed
		if again, err := resumed(); !again || err != nil {
			t.Errorf("%x: sessions are not resumed: %v", version, err)
		}
		kept, err := os.ReadFile(ca.CertFile)
		if err != nil {
			t.Fatal(err)
		}
		replace(t, ca.CertFile, next.CertFile)
		look()
		if again, err := resumed(); err == nil {
			t.Errorf("%x: served after its authority has gone, resumed: %v", version, again)
		}
		if err := os.WriteFile(ca.CertFile, kept, 0o600); err != nil {
			t.Fatal(err)
		}
		look()
	}
}

// net.Conn's of a TLS listener end once, like others.
func TestTLSConnectionsAreCounted(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	l := secure(t, serverTLS(ca.Issue(t, "server")), new(testkit.Log))
	var conns []net.Conn
	for range 5 {
		conn, err := tls.Dial("tcp", l.Addr().String(), ca.Client())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	if s := l.Stats(); s.Open != 5 || s.Accepted != 5 {
		t.Errorf("%+v", s)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	testkit.Eventually(t, "they have ended", func() bool { return l.Stats().Open == 0 })
}

// A connection with HTTP/2 has 100 requests at a time, and 256 KiB on their way to the server.
func TestHTTP2Settings(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	l := secure(t, serverTLS(ca.Issue(t, "server")), new(testkit.Log))
	cfg := ca.Client()
	cfg.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", l.Addr().String(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testkit.Patience))
	_, _ = io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	streams, window := uint32(0), uint32(65_535)
	for streams == 0 || window == 65_535 {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				streams, _ = frame.Value(http2.SettingMaxConcurrentStreams)
			}
		case *http2.WindowUpdateFrame:
			window += frame.Increment
		}
	}
	if streams != 100 || window != 256<<10 {
		t.Errorf("%d streams, %d bytes", streams, window)
	}
}
