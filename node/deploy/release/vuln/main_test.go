package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// database writes a vulnerability database with one finding, made up, in every version of a module.
func database(t *testing.T, module string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"index/db.json": `{"modified":"2026-01-01T00:00:00Z"}`,
		"index/modules.json": `[{"path":"` + module + `","vulns":[` +
			`{"id":"GO-2026-0001","modified":"2026-01-01T00:00:00Z"}]}]`,
		"index/vulns.json": `[{"id":"GO-2026-0001","modified":"2026-01-01T00:00:00Z"}]`,
		"ID/GO-2026-0001.json": `{"schema_version":"1.3.1","id":"GO-2026-0001",
			"modified":"2026-01-01T00:00:00Z",
			"published":"2026-01-01T00:00:00Z","summary":"made up","details":"made up",
			"database_specific":{"url":"https://pkg.go.dev/vuln/GO-2026-0001"},
			"affected":[{"package":{"name":"` +
			module + `","ecosystem":"Go"},"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],
			"ecosystem_specific":{"imports":[{"path":"` + module + `"}]}}]}`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return (&url.URL{Scheme: "file", Path: dir}).String()
}

// TestFinding holds that a known vulnerability of a module that edgelimit requires fails the check, and that of another
// module does not.
func TestFinding(t *testing.T) {
	for module, status := range map[string]int{"github.com/dchest/siphash": 3, "example.com/unused": 0} {
		var out bytes.Buffer
		args := []string{"-C", "../../../../cmd/edgelimit", "-scan", "module"}
		err := run(t.Context(), args, database(t, module), &out, &out)
		got := 0
		if exit, ok := err.(interface{ ExitCode() int }); ok {
			got = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if found := strings.Contains(out.String(), "GO-2026-0001"); got != status || found != (status == 3) {
			t.Errorf("%s: status %d, want %d:\n%s", module, got, status, &out)
		}
	}
}

// TestUnreachable holds that a check without its database says that it was none, and that one on disk has to be there.
func TestUnreachable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	defer server.Close()
	for _, db := range []string{server.URL, away.URL} {
		var out bytes.Buffer
		if err := run(t.Context(), []string{"-C", "/nowhere"}, db, &out, &out); err != nil ||
			!strings.Contains(out.String(), "NOTHING WAS CHECKED") {
			t.Errorf("%s: %v, %s", db, err, &out)
		}
	}
	var out bytes.Buffer
	args := []string{"-C", "../../../../cmd/edgelimit", "-scan", "module"}
	if err := run(t.Context(), args, "file:///nowhere", &out, &out); err == nil {
		t.Errorf("a database that is not there succeeds: %s", &out)
	}
}
