package admin

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

var (
	readToken    = strings.Repeat("r", minToken)
	operateToken = strings.Repeat("o", minToken)
)

// guarded is an API with two tokens, and its log.
func guarded(t *testing.T, operators ...string) (h http.Handler, access *Access, log *bytes.Buffer) {
	t.Helper()
	log = new(bytes.Buffer)
	logger := slog.New(slog.NewTextHandler(log, nil))
	access = NewAccess(operators, nil, logger)
	text := "# who may what\n\nread " + readToken + "\n  operate\t" + operateToken + " alice\n"
	if err := access.SetTokens([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return API(&operator{}, access, new(slog.LevelVar), logger), access, log
}

// with asks with a token in the header; change may be nil.
func with(h http.Handler, method, path, token string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:7949"+path, strings.NewReader(login))
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func certificate(names ...string) func(*http.Request) {
	return func(r *http.Request) {
		cert := &x509.Certificate{DNSNames: names}
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert},
			VerifiedChains: [][]*x509.Certificate{{cert}}}
	}
}

// Each role may do what it may, by token or certificate, and nobody else anything.
func TestRoles(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		h, access, _ := guarded(t, "ops.example")
		shown := func(r *http.Request) { // a certificate that nobody verified
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{DNSNames: []string{"ops.example"}}}}
		}
		const bans, remove, profiles, level = "/api/bans", "/api/bans/remove", "/debug/pprof/", "/api/log-level"
		for _, test := range []struct {
			who                string
			token              string
			change             func(*http.Request)
			read, post, profil int
		}{
			{"nobody", "", nil, 401, 401, 401},
			{"a reader", "Bearer " + readToken, nil, 200, 403, 403},
			{"an operator", "Bearer " + operateToken, nil, 200, 200, 200},
			{"a wrong token", "Bearer " + strings.Repeat("x", minToken), nil, 401, 401, 401},
			{"a token with more behind it", "Bearer " + operateToken + "x", nil, 401, 401, 401},
			{"an empty token", "Bearer ", nil, 401, 401, 401},
			{"a token as a password", "Basic " + operateToken, nil, 401, 401, 401},
			{"a certificate", "", certificate("other.example"), 200, 403, 403},
			{"an operator's certificate", "", certificate("x", "ops.example"), 200, 200, 200},
			{"a certificate and a token", "Bearer " + operateToken, certificate("other.example"), 200, 200, 200},
			{"an operator's certificate and a wrong token", "Bearer x", certificate("ops.example"), 401, 401, 401},
			{"a certificate of no authority", "", shown, 401, 401, 401},
		} {
			for _, r := range []struct {
				method, path string
				want         int
			}{{"GET", bans, test.read}, {"HEAD", bans, test.read}, {"POST", remove, test.post},
				{"GET", profiles, test.profil}, {"GET", profiles + "goroutine", test.profil}, {"GET", level, test.read},
				{"GET", "/api/keys", test.read}} {
				if w := with(h, r.method, r.path, test.token, test.change); w.Code != r.want {
					t.Errorf("%s: %s %s: %d %s, want %d", test.who, r.method, r.path, w.Code, w.Body, r.want)
				}
			}
		}
		if w := with(h, "GET", bans, "", nil); w.Header().Get("WWW-Authenticate") != `Bearer realm="edgelimit"` {
			t.Error("it does not say how")
		}
		for reason, count := range access.Refused() {
			if count == 0 {
				t.Errorf("nobody was refused for %q", reason)
			}
		}
	})
}

// A page of another origin is refused whatever it shows, before its token is looked at.
func TestTokensOfOtherOrigins(t *testing.T) {
	h, access, _ := guarded(t)
	w := with(h, "POST", "/api/bans/remove", "Bearer "+operateToken, func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "cross-site")
	})
	cookie := with(h, "GET", "/api/bans", "", func(r *http.Request) {
		r.AddCookie(&http.Cookie{Name: "token", Value: operateToken})
	})
	if w.Code != 403 || cookie.Code != 401 || access.Refused()[refusedMissing] != 1 {
		t.Errorf("%d, by cookie %d", w.Code, cookie.Code)
	}
}

// Wrong tokens take a second each, some at a time; others are refused at once, and right ones never wait.
func TestWrongTokensAreSlowed(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		h, access, log := guarded(t)
		began, wrong := time.Now(), "Bearer "+strings.Repeat("w", minToken)
		var mu sync.Mutex
		codes := make(map[int]int)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				w := with(h, "GET", "/api/bans", wrong, nil)
				mu.Lock()
				defer mu.Unlock()
				codes[w.Code]++
				if at := time.Since(began); w.Code == 401 && at != failureDelay || w.Code == 429 && at != 0 {
					t.Errorf("%d after %v", w.Code, at)
				}
				if w.Code == 429 && w.Header().Get("Retry-After") != "1" {
					t.Errorf("429 says to wait %q", w.Header().Get("Retry-After"))
				}
			})
		}
		all.Go(func() {
			if w := with(h, "GET", "/api/bans", "Bearer "+readToken, nil); w.Code != 200 || time.Since(began) != 0 {
				t.Errorf("the right token: %d after %v", w.Code, time.Since(began))
			}
		})
		all.Wait()
		if codes[401] != maxSlowed || codes[429] != 100-maxSlowed || access.Refused()[refusedWrong] != 100 {
			t.Errorf("answers %v, counted %v", codes, access.Refused())
		}
		if n := strings.Count(log.String(), "wrong tokens"); n != 1 || strings.Contains(log.String(), "wwww") {
			t.Errorf("%d lines: %s", n, log)
		}
	})
}

