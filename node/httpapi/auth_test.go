package httpapi

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func authAPI(t testing.TB, l answer.Limiter) http.Handler {
	t.Helper()
	return authAPILogging(t, l, io.Discard)
}

func authAPILogging(t testing.TB, l answer.Limiter, log io.Writer) http.Handler {
	t.Helper()
	a, err := actions.New(actions.Config{
		Domain: "edge", TrustedProxies: []string{"10.0.0.0/8"},
		Descriptors: []actions.Descriptor{{{Key: "path", Source: "path"}, {Key: "remote_address", Source: "client"}}},
	})
	testkit.Must(t, err)
	opt := quiet()
	opt.Actions, opt.Logger = a, slog.New(slog.NewTextHandler(log, nil))
	return New(l, opt)
}

// authRequest asks /v1/auth from a trusted proxy about GET /login of 192.0.2.1; rest is what follows in the path.
func authRequest(method, rest string) *http.Request {
	r := httptest.NewRequest(method, "/v1/auth"+rest, nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-Forwarded-For", "192.0.2.1")
	r.Header.Set("X-Forwarded-Uri", "/login?next=/")
	return r
}

// askAuth asks it, and returns what was answered.
func askAuth(h http.Handler, method, rest string) *httptest.ResponseRecorder {
	r := authRequest(method, rest)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAuthAsksForTheOriginalRequest(t *testing.T) {
	l := always(allowedBurst)
	for i, method := range []string{"GET", "HEAD", "POST", "DELETE", "OPTIONS"} {
		w := askAuth(authAPI(t, l), method, "/domain/other")
		if w.Code != 200 || w.Body.Len() != 0 {
			t.Errorf("%s: %d %q", method, w.Code, w.Body)
		}
		want := rules.Request{
			Domain:      "other",
			Descriptors: [][]rules.Entry{{{Key: "path", Value: "/login"}, {Key: "remote_address", Value: "192.0.2.1"}}},
			Client:      netip.MustParseAddr("192.0.2.1"),
		}
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
		name, rest string
		said       counters.Decision
		status     int
		word       string
	}{
		{"allowed", "", allowedBurst, 200, "allow"},
		{"denied", "", deniedBurst, 429, "deny"},
		{"denied as 403", "/deny/403", deniedBurst, 403, "deny"},
		{"denied as 401", "/deny/401", deniedBurst, 401, "deny"},
		{"denied as 429", "/deny/429", deniedBurst, 429, "deny"},
		{"allowed, denials as 403", "/deny/403", allowedBurst, 200, "allow"},
		{"the client's query", "?deny=401", deniedBurst, 429, "deny"},
		{"the client's query beside the proxy's path", "/deny/403?deny=401&domain=x", deniedBurst, 403, "deny"},
		{"a domain as well", "/deny/403/domain/a/b", deniedBurst, 403, "deny"},
		{"a query that cannot be read", "?a;b&%zz", allowedBurst, 200, "allow"},
		{"shadow", "", shadow, 200, "shadow-deny"},
		{"within a soft margin", "", soft, 200, "allow"},
	}
	for _, tt := range tests {
		w := askAuth(authAPI(t, always(tt.said)), "GET", tt.rest)
		h := w.Header()
		if w.Code != tt.status || h.Get("X-RL-Decision") != tt.word {
			t.Errorf("%s: %d, %q", tt.name, w.Code, h.Get("X-RL-Decision"))
		}
		if h.Get("RateLimit") == "" || h.Get("RateLimit-Policy") == "" {
			t.Errorf("%s: %v", tt.name, h)
		}
		if denied := tt.word == "deny"; denied != (h.Get("Retry-After") != "") ||
			denied != strings.Contains(w.Body.String(), "rate_limit_exceeded") {
			t.Errorf("%s: Retry-After %q, %s", tt.name, h.Get("Retry-After"), w.Body)
		}
	}
}

// The path says what happens to requests that cannot be decided, and goes to the node with each of them. Without a word
// the proxy learns of the failure, and decides itself.
func TestAuthOnFailure(t *testing.T) {
	for rest, want := range map[string]struct {
		status int
		word   string
		asked  rules.Failure
	}{
		"":                                   {503, "", rules.FailUnset},
		"/on_failure/local":                  {503, "", rules.FailLocal},
		"/on_failure/open":                   {200, "allow", rules.FailOpen},
		"/on_failure/closed":                 {429, "deny", rules.FailClosed},
		"/deny/403/on_failure/closed":        {403, "deny", rules.FailClosed},
		"/on_failure/closed/domain/a/b":      {429, "deny", rules.FailClosed},
		"/deny/401/on_failure/open/domain/a": {200, "allow", rules.FailOpen},
	} {
		l := failing(errors.New("broken"))
		w := askAuth(authAPI(t, l), "GET", rest)
		if w.Code != want.status || w.Header().Get("X-RL-Decision") != want.word {
			t.Errorf("%q: %d %v %s", rest, w.Code, w.Header(), w.Body)
		}
		if len(l.asked) != 1 || l.asked[0].OnFailure != want.asked {
			t.Errorf("%q asked %+v", rest, l.asked)
		}
	}
	for _, rest := range []string{"/on_failure", "/on_failure/", "/on_failure/shut", "/on_failure//domain/a",
		"/domain/", "/on_failure/open/deny/403"} {
		if w := askAuth(authAPI(t, always(allowedBurst)), "GET", rest); w.Code != 404 {
			t.Errorf("%q: %d", rest, w.Code)
		}
	}
}

// TestAuthTakesNothingFromTheQuery: it may be that of the client, who would choose a domain without rules.
// A request that has to wait for its turn is allowed, with how long; a proxy that waits for less is too early.
func TestAuthSaysHowLongToWait(t *testing.T) {
	for delay, want := range map[time.Duration]string{0: "", time.Nanosecond: "1", 1500*time.Millisecond + 1: "1501"} {
		d := allowedBurst
		d.Delay = delay
		w := askAuth(authAPI(t, always(d)), "GET", "")
		if got := w.Header().Get("X-RL-Delay-Ms"); w.Code != http.StatusOK || got != want {
			t.Errorf("a delay of %v: %d, %q, want %q", delay, w.Code, got, want)
		}
	}
}

func TestAuthTakesNothingFromTheQuery(t *testing.T) {
	var log bytes.Buffer
	l := always(allowedBurst)
	h := authAPILogging(t, l, &log)
	for _, query := range []string{"?domain=x", "?domain=x", "?deny=302", "?a;b", "?%zz", "?x=1&domain=x"} {
		if w := askAuth(h, "GET", query); w.Code != 200 {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
	for _, req := range l.asked {
		if req.Domain != "edge" {
			t.Errorf("asked in domain %q", req.Domain)
		}
	}
	if len(l.asked) != 6 || strings.Count(log.String(), "the query of /v1/auth is ignored") != 1 {
		t.Errorf("asked %d times, logged %s", len(l.asked), &log)
	}
}

// TestAuthWithoutAnythingToAsk: no rule can be meant where nothing is known of the request. It is allowed, and that is
// said.
func TestAuthWithoutAnythingToAsk(t *testing.T) {
	var log bytes.Buffer
	l := always(deniedBurst)
	h := authAPILogging(t, l, &log)
	for range 3 {
		w := httptest.NewRecorder()
		h.ServeHTTP(
			w,
			httptest.NewRequest("GET", "/v1/auth", nil),
		) // its sender is no trusted proxy: the path is not known
		header := w.Header()
		if w.Code != 200 || header.Get("X-RL-Decision") != "allow" || header.Get("X-RL-Reason") != "no-descriptor" ||
			len(l.asked) != 0 {
			t.Errorf("%d %v, asked %v", w.Code, header, l.asked)
		}
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "trusted_proxies") ||
		!strings.Contains(text, "no rule limits it") {
		t.Errorf("logged %q", text)
	}
}

// TestAuthDeniesByDescription: what the actions deny is denied with the status that the proxy hands on, and no rule is
// asked.
func TestAuthDeniesByDescription(t *testing.T) {
	a, err := actions.New(actions.Config{
		Domain: "edge", TrustedProxies: []string{"10.0.0.0/8"}, OnAmbiguous: actions.Deny,
		Descriptors: []actions.Descriptor{
			{{Key: "api_key", Source: "header X-Api-Key"}, {Key: actions.OnMissing, Source: actions.Deny}},
		},
	})
	testkit.Must(t, err)
	opt := quiet()
	opt.Actions = a
	l := always(allowedBurst)
	h := New(l, opt)
	for reason, values := range map[string][]string{actions.DeniedMissing: nil, actions.DeniedAmbiguous: {"a", "b"}} {
		r := authRequest("GET", "/deny/403")
		r.Header["X-Api-Key"] = values
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		header := w.Header()
		if header.Get("X-RL-Decision") != "deny" || header.Get("X-RL-Reason") != reason ||
			header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", reason, header)
		}
		if detail := wantProblem(t, w, 403); !strings.Contains(detail, "header X-Api-Key") {
			t.Errorf("%s: %s", reason, detail)
		}
	}
	if len(l.asked) != 0 {
		t.Errorf("asked %v", l.asked)
	}
}

// TestAuthDeniesReadingsThatAreTooMany: a request that cannot be decided for its many readings is the client's, not the
// proxy's mistake.
func TestAuthDeniesReadingsThatAreTooMany(t *testing.T) {
	l := &fake{answer: func(*rules.Request) ([]counters.Decision, error) { return nil, rules.ErrInvalidRequest }}
	h := authAPI(t, l)
	wantProblem(t, askAuth(h, "GET", ""), 400)
	r := authRequest("GET", "")
	r.Header.Set("X-Forwarded-Uri", "/Login")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	wantProblem(t, w, 429)
	if w.Header().Get("X-RL-Decision") != "deny" {
		t.Errorf("%v", w.Header())
	}
}

func TestAuthRefuses(t *testing.T) {
	for _, rest := range []string{"/", "/deny", "/deny/", "/deny/302", "/deny/403/", "/domain", "/domain/",
		"/deny/403/x", "/domains/x", "/deny/x/domain/y"} {
		l := always(allowedBurst)
		wantProblem(t, askAuth(authAPI(t, l), "GET", rest), 404)
		if len(l.asked) != 0 {
			t.Errorf("%s: asked %v", rest, l.asked)
		}
	}
	wantProblem(t, askAuth(New(always(allowedBurst), quiet()), "GET", ""), 404)
}

func BenchmarkAuth(b *testing.B) {
	h := authAPI(b, always(allowedBurst))
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

// TestAuthAllocations: a plain request costs the memory of its descriptors, the address, and the headers' text and
// list.
func TestAuthAllocations(t *testing.T) {
	h := authAPI(t, bareLimiter{allowedBurst})
	w := httptest.NewRecorder()
	r := authRequest(http.MethodGet, "")
	got := testing.AllocsPerRun(200, func() {
		clear(w.Header())
		h.ServeHTTP(w, r)
	})
	if limit := 4.0; got > limit && !testkit.Enabled {
		t.Errorf("%v allocations, at most %v are expected", got, limit)
	}
}
