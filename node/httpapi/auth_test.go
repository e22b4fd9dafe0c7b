package httpapi

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/rules"
)

func authDoor(t testing.TB, l Limiter) http.Handler {
	t.Helper()
	a, err := actions.New(actions.Config{
		Domain: "edge", TrustedProxies: []string{"10.0.0.0/8"},
		Descriptors: []actions.Descriptor{{{Key: "path", Source: "path"}, {Key: "remote_address", Source: "client"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	opt := quiet()
	opt.Actions = a
	return New(l, opt)
}

// authRequest asks /v1/auth from a trusted proxy about GET /login of 192.0.2.1.
func authRequest(method, query string) *http.Request {
	r := httptest.NewRequest(method, "/v1/auth"+query, nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-Forwarded-For", "192.0.2.1")
	r.Header.Set("X-Forwarded-Uri", "/login?next=/")
	return r
}

// askAuth asks it, and returns what was answered.
func askAuth(h http.Handler, method, query string) *httptest.ResponseRecorder {
	r := authRequest(method, query)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAuthAsksForTheOriginalRequest(t *testing.T) {
	l := always(allowedBurst)
	for i, method := range []string{"GET", "HEAD", "POST", "DELETE", "OPTIONS"} {
		w := askAuth(authDoor(t, l), method, "?domain=other")
		if w.Code != 200 || w.Body.Len() != 0 {
			t.Errorf("%s: %d %q", method, w.Code, w.Body)
		}
		want := rules.Request{Domain: "other", Descriptors: [][]rules.Entry{{{Key: "path", Value: "/login"}, {Key: "remote_address", Value: "192.0.2.1"}}}}
		if len(l.asked) != i+1 || !reflect.DeepEqual(l.asked[i], want) {
			t.Fatalf("%s asked %+v, want %+v", method, l.asked, want)
		}
	}
}

func TestAuthAnswers(t *testing.T) {
	shadow := deniedBurst
	shadow.Allowed, shadow.Waived, shadow.RetryAfter, shadow.Mode = true, true, 0, counters.Shadow
	soft := shadow
	soft.Mode = counters.Soft
	tests := []struct {
		name, query string
		said        counters.Decision
		status      int
		word        string
	}{
		{"allowed", "", allowedBurst, 200, "allow"},
		{"denied", "", deniedBurst, 429, "deny"},
		{"denied as 403", "?deny=403", deniedBurst, 403, "deny"},
		{"denied as 401", "?deny=401", deniedBurst, 401, "deny"},
		{"denied as 429", "?deny=429", deniedBurst, 429, "deny"},
		{"allowed, denials as 403", "?deny=403", allowedBurst, 200, "allow"},
		{"shadow", "", shadow, 200, "shadow-deny"},
		{"within a soft margin", "", soft, 200, "allow"},
	}
	for _, tt := range tests {
		w := askAuth(authDoor(t, always(tt.said)), "GET", tt.query)
		h := w.Header()
		if w.Code != tt.status || h.Get("X-RL-Decision") != tt.word {
			t.Errorf("%s: %d, %q", tt.name, w.Code, h.Get("X-RL-Decision"))
		}
		if h.Get("RateLimit") == "" || h.Get("RateLimit-Policy") == "" {
			t.Errorf("%s: %v", tt.name, h)
		}
		if denied := tt.word == "deny"; denied != (h.Get("Retry-After") != "") || denied != strings.Contains(w.Body.String(), "rate_limit_exceeded") {
			t.Errorf("%s: Retry-After %q, %s", tt.name, h.Get("Retry-After"), w.Body)
		}
	}
}

// TestAuthWithoutAnythingToAsk: no rule can be meant where nothing is known of the request.
func TestAuthWithoutAnythingToAsk(t *testing.T) {
	l := always(deniedBurst)
	w := httptest.NewRecorder()
	authDoor(t, l).ServeHTTP(w, httptest.NewRequest("GET", "/v1/auth", nil)) // its sender is no trusted proxy: the path is not known
	if w.Code != 200 || w.Header().Get("X-RL-Decision") != "allow" || len(l.asked) != 0 {
		t.Errorf("%d %v, asked %v", w.Code, w.Header(), l.asked)
	}
}

func TestAuthRefuses(t *testing.T) {
	for _, query := range []string{"?deny=302", "?deny=200", "?deny=403&deny=%zz", "?deny=x"} {
		l := always(allowedBurst)
		wantProblem(t, askAuth(authDoor(t, l), "GET", query), 400)
		if len(l.asked) != 0 {
			t.Errorf("%s: asked %v", query, l.asked)
		}
	}
	wantProblem(t, askAuth(New(always(allowedBurst), quiet()), "GET", ""), 404)
}

func BenchmarkAuth(b *testing.B) {
	h := authDoor(b, always(allowedBurst))
	r := httptest.NewRequest("GET", "/v1/auth", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-Forwarded-For", "192.0.2.1")
	r.Header.Set("X-Forwarded-Uri", "/login?next=/")
	w := httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}
