package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/listen"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// withTLS opens every listener, and has each speak TLS.
func withTLS(cfg Config, settings listen.TLS) Config {
	cfg = withGRPC(withRESP(withListeners(cfg)))
	cfg.Admin, cfg.Dashboard, cfg.Proxy.Listen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.Proxy.Upstreams = []string{"http://127.0.0.1:1"} // nobody is there: the proxy answers 502
	for _, name := range listenerNames {
		cfg.TLS[name] = settings
	}
	return cfg
}

// tlsClient is an HTTP client with these settings, that keeps no connection.
func tlsClient(cfg *tls.Config) *http.Client {
	return &http.Client{Timeout: testkit.Patience, Transport: &http.Transport{
		TLSClientConfig: cfg, DisableKeepAlives: true, ForceAttemptHTTP2: true}}
}

// tlsAsks asks each listener of a node once, in its protocol, and returns the errors by listener.
func tlsAsks(ctx context.Context, n *Node, cfg *tls.Config) map[string]error {
	web, errs := tlsClient(cfg), make(map[string]error)
	for name, ask := range map[string]struct{ method, path, body, want string }{
		"http":   {"POST", "/v1/check", `{"rule":"per_client","identity":"x"}`, `"allowed":true`},
		"health": {"GET", "/readyz", "", "ok"}, "admin": {"POST", "/api/bans/remove", `{}`, ""},
		"dashboard":   {"GET", "/api/status", "", `"node":`},
		proxyListener: {"GET", "/", "", "Bad Gateway"},
	} {
		errs[name] = func() error {
			r, err := http.NewRequestWithContext(ctx, ask.method, "https://"+n.Addr(name)+ask.path,
				strings.NewReader(ask.body))
			if err != nil {
				return err
			}
			r.Header.Set("Content-Type", "application/json")
			resp, err := web.Do(r)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), ask.want) ||
				resp.Proto != "HTTP/2.0" {
				return fmt.Errorf("%s %s %q %w", resp.Proto, resp.Status, body, err)
			}
			return nil
		}()
	}
	errs["grpc"] = func() error {
		conn, err := grpc.NewClient(n.Addr("grpc"), grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, bringing("x", 0))
		return err
	}()
	errs["resp"] = func() error {
		c := redis.NewClient(&redis.Options{Addr: n.Addr("resp"), TLSConfig: cfg, MaxRetries: -1, DialerRetries: 1,
			DialTimeout: testkit.Patience, ReadTimeout: testkit.Patience})
		defer c.Close()
		return c.Do(ctx, "CL.THROTTLE", "x", 1000, 1000, 60).Err()
	}()
	return errs
}

// Every listener speaks TLS with clients that have a certificate, and with no others.
func TestEveryListenerSpeaksTLS(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	server, log := ca.Issue(t, "server"), new(testkit.Log)
	cfg := withTLS(quiet(perClient), ListenerTLS{CertFile: server.CertFile, KeyFile: server.KeyFile,
		ClientCAFile: ca.CertFile})
	cfg.Logger = log.Logger()
	n := launch(t, cfg).ready(t)
	good, stranger := ca.Client(ca.Issue(t, "client")), ca.Client()
	for name, err := range tlsAsks(t.Context(), n.Node, good) {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range tlsAsks(t.Context(), n.Node, stranger) {
		if err == nil {
			t.Errorf("%s serves a client without a certificate", name)
		}
		testkit.Eventually(t, "a line that says why "+name+" refuses", func() bool { // after its client has been told
			return log.HasLine("refused in their handshake", "door="+name, "reason=no_certificate")
		})
	}
	resp, err := tlsClient(good).Get("https://" + n.Addr("health") + "/metrics")
	testkit.Must(t, err)
	_, text := slurp(t, resp)
	for _, name := range listenerNames {
		for _, want := range []string{
			fmt.Sprintf("failed_handshakes_total{door=%q,reason=\"no_certificate\"} ", name),
			fmt.Sprintf("failed_handshakes_total{door=%q,reason=\"expired\"} 0", name),
			fmt.Sprintf("tls_certificate_expiry_timestamp_seconds{door=%q} 1.", name),
			fmt.Sprintf("tls_files_current{door=%q} 1", name),
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the metrics lack %s", want)
			}
		}
	}
}

// kubernetes is a directory of a mounted secret: files that are links through ..data, which is a link that is turned.
type kubernetes struct {
	dir   string
	turns int
}

