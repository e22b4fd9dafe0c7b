package node

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// Every Go program in the README compiles and does what the text says: one prints a decision, a server stops in order
// on SIGTERM, and a test passes at once.
func TestREADMEPrograms(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	testkit.Must(t, err)
	blocks := goBlock.FindAllStringSubmatch(string(readme), -1)
	if len(blocks) != 3 {
		t.Fatalf("%d Go blocks found", len(blocks))
	}
	for _, block := range blocks {
		dir, addr := t.TempDir(), testkit.FreeAddr(t)
		text := strings.Replace(block[1], "127.0.0.1:8000", addr, 1)
		binary, source := filepath.Join(dir, "program"), filepath.Join(dir, "main.go")
		build := exec.Command("go", "build", "-o", binary, source)
		if strings.Contains(text, "testing.T") {
			source = filepath.Join(dir, "main_test.go")
			build = exec.Command("go", "test", "-c", "-o", binary, source)
		}
		testkit.Must(t, os.WriteFile(source, []byte(text), 0o600))
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s\nof\n%s", build.Args, err, out, text)
		}
		run := exec.Command(binary)
		var logged bytes.Buffer
		run.Dir, run.Stderr = dir, &logged
		switch {
		case strings.Contains(text, "testing.T"):
			if out, err := run.Output(); err != nil || !strings.Contains(string(out), "PASS") {
				t.Errorf("the test fails: %v\n%s%s", err, out, &logged)
			}
		case strings.Contains(text, "ListenAndServe"):
			testkit.Must(t, run.Start())
			testkit.Eventually(t, "a limited answer", func() bool {
				resp, err := http.Get("http://" + addr)
				if err != nil {
					return false
				}
				_, body := slurp(t, resp)
				return body == "hello\n" && resp.Header.Get("X-RateLimit-Limit") == "100"
			})
			testkit.Must(t, run.Process.Signal(syscall.SIGTERM))
			if err := run.Wait(); err != nil || !strings.Contains(logged.String(), "stopping") {
				t.Errorf("on SIGTERM it ends with %v, and logs\n%s", err, &logged)
			}
		default:
			if out, err := run.Output(); err != nil || string(out) != "true 99 0s\n" {
				t.Errorf("it printed %q (%v)\n%s", out, err, &logged)
			}
		}
		if strings.Contains(logged.String(), "127.0.0.1:") {
			t.Errorf("it has listeners:\n%s", &logged)
		}
	}
}

// The first two files of the proxy's page, a configuration and its rules, go together: every route meets a rule.
func TestProxyPage(t *testing.T) {
	page, err := os.ReadFile("proxy/README.md")
	testkit.Must(t, err)
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	file := filepath.Join(t.TempDir(), "node.yaml")
	testkit.Must(t, os.WriteFile(file, []byte(blocks[0][1]), 0o600))
	cfg, err := ReadConfig(file)
	testkit.Must(t, err)
	cfg.HTTP = "" // as edgelimit proxy has it
	if found := cfg.Warnings(ruleSet(blocks[1][1])); len(found) > 0 {
		t.Errorf("%+v", found)
	}
}

// The version is known however the program was built: by make, by go install, as a dependency of another program, or by
// go run.
func TestVersionOf(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	main := func(version string) debug.Module { return debug.Module{Path: modulePath, Version: version} }
	stamped := []debug.BuildSetting{{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: "true"}}
	other := debug.Module{Path: "example.com/proxy", Version: "v9.9.9"}
	for _, test := range []struct {
		name   string
		info   debug.BuildInfo
		linked string
		want   string // version, revision
	}{
		{"go install of a version", debug.BuildInfo{Main: main("v1.2.3")}, "", "v1.2.3 "},
		{"go install of a commit", debug.BuildInfo{Main: main("v1.2.4-0.20261122092437-0123456789ab")}, "",
			"v1.2.4-0.20261122092437-0123456789ab 0123456789ab"},
		{"go build in a clone", debug.BuildInfo{Main: main("(devel)"), Settings: stamped}, "",
			"(devel) 0123456789ab-dirty"},
		{"without version control", debug.BuildInfo{Main: main("")}, "", "(devel) "},
		{"make", debug.BuildInfo{Main: main("(devel)"), Settings: stamped}, "v1.2.3-4-g0123456",
			"v1.2.3-4-g0123456 0123456789ab-dirty"},
		{"embedded", debug.BuildInfo{Main: other, Deps: []*debug.Module{{Path: modulePath, Version: "v1.2.3"}},
			Settings: stamped}, "", "v1.2.3 "},
		{"embedded, replaced", debug.BuildInfo{Main: other, Deps: []*debug.Module{{Path: modulePath, Version: "v1.2.3",
			Replace: &debug.Module{Path: "example.com/fork", Version: "v0.0.0-20261122092437-0123456789ab"}}}}, "",
			"v0.0.0-20261122092437-0123456789ab 0123456789ab"},
		{"embedded, from a folder", debug.BuildInfo{Main: other,
			Deps: []*debug.Module{{Path: modulePath, Version: "v1.2.3",
				Replace: &debug.Module{Path: "../edgelimit"}}}}, "", "(devel) "},
	} {
		test.info.GoVersion = "go1.99"
		v := versionOf(&test.info, test.linked)
		if got := v.Version + " " + v.Revision; got != test.want || v.Go != "go1.99" ||
			v.Platform != runtime.GOOS+"/"+runtime.GOARCH {
			t.Errorf("%s: %+v, want %s", test.name, v, test.want)
		}
	}
	if v := versionOf(nil, ""); v.Version != "(devel)" || v.Go != runtime.Version() {
		t.Errorf("without build information: %+v", v)
	}
	if got, want := (Version{"v1.2.3", "abc", "go1.99", "x/y"}).String(),
		"v1.2.3 (commit abc, go1.99, x/y)"; got != want {
		t.Errorf("it reads %q, want %q", got, want)
	}
	if got := BuildVersion().String(); !strings.Contains(got, runtime.Version()) || strings.Contains(got, "commit ,") {
		t.Errorf("this test is of version %q", got)
	}
}
