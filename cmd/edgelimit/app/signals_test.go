package app

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// checkHangup sends SIGHUPs to a process: it reads its rules and its kill switch again, says what came of it, and goes
// on whatever that is.
func checkHangup(t *testing.T, binary string) {
	const ruleText = "domain: edge\ndescriptors: [{key: client, rate_limit: {name: few, unit: day, " +
		"requests_per_unit: 1}}]\n"
	door := free(t)
	ruleFile := written(t, "rules.yaml", ruleText)
	config := written(t, "edgelimit.yaml", "rules_poll: 1h\n")
	p := start(t, binary, "serve", "--config", config, "--rules", ruleFile, "--http", door, "--health", "")
	eventually(t, "ready", func() bool { return strings.Contains(p.said.String(), "msg=ready") })
	rewrite := func(file, text string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new",
			file)); err != nil {
			t.Fatal(err)
		}
	}
	hangup := func(lines ...string) {
		t.Helper()
		before := len(p.said.String())
		testkit.Must(t, p.cmd.Process.Signal(syscall.SIGHUP))
		for _, line := range lines {
			eventually(t, "it says "+line, func() bool { return strings.Contains(p.said.String()[before:], line) })
		}
	}
	allowed := func() bool {
		t.Helper()
		_, _, answer, err := testkit.Fetch(web, "POST", "http://"+door+"/v1/check", `{"rule":"few","identity":"x"}`)
		testkit.Must(t, err)
		return strings.Contains(answer, `"allowed":true`)
	}
	expect := func(what string, want bool) {
		t.Helper()
		if allowed() != want {
			t.Errorf("%s: allowed is not %v", what, want)
		}
	}
	expect("the first request", true)
	expect("the second request", false)

	hangup(`msg="rules in force"`, "changes=0")
	expect("after a hangup without a change", false)

	rewrite(config, "rules_poll: 1h\nshadow: true\nmax_skew: 50ms\n")
	hangup(`msg="shadow mode of all rules"`, "on=true", `msg="other settings of the configuration have changed`)
	expect("with the kill switch", true)

	rewrite(config, "shadow: [\n")
	hangup("level=ERROR", "edgelimit.yaml", `msg="rules in force"`)
	expect("with a configuration that cannot be read", true)

	rewrite(config, "rules_poll: 1h\n")
	hangup("on=false")
	expect("without the kill switch", false)

	rewrite(ruleFile, ruleText+"limit: 1\n") // which the file system may have told already
	hangup(`msg="the last good rules stay in force"`, ruleFile+":3:1: unknown key")
	expect("with invalid rules", false)

	rewrite(ruleFile, strings.Replace(ruleText, "unit: 1", "unit: 9", 1))
	hangup(`msg="rules in force"`)
	expect("with a raised limit", true)

	testkit.Must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	_ = p.cmd.Process.Signal(syscall.SIGHUP) // a hangup must not end what is ending
	if code := p.exit(t, 10*time.Second); code != 0 {
		t.Errorf("exit status %d; it says:\n%s", code, p.said.String())
	}
}
