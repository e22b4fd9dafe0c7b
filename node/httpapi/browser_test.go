package httpapi

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/rules"
)

// TestPages: what a page of another origin sends is refused at every endpoint that charges, before anything is charged.
// Other clients need no header.
func TestPages(t *testing.T) {
	tests := []struct {
		name, host string
		lines      []string
		status     int
	}{
		{"curl -d", "127.0.0.1:8080", []string{"Content-Type", "application/x-www-form-urlencoded"}, 200},
		{"a client by name", "edgelimit.internal", nil, 200},
		{"a form of another origin", "127.0.0.1:8080",
			[]string{"Content-Type", "text/plain", "Origin", "http://evil.example"}, 403},
		{"a sandboxed page", "127.0.0.1:8080", []string{"Origin", "null"}, 403},
		{"no origin, but another site", "127.0.0.1:8080", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"the same site", "127.0.0.1:8080", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"another port", "127.0.0.1:8080", []string{"Origin", "http://127.0.0.1:7949"}, 403},
		{"the own address", "127.0.0.1:8080",
			[]string{"Origin", "http://127.0.0.1:8080", "Sec-Fetch-Site", "same-origin"}, 200},
		{"the own address, IPv6", "[::1]:8080", []string{"Origin", "http://[::1]:8080"}, 200},
		{"localhost", "localhost:8080", []string{"Origin", "http://localhost:8080"}, 200},
		{"a name that was rebound", "evil.example:8080",
			[]string{"Origin", "http://evil.example:8080", "Sec-Fetch-Site", "same-origin"}, 403},
		{"a rebound name without an origin", "evil.example", []string{"Sec-Fetch-Site", "same-origin"}, 403},
	}
	bodies := map[string]string{
		"/v1/check": typicalBody, "/v1/check/batch": `{"checks":[` + typicalBody + `]}`, "/v1/report": typicalBody,
		"/limiter/check": `{"rule_id":"r","identity":"i"}`, "/json": typicalBody,
	}
	for _, tt := range tests {
		for path, body := range bodies {
			l := always(allowedBurst)
			opt := quiet()
			opt.Reporter = l
			opt.Envoy = func(context.Context, []byte) ([]byte, bool, error) {
				l.asked = append(l.asked, rules.Request{})
				return []byte("{}"), true, nil
			}
			r := httptest.NewRequest("POST", path, strings.NewReader(body))
			r.Host = tt.host
			for i := 0; i < len(tt.lines); i += 2 {
				r.Header.Set(tt.lines[i], tt.lines[i+1])
			}
			w := httptest.NewRecorder()
			New(l, opt).ServeHTTP(w, r)
			if tt.status == 403 {
				wantProblem(t, w, 403)
			}
			if w.Code != tt.status || (len(l.asked) > 0) != (tt.status == 200) {
				t.Errorf("%s at %s: %d %s, asked %v", tt.name, path, w.Code, w.Body, l.asked)
			}
		}
	}
}

// TestAuthHandsOnBrowsers: /v1/auth is asked with the headers of the browser's request.
func TestAuthHandsOnBrowsers(t *testing.T) {
	r := authRequest("POST", "")
	r.Host = "shop.example"
	r.Header.Set("Origin", "https://other.example")
	w := httptest.NewRecorder()
	authAPI(t, always(allowedBurst)).ServeHTTP(w, r)
	if w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
