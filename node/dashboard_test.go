package node

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// The dashboard on a listener of its own, which others may reach, changes nothing and says nothing about identities,
// bans and settings; and no page of another site reads it.
func TestDashboardAlone(t *testing.T) {
	cfg := withListeners(quiet(exposing))
	cfg.Dashboard = ":0" // all interfaces, without TLS
	n := launch(t, cfg).ready(t)
	denyOften(t, n.Node, "per_client", "joe-the-client", 3)
	addBan(t, n.Node, "per_client", "joe-the-client", 1<<40)
	addr := n.Addr("dashboard")
	ask := func(method, path, host string) (status int, body string) {
		t.Helper()
		port := addr[strings.LastIndex(addr, ":"):]
		r, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+port+path, nil)
		testkit.Must(t, err)
		if host != "" {
			r.Host = host
		}
		resp, err := web.Do(r)
		testkit.Must(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		testkit.Must(t, err)
		return resp.StatusCode, string(text)
	}
	for path, wants := range map[string]string{"/": "<html", "/dashboard/live.js": "/api/status",
		"/api/status": `"rule":"per_client"`, "/api/events": `"text":"a ban was begun"`} {
		status, body := ask("GET", path, "")
		if status != http.StatusOK || !strings.Contains(body, wants) || strings.Contains(body, "joe-the-client") ||
			strings.Contains(body, "identity_hash") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if found := n.Status().Top; len(found) != 1 || found[0].Identity != "joe-the-client" {
		t.Errorf("operators see %+v", found)
	}
	for _, path := range []string{"/api/bans", "/api/bans/remove", "/api/config", "/api/top",
		"/api/inspect?rule=x&identity=y",
		"/api/keys", "/api/members", "/api/log-level", "/debug/pprof/", "/metrics"} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
			if status, body := ask(method, path, ""); status != http.StatusNotFound && status != http.StatusForbidden {
				t.Errorf("%s %s: %d %s", method, path, status, body)
			}
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		for _, path := range []string{"/api/status", "/api/events", "/"} {
			if status, body := ask(method, path, ""); status < 400 || status >= 500 {
				t.Errorf("%s %s: %d %s", method, path, status, body)
			}
		}
	}
	for host, want := range map[string]int{"evil.example": 403, "evil.example:80": 403, "192.0.2.1:7950": 200,
		"[2001:db8::1]:7950": 200, "server1:7950": 200, "localhost": 200} {
		if status, body := ask("GET", "/api/status", host); status != want {
			t.Errorf("for the host %s: %d %s", host, status, body)
		}
	}
}
