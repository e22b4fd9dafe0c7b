package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The units are what systemd knows, each socket has the name of a listener, and the flags are those of serve.
func TestSystemdUnits(t *testing.T) {
	units, err := filepath.Glob("../node/deploy/systemd/edgelimit*.*")
	if err != nil || len(units) != 3 {
		t.Fatalf("units: %v, %v", units, err)
	}
	dir, all := t.TempDir(), []string{"verify", "--man=no"}
	for _, name := range units {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		socket := regexp.MustCompile(`\nFileDescriptorName=(http|grpc|resp|proxy|health|admin|prometheus)\n`)
		if filepath.Ext(name) == ".socket" && !socket.Match(text) {
			t.Errorf("%s does not name a listener", name)
		}
		there := filepath.Join(dir, filepath.Base(name))
		// The binary is not installed here.
		installed := strings.Replace(string(text), "/usr/bin/edgelimit ", "/bin/true ", 1)
		if err := os.WriteFile(there, []byte(installed), 0o600); err != nil {
			t.Fatal(err)
		}
		all = append(all, there)
	}
	// Keys that systemd does not know are warnings: it succeeds all the same.
	if out, err := exec.Command("systemd-analyze", all...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	help, err := exec.Command("go", "run", "../cmd/edgelimit", "serve", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, help)
	}
	text, err := os.ReadFile("../node/deploy/systemd/edgelimit.service")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^ExecStart=.*`).FindString(string(text))
	flags := regexp.MustCompile(` --[a-z-]+ `).FindAllString(command, -1)
	for _, flag := range flags {
		if !strings.Contains(string(help), flag) {
			t.Errorf("edgelimit serve has no flag %s", flag)
		}
	}
	if len(flags) == 0 {
		t.Errorf("no flags found in %q", command)
	}
}