// Files with mistakes change nothing, and the error has no token in it.
func TestTokenFiles(t *testing.T) {
	secret := strings.Repeat("s3cret", 8)
	for text, says := range map[string]string{
		"": "it has no tokens", "# operate " + secret: "it has no tokens", "admin " + secret: "line 1: want",
		"\noperate": "line 2: want", "read " + secret + " a b": "line 1: want",
		"operate " + secret[:minToken-1]:         "line 1: the token has 31 characters",
		"read " + secret + "\noperate " + secret: "line 2: this token stands above",
	} {
		h, access, _ := guarded(t)
		err := access.SetTokens([]byte(text))
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
		if w := with(h, "GET", "/api/bans", "Bearer "+readToken, nil); w.Code != 200 {
			t.Errorf("%q: the tokens of before: %d", text, w.Code)
		}
	}
}

// Tokens that were replaced are refused from then on.
func TestTokensAreReplaced(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		h, access, _ := guarded(t)
		next := strings.Repeat("n", minToken)
		if err := access.SetTokens([]byte("read " + next)); err != nil {
			t.Fatal(err)
		}
		for token, want := range map[string]int{readToken: 401, operateToken: 401, next: 200} {
			if w := with(h, "GET", "/api/bans", "Bearer "+token, nil); w.Code != want {
				t.Errorf("%d, want %d", w.Code, want)
			}
		}
	})
}

// The level of the log is changed by operators, whose name is logged.
func TestLogLevel(t *testing.T) {
	level, log := new(slog.LevelVar), new(bytes.Buffer)
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: level}))
	access := NewAccess(nil, nil, logger)
	if err := access.SetTokens([]byte("operate " + operateToken + " alice")); err != nil {
		t.Fatal(err)
	}
	h := API(&operator{}, access, level, logger)
	ask := func(method, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "http://127.0.0.1:7949/api/log-level", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+operateToken)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	if w := ask("GET", ""); w.Body.String() != `{"level":"INFO"}`+"\n" {
		t.Errorf("%s", w.Body)
	}
	for _, body := range []string{`{"level":"loud"}`, `{}`, `{"level":null}`, `{"level":"debug"}{}`, `[]`} {
		if w := ask("POST", body); w.Code != 400 || level.Level() != slog.LevelInfo {
			t.Errorf("%s: %d %s, level %v", body, w.Code, w.Body, level.Level())
		}
	}
	if w := ask("POST", `{"level":"debug"}`); w.Code != 200 || level.Level() != slog.LevelDebug {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if !strings.Contains(log.String(), "was=INFO is=DEBUG") || !strings.Contains(log.String(), "alice") {
		t.Errorf("log: %s", log)
	}
	if w := ask("DELETE", ""); w.Code != 405 {
		t.Errorf("DELETE: %d", w.Code)
	}
}

// Profiles are those of net/http/pprof but for the command line, which may have a password in it.
func TestProfiles(t *testing.T) {
	h, _, _ := guarded(t)
	get := func(path string) *httptest.ResponseRecorder {
		return with(h, "GET", "/debug/pprof/"+path, "Bearer "+operateToken, nil)
	}
	if w := get(""); w.Code != 200 || !strings.Contains(w.Body.String(), "heap\n") {
		t.Errorf("the list: %d %s", w.Code, w.Body)
	}
	for _, name := range []string{"heap", "heap?gc=1", "allocs", "goroutine", "profile?seconds=0.01",
		"trace?seconds=0.01"} {
		if w := get(name); w.Code != 200 || w.Body.Len() < 100 {
			t.Errorf("%s: %d, %d bytes", name, w.Code, w.Body.Len())
		}
	}
	for path, want := range map[string]int{"cmdline": 404, "none": 404, "goroutine?debug=3": 404, "heap?debug=x": 404,
		"profile?seconds=61": 400, "profile?seconds=-1": 400, "profile?seconds=x": 400, "trace?seconds=1e9": 400} {
		if w := get(path); w.Code != want {
			t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
}

func TestKeysAreListed(t *testing.T) {
	h, _, _ := guarded(t)
	w := with(h, "GET", "/api/keys", "Bearer "+readToken, nil)
	want := `{"nodes":[{"node":"a","region":"here","state":"this node","keys":["00"]}]}` + "\n"
	if w.Body.String() != want {
		t.Errorf("%d %s, want %s", w.Code, w.Body, want)
	}
	if w := with(h, "POST", "/api/keys", "Bearer "+operateToken, nil); w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
}

// Streams of whoever shows a token end when that is removed, and nothing else ends while the tokens stay.
func TestRemovedTokenEndsStreams(t *testing.T) {
	o := newObserved()
	log := slog.New(slog.DiscardHandler)
	access := NewAccess(nil, nil, log)
	text := []byte("read " + readToken + "\noperate " + operateToken)
	if err := access.SetTokens(text); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(API(o, access, nil, log))
	defer s.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Authorization", "Bearer "+readToken)
	resp, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		ended <- err
	}()
	inForce := access.tokens.Load().inForce
	if err := access.SetTokens(text); err != nil || inForce.Err() != nil {
		t.Fatal("the same tokens end streams", err)
	}
	if err := access.SetTokens([]byte("operate " + operateToken)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Pages of other origins get nothing, by any method: profiles take time, and streams are few.
func TestPagesOfOtherOrigins(t *testing.T) {
	for site, want := range map[string]int{
		"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200, "": 200,
	} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:7949/api/bans", nil)
		if site != "" {
			r.Header.Set("Sec-Fetch-Site", site)
		}
		w := httptest.NewRecorder()
		unguarded(&operator{}).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: %d", site, w.Code)
		}
	}
}
