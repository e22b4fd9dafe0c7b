package admin_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edgelimit/node/admin"
)

func whole() []string { return nil }

// fixture is a handler whose readiness and metrics the test decides.
func fixture(t *testing.T, ready error) http.Handler {
	t.Helper()
	registry := prometheus.NewRegistry()
	requests := prometheus.NewCounter(prometheus.CounterOpts{Name: "requests_total", Help: "Requests."})
	registry.MustRegister(requests)
	requests.Add(3)
	return admin.Health(func() error { return ready }, whole, registry)
}

func ask(h http.Handler, method, path, accept string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, nil)
	req.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

func TestHealth(t *testing.T) {
	stopping := errors.New("starting or stopping")
	for _, test := range []struct {
		name, method, path string
		ready              error
		status             int
		body               string
	}{
		{"alive", "GET", "/livez", nil, 200, "ok\n"},
		{"alive while it is not ready", "GET", "/livez", stopping, 200, "ok\n"},
		{"ready", "GET", "/readyz", nil, 200, "ok\n"},
		{"not ready says why", "GET", "/readyz", stopping, 503, "starting or stopping\n"},
		{"metrics", "GET", "/metrics", nil, 200, "requests_total 3\n"},
		{"metrics while it is not ready", "GET", "/metrics", stopping, 200, "requests_total 3\n"},
		{"probes may ask with HEAD", "HEAD", "/readyz", stopping, 503, ""},
		{"nothing else", "GET", "/", nil, 404, ""},
		{"nothing beneath", "GET", "/livez/x", nil, 404, ""},
		{"nothing is posted", "POST", "/livez", nil, 405, ""},
		{"nothing is posted to metrics", "POST", "/metrics", nil, 405, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := ask(fixture(t, test.ready), test.method, test.path, "")
			if w.Code != test.status || !strings.Contains(w.Body.String(), test.body) {
				t.Errorf("%d %q, want %d %q", w.Code, w.Body, test.status, test.body)
			}
		})
	}
}

func TestMetricsFormats(t *testing.T) {
	for accept, want := range map[string]string{
		"": "text/plain", "text/plain": "text/plain",
		"application/openmetrics-text; version=1.0.0": "application/openmetrics-text",
	} {
		w := ask(fixture(t, nil), "GET", "/metrics", accept)
		if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, want) {
			t.Errorf("asked for %q, it answers in %q", accept, got)
		}
		if open := strings.HasSuffix(w.Body.String(), "# EOF\n"); open != (want == "application/openmetrics-text") {
			t.Errorf("asked for %q, the text ends as %q", accept, w.Body)
		}
	}
}

// Readiness is asked anew every time.
func TestReadinessIsNotRemembered(t *testing.T) {
	var ready error
	h := admin.Health(func() error { return ready }, whole, prometheus.NewRegistry())
	for _, step := range []struct {
		ready  error
		status int
	}{{errors.New("starting"), 503}, {nil, 200}, {errors.New("stopping"), 503}} {
		if ready = step.ready; ask(h, "GET", "/readyz", "").Code != step.status {
			t.Errorf("with %v it does not answer %d", step.ready, step.status)
		}
	}
}

// A degraded node is ready, and says why it is degraded.
func TestReadinessSaysWhatIsDegraded(t *testing.T) {
	h := admin.Health(func() error { return nil }, func() []string { return []string{"one", "another"} },
		prometheus.NewRegistry())
	if w := ask(h, "GET", "/readyz", ""); w.Code != 200 || w.Body.String() != "ok\ndegraded: one\ndegraded: another\n" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}
