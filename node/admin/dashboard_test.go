package admin

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func browse(h http.Handler, method, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w
}

// Every file comes under a policy: the page runs nothing inline and nothing from elsewhere, and nobody frames it.
func TestDashboardIsServed(t *testing.T) {
	h := unguarded(&operator{})
	kinds := map[string]string{"/": "text/html", "/dashboard/style.css": "text/css",
		"/dashboard/common.js": "text/javascript", "/dashboard/live.js": "text/javascript",
		"/dashboard/playground.js": "text/javascript"}
	for path, kind := range kinds {
		w := browse(h, "GET", "http://127.0.0.1:7949"+path)
		header := w.Header()
		policy := header.Get("Content-Security-Policy")
		if w.Code != 200 || !strings.HasPrefix(header.Get("Content-Type"), kind) || w.Body.Len() < 500 ||
			!strings.HasPrefix(policy, "default-src 'self'") || strings.Contains(policy, "unsafe") ||
			!strings.Contains(policy, "frame-ancestors 'none'") || header.Get("X-Content-Type-Options") != "nosniff" ||
			header.Get("Referrer-Policy") != "no-referrer" || header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %v", path, w.Code, header)
		}
		if w := browse(h, "GET", "http://evil.example:7949"+path); w.Code != 403 {
			t.Errorf("%s for a page whose name leads here: %d", path, w.Code)
		}
	}
	entries, err := fs.ReadDir(files, "dashboard")
	if err != nil || len(entries) != len(kinds) {
		t.Errorf("%d files are embedded, %d served: %v", len(entries), len(kinds), err)
	}
	for _, path := range []string{"/dashboard/", "/dashboard", "/dashboard/page.html", "/dashboard/../api.go",
		"/dashboard/%2e%2e/api.go", "/index.html", "/dashboard/style.css/", "/favicon.ico"} {
		if w := browse(h, "GET", "http://127.0.0.1:7949"+path); w.Code == 200 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := browse(h, "POST", "http://127.0.0.1:7949/"); w.Code != 404 && w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
}

// Nothing that the API answers can become markup or code: scripts make text nodes only. Nothing comes from elsewhere.
func TestDashboardHasNoInjection(t *testing.T) {
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|` +
		`\son\w+=|<style|style="|javascript:|//[a-z0-9-]+\.[a-z]|document\.cookie`)
	entries, err := fs.ReadDir(files, "dashboard")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := fs.ReadFile(files, "dashboard/"+e.Name())
		if err != nil {
			t.Fatal(err)
		}
		found := forbidden.FindString(strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", ""))
		if found != "" {
			t.Errorf("%s has %q", e.Name(), found)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if len([]rune(line)) > 120 {
				t.Errorf("%s:%d has %d columns", e.Name(), i+1, len([]rune(line)))
			}
		}
	}
}

// Without viewers nothing runs, and nothing is left running by those who were here.
func TestDashboardLeavesNothingRunning(t *testing.T) {
	check := testkit.NoLeaks(t)
	h := unguarded(&operator{})
	check()
	for range 10 {
		browse(h, "GET", "http://127.0.0.1:7949/")
		r := httptest.NewRequest("POST", "http://127.0.0.1:7949/api/playground",
			strings.NewReader(`{"session":"00000000000000ff","limit":5,"window_ms":10000,"requests":8}`))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	check()
}
