package recipes

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Stand-ins are in the place of proxies that no package installs. They read the recipe, ask edgelimit what the proxy is
// documented to ask, and do with its answer what the proxy is documented to do. A setting that they do not know fails
// the test. Timeouts they do not keep: the machine may be slow.

// read returns the text of a recipe with this test's addresses in it.
func (l *site) read(name string) []byte {
	l.t.Helper()
	b, err := os.ReadFile(l.recipe(name))
	if err != nil {
		l.t.Fatal(err)
	}
	return b
}

// decode reads a recipe in YAML, every key of which has to be in what it is read into.
func (l *site) decode(name string, into any) {
	l.t.Helper()
	d := yaml.NewDecoder(bytes.NewReader(l.read(name)))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		l.t.Fatalf("%s: %v", name, err)
	}
}

// only is the only element of a map.
func only[K comparable, V any](t *testing.T, what string, all map[K]V) (K, V) {
	t.Helper()
	if len(all) != 1 {
		t.Fatalf("%d %s, want 1", len(all), what)
	}
	for k, v := range all {
		return k, v
	}
	panic("not reached")
}

// perRequest is a transport that leaves no connections behind.
func perRequest(t *testing.T) *http.Transport {
	tr := &http.Transport{DisableKeepAlives: true, DisableCompression: true, ResponseHeaderTimeout: patience}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// passTo hands requests on to an application.
func passTo(t *testing.T, application string) http.Handler {
	t.Helper()
	to, err := url.Parse(application)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{Transport: perRequest(t), Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
}

// asker returns what asks an authorization server.
func asker(t *testing.T, address string) func(http.Header) (*http.Response, error) {
	t.Helper()
	to, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	transport := perRequest(t)
	return func(h http.Header) (*http.Response, error) {
		return transport.RoundTrip(&http.Request{Method: http.MethodGet, URL: to, Host: to.Host, Header: h})
	}
}

// remoteIP is the address of who sent a request.
func remoteIP(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return host
}

// replace gives a request the named headers of a response, and takes away its own.
func replace(r *http.Request, resp *http.Response, names []string) {
	for _, name := range names {
		r.Header.Del(name)
		for _, v := range resp.Header.Values(name) {
			r.Header.Add(name, v)
		}
	}
}

type traefikStatic struct {
	EntryPoints map[string]struct {
		Address string
	} `yaml:"entryPoints"`
	Providers struct{ File struct{ Filename string } }
}

type traefikDynamic struct {
	HTTP struct {
		Routers map[string]struct {
			EntryPoints []string `yaml:"entryPoints"`
			Rule        string
			Middlewares []string
			Service     string
		}
		Middlewares map[string]struct {
			Headers struct {
				CustomRequestHeaders map[string]string `yaml:"customRequestHeaders"`
			}
			ForwardAuth struct {
				Address             string
				TrustForwardHeader  bool     `yaml:"trustForwardHeader"`
				AuthResponseHeaders []string `yaml:"authResponseHeaders"`
				MaxResponseBodySize int64    `yaml:"maxResponseBodySize"`
			} `yaml:"forwardAuth"`
		}
		Services map[string]struct {
			LoadBalancer struct{ Servers []struct{ URL string } } `yaml:"loadBalancer"`
		}
	}
}

// traefik stands in for Traefik: forwardAuth, and the entry point before it. See
// https://doc.traefik.io/traefik/reference/routing-configuration/http/middlewares/forwardauth/.
func (l *site) traefik() {
	l.t.Helper()
	var static traefikStatic
	l.decode("traefik.yaml", &static)
	var dynamic traefikDynamic
	l.decode(static.Providers.File.Filename, &dynamic)
	entryPoint, listens := only(l.t, "entry points", static.EntryPoints)
	_, router := only(l.t, "routers", dynamic.HTTP.Routers)
	if strings.Join(router.EntryPoints, " ") != entryPoint || router.Rule != "PathPrefix(`/`)" ||
		len(router.Middlewares) != 2 {
		l.t.Fatalf("router %+v", router)
	}
	cleaned := dynamic.HTTP.Middlewares[router.Middlewares[0]].Headers.CustomRequestHeaders
	auth := dynamic.HTTP.Middlewares[router.Middlewares[1]].ForwardAuth
	servers := dynamic.HTTP.Services[router.Service].LoadBalancer.Servers
	if auth.Address == "" || !auth.TrustForwardHeader || len(servers) != 1 {
		l.t.Fatalf("middleware %+v, servers %v", auth, servers)
	}
	application, ask := passTo(l.t, servers[0].URL), asker(l.t, auth.Address)
	l.serve(listens.Address, func(w http.ResponseWriter, r *http.Request) {
		// The entry point trusts nobody.
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Forwarded-") || name == "X-Real-Ip" {
				r.Header.Del(name)
			}
		}
		for name, value := range cleaned {
			if r.Header.Del(name); value != "" {
				r.Header.Set(name, value)
			}
		}
		header := r.Header.Clone() // without authRequestHeaders all that the client sent
		for _, hop := range []string{"Connection", "Keep-Alive", "Te", "Trailers", "Transfer-Encoding", "Upgrade"} {
			header.Del(hop)
		}
		_, port, _ := net.SplitHostPort(r.Host)
		for name, value := range map[string]string{
			"X-Real-Ip": remoteIP(r), "X-Forwarded-For": remoteIP(r), "X-Forwarded-Method": r.Method,
			"X-Forwarded-Proto": "http",
			"X-Forwarded-Port":  port, "X-Forwarded-Host": r.Host, "X-Forwarded-Uri": r.URL.RequestURI(),
			"X-Forwarded-Server": "traefik",
		} {
			header.Set(name, value)
		}
		resp, err := ask(header)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		switch {
		case err != nil:
			w.WriteHeader(http.StatusInternalServerError)
		case int64(len(body)) > auth.MaxResponseBodySize:
			w.WriteHeader(http.StatusUnauthorized)
		case resp.StatusCode/100 != 2:
			for name, values := range resp.Header {
				w.Header()[name] = values
			}
			w.WriteHeader(resp.StatusCode)
			_, _ = w.Write(body)
		default:
			replace(r, resp, auth.AuthResponseHeaders)
			application.ServeHTTP(w, r)
		}
	})
}

