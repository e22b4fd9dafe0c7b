package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/rules"
)

func TestRatelimitRefusals(t *testing.T) {
	var ready, answer error
	h := New(&fake{}, Options{
		Ready: func() error { return ready }, Logger: slog.New(slog.DiscardHandler),
		Envoy: func(context.Context, []byte) ([]byte, bool, error) { return []byte("{}"), false, answer },
	})
	const text = "text/plain; charset=utf-8"
	ask := func(path, body string, header ...string) (status int, contentType, answered string) {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		if len(header) > 0 {
			r.Header.Set(header[0], header[1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Header().Get("Content-Type"), w.Body.String()
	}
	want := func(what string, status int, contentType, body string) func(int, string, string) {
		return func(gotStatus int, gotType, got string) {
			t.Helper()
			if gotStatus != status || gotType != contentType || got != body {
				t.Errorf("%s: %d %q %q, want %d %q %q", what, gotStatus, gotType, got, status, contentType, body)
			}
		}
	}
	want("over the limit", 429, "application/json", "{}")(ask("/json", "{}"))
	want("too long", 413, text, "Request Entity Too Large\n")(ask("/json", strings.Repeat("x", maxBody+1)))
	want("a page of another origin", 403, text, "Forbidden\n")(ask("/json", "{}", "Origin", "https://example.com"))
	answer = rules.ErrInvalidRequest
	want("invalid", 400, text, "Bad Request\n")(ask("/json", "{}"))
	answer = errors.New("the node's own")
	want("failed", 500, text, "Internal Server Error\n")(ask("/json", "{}"))
	want("healthy", 200, text, "OK")(ask("/healthcheck", ""))
	ready = errors.New("stopping")
	want("unhealthy", 500, "", "")(ask("/healthcheck", ""))
	// other paths refuse as before
	if status, contentType, _ := ask("/v1/check", "{"); status != 400 || contentType != "application/problem+json" {
		t.Errorf("/v1/check: %d %s", status, contentType)
	}
}
