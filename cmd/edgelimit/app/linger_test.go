package app

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// checkLinger stops a process that lingers: it is unready and answers until a second signal, and ends in order then.
func checkLinger(t *testing.T, binary string) {
	door, health := free(t), free(t)
	p := start(t, binary, "serve", "--http", door, "--health", health, "--linger", "5m")
	eventually(t, "ready", func() bool { return strings.Contains(p.said.String(), "msg=ready") })
	signal := func(s syscall.Signal) {
		t.Helper()
		testkit.Must(t, p.cmd.Process.Signal(s))
	}
	signal(syscall.SIGTERM)
	eventually(t, "unready", func() bool {
		status, _, _, err := testkit.Fetch(web, "GET", "http://"+health+"/readyz", "")
		return err == nil && status == 503
	})
	status, _, answer, err := testkit.Fetch(web, "POST", "http://"+door+"/v1/check",
		`{"rule":"per_ip","identity":"192.0.2.1"}`)
	if status != 200 || err != nil {
		t.Errorf("while it lingers: %d %s %v", status, answer, err)
	}
	signal(syscall.SIGINT)
	if code := p.exit(t, 10*time.Second); code != 0 {
		t.Errorf("exit status %d", code)
	}
	said := p.said.String()
	if !strings.Contains(said, `linger="5 min"`) || !strings.Contains(said, "the linger was cut short") {
		t.Errorf("it says:\n%s", said)
	}
}