type apisixRoutes struct {
	Routes []struct {
		URI     string `yaml:"uri"`
		Plugins struct {
			ProxyRewrite struct {
				Headers struct{ Remove []string }
			} `yaml:"proxy-rewrite"`
			ForwardAuth struct {
				URI              string   `yaml:"uri"`
				RequestHeaders   []string `yaml:"request_headers"`
				UpstreamHeaders  []string `yaml:"upstream_headers"`
				ClientHeaders    []string `yaml:"client_headers"`
				Timeout          int
				AllowDegradation bool `yaml:"allow_degradation"`
			} `yaml:"forward-auth"`
		}
		Upstream struct {
			Type  string
			Nodes map[string]int
		}
	}
}

// apisix stands in for APISIX: forward-auth. See https://apisix.apache.org/docs/apisix/plugins/forward-auth/.
func (l *site) apisix() {
	l.t.Helper()
	var config apisixRoutes
	l.decode("apisix.yaml", &config)
	if !bytes.HasSuffix(bytes.TrimSpace(l.read("apisix.yaml")), []byte("\n#END")) {
		l.t.Fatal("apisix.yaml does not end with #END: APISIX would wait for the rest")
	}
	if len(config.Routes) != 1 || config.Routes[0].URI != "/*" {
		l.t.Fatalf("routes %+v", config.Routes)
	}
	auth := config.Routes[0].Plugins.ForwardAuth
	if auth.URI == "" || auth.Timeout < 1 || auth.Timeout > 60_000 {
		l.t.Fatalf("plugin %+v", auth)
	}
	server, _ := only(l.t, "nodes", config.Routes[0].Upstream.Nodes)
	application, ask := passTo(l.t, "http://"+server), asker(l.t, auth.URI)
	l.serve(l.proxy(), func(w http.ResponseWriter, r *http.Request) {
		for _, name := range config.Routes[0].Plugins.ProxyRewrite.Headers.Remove {
			r.Header.Del(name) // its phase, rewrite, comes before forward-auth's, access
		}
		host, _, _ := strings.Cut(r.Host, ":")
		header := http.Header{
			"X-Forwarded-For": {remoteIP(r)}, "X-Forwarded-Method": {r.Method}, "X-Forwarded-Proto": {"http"},
			"X-Forwarded-Host": {host}, "X-Forwarded-Uri": {r.URL.RequestURI()},
		}
		for _, name := range auth.RequestHeaders {
			if v := r.Header.Get(name); v != "" && header.Get(name) == "" {
				header.Set(name, v)
			}
		}
		resp, err := ask(header)
		if err != nil {
			if auth.AllowDegradation {
				application.ServeHTTP(w, r)
				return
			}
			w.WriteHeader(http.StatusForbidden)
			return
		}
		defer resp.Body.Close()
		if resp.StatusCode < 300 {
			replace(r, resp, auth.UpstreamHeaders)
			application.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		for _, name := range auth.ClientHeaders {
			if v := resp.Header.Get(name); v != "" {
				w.Header().Set(name, v)
			}
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	})
}
