package testkit

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// inNamespace is set in the environment of a test that runs in a network of its own.
const inNamespace = "EDGELIMIT_TEST_NAMESPACE"

// Namespace runs the test again, by itself, in a network namespace of its own, in which it is root and has nothing but
// loopback, and fails if it fails there. It returns true there, and false outside, where the test has nothing more to
// do. It needs Linux with user namespaces, or root.
func Namespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inNamespace) == t.Name() {
		Run(t, "ip", "link", "set", "lo", "up")
		return true
	}
	kind := "-rn"
	if os.Getuid() == 0 {
		kind = "-n"
	}
	cmd := exec.CommandContext(t.Context(), "unshare", kind, os.Args[0],
		"-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.count=1", "-test.timeout=2m", "-test.v")
	cmd.Env = append(os.Environ(), inNamespace+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in a network namespace of its own (unshare %s; programs as make programs installs them): %v\n%s",
			kind, err, out)
	}
	if err == nil {
		t.Logf("%s", out)
	}
	return false
}

// Run runs a program, which has to succeed, and returns what it prints.
func Run(t testing.TB, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}
