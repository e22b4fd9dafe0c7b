package app

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// probe is a node's probe that answers so.
func probe(t *testing.T, status int, says string) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "GET" || r.URL.Path != "/readyz" {
			t.Errorf("it asks %s %s", r.Method, r.URL)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(says))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/readyz"
}

func TestHealth(t *testing.T) {
	edgelimit(t, "health", "--url", probe(t, 200, "ok\n")).says(t, 0, "ready\n")
	edgelimit(
		t, "health", "--url", probe(t, 503, "starting or stopping\n"),
	).says(t, 1, "not ready", "503", "starting or stopping")
	edgelimit(t, "health", "--url", probe(t, 404, "")).says(t, 1, "not ready", "404")
	edgelimit(t, "health", "--url", "http://"+free(t)+"/readyz").says(t, 1, "no answer", "edgelimit serve")
	edgelimit(t, "health", "--url", "::").says(t, 2, "--url")
	edgelimit(t, "health", "extra").says(t, 2, `"extra"`, "no arguments")
	t.Setenv("EDGELIMIT_HEALTH_URL", probe(t, 200, "ok\n"))
	edgelimit(t, "health").says(t, 0, "ready\n")
}

// A node that accepts and then says nothing, as a stopped process does, is not healthy.
func TestHealthOfASilentNode(t *testing.T) {
	silent := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-silent }))
	defer s.Close()
	defer close(silent)
	edgelimit(t, "health", "--timeout", "20ms", "--url", s.URL).says(t, 1, "no answer")
}
