package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// Every Go program in the README passes vet, which type-checks it; those that serve nobody run as well.
func TestREADMEPrograms(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	testkit.Must(t, err)
	blocks := goBlock.FindAllStringSubmatch(string(readme), -1)
	if len(blocks) < 2 {
		t.Fatalf("%d Go blocks found", len(blocks))
	}
	for _, block := range blocks {
		dir := t.TempDir()
		program := filepath.Join(dir, "main.go")
		testkit.Must(t, os.WriteFile(program, []byte(block[1]), 0o600))
		if out, err := exec.Command("go", "vet", program).CombinedOutput(); err != nil {
			t.Fatalf("go vet: %v\n%s\nof\n%s", err, out, block[1])
		}
		if strings.Contains(block[1], "ListenAndServe") {
			continue
		}
		binary := filepath.Join(dir, "program")
		if out, err := exec.Command("go", "build", "-o", binary, program).CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(readmeRules), 0o600))
		run := exec.Command(binary)
		run.Dir = dir
		out, err := run.Output()
		if want := "true 99 0s\n"; err != nil || string(out) != want {
			t.Errorf("it printed %q, want %q (%v)", out, want, err)
		}
	}
}

const readmeRules = `
domain: edge
descriptors: [{key: remote_address, rate_limit: {name: per_ip, unit: minute, requests_per_unit: 100}}]
`

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