// turn shows the files of a certificate.
func (k *kubernetes) turn(t *testing.T, c *testkit.Certificate) {
	t.Helper()
	k.turns++
	version, data := fmt.Sprintf("..%d", k.turns), filepath.Join(k.dir, "..data")
	check := func(err error) {
		testkit.Must(t, err)
	}
	check(os.Mkdir(filepath.Join(k.dir, version), 0o700))
	for name, from := range map[string]string{"tls.crt": c.CertFile, "tls.key": c.KeyFile} {
		text, err := os.ReadFile(from)
		check(err)
		check(os.WriteFile(filepath.Join(k.dir, version, name), text, 0o600))
		if k.turns == 1 {
			check(os.Symlink(filepath.Join("..data", name), filepath.Join(k.dir, name)))
		}
	}
	check(os.Symlink(version, data+"_tmp"))
	check(os.Rename(data+"_tmp", data))
	if k.turns > 1 {
		check(os.RemoveAll(filepath.Join(k.dir, fmt.Sprintf("..%d", k.turns-1))))
	}
}

// A certificate that is renewed as Kubernetes does it is shown without a restart. No request fails meanwhile, on new
// connections of each protocol and on one that is kept.
func TestCertificateSwapUnderLoad(t *testing.T) {
	ca, secret := testkit.NewAuthority(t, "ca"), &kubernetes{dir: t.TempDir()}
	secret.turn(t, ca.Issue(t, "server-1"))
	cfg := withTLS(quiet(strings.Replace(perClient, "1000", "100000000", 1)), ListenerTLS{
		CertFile: filepath.Join(secret.dir, "tls.crt"), KeyFile: filepath.Join(secret.dir, "tls.key")})
	cfg.RulesPoll = 100 * time.Millisecond
	n := launch(t, cfg).ready(t)
	var load sync.WaitGroup
	var asked atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	for range 2 {
		load.Go(func() {
			for ctx.Err() == nil {
				for name, err := range tlsAsks(t.Context(), n.Node, ca.Client()) {
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				asked.Add(1)
			}
		})
	}
	load.Go(func() {
		kept := &http.Transport{TLSClientConfig: ca.Client(), ForceAttemptHTTP2: true}
		defer kept.CloseIdleConnections()
		for ctx.Err() == nil {
			resp, err := (&http.Client{Transport: kept}).Get("https://" + n.Addr("health") + "/livez")
			if err != nil {
				t.Errorf("on a connection that is kept: %v", err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	})
	for turn := 2; turn <= 5; turn++ {
		before := asked.Load()
		testkit.Eventually(t, "requests", func() bool { return asked.Load() > before+1 })
		name := fmt.Sprintf("server-%d", turn)
		secret.turn(t, ca.Issue(t, name))
		for _, door := range listenerNames {
			testkit.Eventually(t, door+" shows "+name, func() bool {
				conn, err := tls.Dial("tcp", n.Addr(door), ca.Client())
				if err != nil {
					t.Error(err)
					return true
				}
				defer conn.Close()
				return conn.ConnectionState().PeerCertificates[0].Subject.CommonName == name
			})
		}
	}
	stop()
	load.Wait()
}

// The log warns of a certificate that expires within two weeks, and of one that has expired, once each.
func TestCertificateWarnings(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	for _, tt := range []struct {
		left time.Duration
		says string // empty: nothing
	}{
		{15 * 24 * time.Hour, ""},
		{13 * 24 * time.Hour, "expires ("},
		{-time.Minute, "has expired, clients refuse it ("},
	} {
		server := ca.Issue(t, "server", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(tt.left) })
		log, cfg := new(testkit.Log), withListeners(quiet(perClient))
		cfg.TLS["http"] = ListenerTLS{CertFile: server.CertFile, KeyFile: server.KeyFile}
		cfg.Logger = log.Logger()
		cfg.RulesPoll = 100 * time.Millisecond
		n := launch(t, cfg).ready(t)
		if tt.says != "" {
			testkit.Eventually(t, tt.says, func() bool {
				return log.HasLine("level=WARN", "tls.http.cert_file: the certificate in "+server.CertFile+" "+tt.says)
			})
		}
		n.logWarnings()
		want := 0
		if tt.says != "" {
			want = 1
		}
		if got := strings.Count(log.String(), "tls.http.cert_file"); got != want {
			t.Errorf("%v: %d warnings: %s", tt.left, got, log)
		}
	}
}

// The name in the certificate of whoever asks is an identity; a claim in a header is none, and on_missing says what
// happens without a certificate.
func TestClientCertIsAnIdentity(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	server := ca.Issue(t, "server")
	for _, onMissing := range []string{actions.Skip, actions.Count, actions.Deny} {
		cfg := withListeners(quiet("domain: test\ndescriptors: [{key: proxy, rate_limit: {window: 1m, " +
			"requests_per_unit: 2}}]\n"))
		cfg.TLS["http"] = ListenerTLS{CertFile: server.CertFile, KeyFile: server.KeyFile, ClientCAFile: ca.CertFile,
			ClientCerts: listen.ClientCertsOptional}
		cfg.Requests.Domain = "test"
		cfg.Requests.Descriptors = []actions.Descriptor{{{Key: "proxy", Source: "client_cert"},
			{Key: actions.OnMissing, Source: onMissing}}}
		if found := cfg.Warnings(cfg.RuleSet); len(found) != 0 {
			t.Errorf("warnings: %+v", found)
		}
		n := launch(t, cfg).ready(t)
		denied := func(client *tls.Config) (denied int) {
			for range 5 {
				r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+n.Addr("http")+"/v1/auth", nil)
				testkit.Must(t, err)
				r.Header.Set("X-Forwarded-Client-Cert", fmt.Sprintf(`URI=spiffe://edge/%p`, r))
				resp, err := tlsClient(client).Do(r)
				testkit.Must(t, err)
				if status, _ := slurp(t, resp); status != http.StatusOK {
					denied++
				}
			}
			return denied
		}
		for _, name := range []string{"one", "two"} {
			named := ca.Issue(t, name, func(c *x509.Certificate) { c.DNSNames = []string{name + ".test"} })
			again := ca.Issue(t, "renewed", func(c *x509.Certificate) { c.DNSNames = []string{name + ".test"} })
			if got := denied(ca.Client(named)); got != 3 {
				t.Errorf("%s: %d of 5 are denied, want 3", name, got)
			}
			if got := denied(ca.Client(again)); got != 5 {
				t.Errorf("%s with a new certificate: %d of 5 are denied, want all", name, got)
			}
		}
		want := map[string]int{actions.Skip: 0, actions.Count: 3, actions.Deny: 5}[onMissing]
		if got := denied(ca.Client()); got != want {
			t.Errorf("on_missing: %s: without a certificate %d of 5 are denied, want %d", onMissing, got, want)
		}
	}
}

// A layer that no client can be counted in, as none is asked for a certificate, is warned of.
func TestClientCertWithoutTLS(t *testing.T) {
	cfg := withListeners(quiet("domain: test\ndescriptors: [{key: proxy, rate_limit: {window: 1m, " +
		"requests_per_unit: 2}}]\n"))
	cfg.Requests.Domain = "test"
	cfg.Requests.Descriptors = []actions.Descriptor{{{Key: "proxy", Source: "client_cert"}}}
	found := cfg.Warnings(cfg.RuleSet)
	if len(found) != 1 || !strings.Contains(found[0].Text, "no client shows a certificate: set tls.http") {
		t.Errorf("warnings: %+v", found)
	}
}

// Behind a balancer that sends PROXY headers each client has its own limit.
func TestClientsBehindABalancer(t *testing.T) {
	cfg := withListeners(quiet("domain: test\ndescriptors: [{key: remote_address, rate_limit: {window: 1m, " +
		"requests_per_unit: 2}}]\n"))
	cfg.Requests.Domain = "test"
	cfg.ProxyProtocol["http"] = []string{"127.0.0.0/8"}
	n := launch(t, cfg).ready(t)
	for _, client := range []string{"192.0.2.1", "192.0.2.2"} {
		for i := range 3 {
			conn, err := net.Dial("tcp", n.Addr("http"))
			testkit.Must(t, err)
			_ = conn.SetDeadline(time.Now().Add(testkit.Patience))
			fmt.Fprintf(conn, "PROXY TCP4 %s 192.0.2.99 %d 80\r\nGET /v1/auth HTTP/1.1\r\nHost: x\r\n"+
				"Connection: close\r\n\r\n", client, 1000+i)
			b, err := io.ReadAll(conn)
			_ = conn.Close()
			if want := []string{" 200 ", " 200 ", " 429 "}[i]; err != nil || !strings.Contains(string(b[:20]), want) {
				t.Errorf("%s, request %d: %v %q, want %s", client, i, err, b, want)
			}
		}
	}
}

func TestTLSConfigIsChecked(t *testing.T) {
	good := ListenerTLS{CertFile: "c", KeyFile: "k"}
	for _, tt := range []struct {
		change func(*Config)
		says   string // empty: it is valid
	}{
		{func(c *Config) { c.TLS["http"] = good }, ""},
		{func(c *Config) { c.TLS["htpp"] = good }, `tls.htpp: there is no such listener, want one of admin, ` +
			`dashboard, grpc, health, http, prometheus, proxy, resp; did you mean "http"?`},
		{func(c *Config) { c.TLS["resp"] = good }, "tls.resp: the listener has no address: set resp (--resp)"},
		{func(c *Config) { c.TLS["proxy"] = good }, "tls.proxy: the listener has no address: set proxy.listen"},
		{func(c *Config) { c.TLS["prometheus"] = good }, "no address: set ratelimit.prometheus.address"},
		{func(c *Config) { c.TLS["http"] = ListenerTLS{} }, "tls.http: cert_file and key_file"},
		{func(c *Config) { c.ProxyProtocol["http"] = []string{"10.0.0.0/8", "unix", "::1"} }, ""},
		{func(c *Config) { c.ProxyProtocol["http"] = nil }, "proxy_protocol.http: it is empty"},
		{func(c *Config) { c.ProxyProtocol["http"] = []string{"all"} }, `proxy_protocol.http: "all"`},
		{func(c *Config) { c.ProxyProtocol["http"] = []string{"10.0.0.1/8"} }, `proxy_protocol.http: "10.0.0.1/8"`},
		{func(c *Config) { c.ProxyProtocol["health"] = []string{"10.0.0.1"} }, "it is for listeners for clients"},
		{func(c *Config) { c.ProxyProtocol["https"] = []string{"10.0.0.1"} }, "proxy_protocol.https: there is no"},
		{func(c *Config) { c.Admin = "10.0.0.1:7949" }, "admin: 10.0.0.1:7949 can be reached from other machines"},
		{func(c *Config) { c.Admin, c.TLS["admin"] = "10.0.0.1:7949", good }, "certificates of its clients"},
		{func(c *Config) {
			c.Admin, c.TLS["admin"] = "10.0.0.1:7949", ListenerTLS{CertFile: "c", KeyFile: "k", ClientCAFile: "a",
				ClientCerts: "optional"}
		}, "certificates of its clients"},
		{func(c *Config) {
			c.Admin, c.TLS["admin"] = "10.0.0.1:7949", ListenerTLS{CertFile: "c", KeyFile: "k", ClientCAFile: "a"}
		}, ""},
		{func(c *Config) { c.Admin, c.AdminTokensFile = "10.0.0.1:7949", "t" }, "tokens over TLS"},
		{func(c *Config) { c.Admin, c.AdminTokensFile, c.TLS["admin"] = "10.0.0.1:7949", "t", good }, ""},
		{func(c *Config) { c.AdminTokensFile = "t" }, "admin_tokens_file: tokens without a listener"},
		{func(c *Config) { c.Admin, c.AdminOperators = DefaultAdmin, []string{"x"} }, "who shows no certificate"},
	} {
		cfg := withListeners(quiet(perClient))
		tt.change(&cfg)
		switch err := cfg.Validate(); {
		case tt.says == "" && err != nil, tt.says != "" && err == nil:
			t.Errorf("%v, want %q", err, tt.says)
		case err != nil && !strings.Contains(err.Error(), tt.says):
			t.Errorf("%v, want %q", err, tt.says)
		}
	}
	cfg := withListeners(quiet(perClient))
	cfg.TLS["http"] = good // files that do not exist
	if n, err := New(cfg); err == nil || !strings.Contains(err.Error(), "tls.http.cert_file") {
		t.Errorf("%v, %v", n, err)
	}
}

// A file of the configuration has the settings of listeners by their names, and a mistake in them has its place.
func TestTLSInAFile(t *testing.T) {
	cfg, err := ReadConfig(write(t, "c.yaml", "tls:\n  http: &same {cert_file: c, key_file: k, min_version: 1.3}\n"+
		"  grpc: *same\nproxy_protocol: {resp: [10.0.0.0/8]}\n"))
	want := ListenerTLS{CertFile: "c", KeyFile: "k", MinVersion: "1.3"}
	if err != nil || len(cfg.TLS) != 2 || fmt.Sprint(cfg.TLS["http"]) != fmt.Sprint(want) ||
		fmt.Sprint(cfg.TLS["grpc"]) != fmt.Sprint(want) || cfg.ProxyProtocol["resp"][0] != "10.0.0.0/8" {
		t.Errorf("%+v, %v", cfg, err)
	}
	_, err = ReadConfig(write(t, "c.yaml", "tls:\n  http: {cert_fil: c}\n"))
	if err == nil || !strings.Contains(err.Error(), `:2:10: unknown setting "cert_fil": did you mean "cert_file"?`) {
		t.Errorf("%v", err)
	}
}
