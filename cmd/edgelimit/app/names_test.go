package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A rule has one name, whoever shows it: its given one, or without one its place.
func TestOneNameEverywhere(t *testing.T) {
	for _, test := range []struct{ given, name, header string }{
		{"name: login,", "login", "login"},
		{"", "edge/path=/login/remote_address", "edge/path/remote_address"},
	} {
		t.Run(test.name, func(t *testing.T) { showsOneName(t, test.given, test.name, test.header) })
	}
}

func showsOneName(t *testing.T, given, name, header string) {
	const text = "domain: edge\ndescriptors:\n  - {key: path, value: /login, descriptors: [{key: remote_address, " +
		"rate_limit: {%s unit: hour, requests_per_unit: %d, ban: 1h, expose: identity}}]}\n"
	file, other := ruleFile(t, fmt.Sprintf(text, given, 1)), ruleFile(t, fmt.Sprintf(text, given, 2))
	log := new(testkit.Log)
	cfg := node.DefaultConfig()
	cfg.HTTP, cfg.Health, cfg.Admin, cfg.Rules = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", []string{file}
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	n, err := node.New(cfg)
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	defer func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	eventually(t, "ready", func() bool { return n.Ready() == nil })
	admin, store := "--url=http://"+n.Addr("admin"), "--redis=redis://"+regionstest.StartRedis(t).Addr()
	for range 2 {
		r := edgelimit(t, "check", "--url", "http://"+n.Addr("http"), "path=/login,remote_address=192.0.2.1")
		if !strings.Contains(r.out, " by "+header+": ") {
			t.Errorf("check: %q", r.out+r.err)
		}
	}
	edgelimit(t, "rules", "push", file, store).says(t, 0, "+ "+name+"\n")
	for _, args := range [][]string{
		{"status", admin}, {"status", "--json", admin}, {"top", admin}, {"top", name, admin}, {"top", "--json", admin},
		{"inspect", name, "192.0.2.1", admin}, {"bans", "list", admin}, {"bans", "list", name, admin},
		{"bans", "add", name, "192.0.2.7", "--for", "1h", admin}, {"bans", "remove", name, "192.0.2.7", admin},
		{"rules", "list", file}, {"rules", "list", "--json", file}, {"rules", "diff", file, other},
		{"rules", "explain", "--rules", file, "path=/login,remote_address=192.0.2.1"},
		{"rules", "explain", "--rules", file, "path=/login"}, {"rules", "push", other, store},
		{"rules", "explain", "--rules", file, "--rule", name, "--identity", "192.0.2.1"},
		{"limits", "set", name, "192.0.2.1", "5/hour", store, "--key-file", "none"}, {"limits", "list", store},
		{"events", admin},
	} {
		r := edgelimit(t, args...)
		if shown := regionless(r.out); !strings.Contains(shown, name) || given != "" && strings.Contains(
			strings.ReplaceAll(shown, "edge/path=/login/remote_address", ""), "edge/path") {
			t.Errorf("%q: %q %q", args, r.out, r.err)
		}
	}
	resp, err := http.Get("http://" + n.Addr("health") + "/metrics")
	testkit.Must(t, err)
	defer resp.Body.Close()
	series := fmt.Sprintf(`{outcome="denied",rule=%q} 1`, name)
	if text, _ := io.ReadAll(resp.Body); !strings.Contains(string(text), series) {
		t.Error("the metrics do not have the rule")
	}
	if !strings.Contains(log.String(), "rule="+name) && !strings.Contains(log.String(), fmt.Sprintf("rule=%q", name)) {
		t.Errorf("the log does not have the rule: %s", log)
	}
}

// regionless is an output as it is; JSON escapes no sign of the names.
func regionless(out string) string { return strings.ReplaceAll(out, `\u003d`, "=") }

func TestRulesList(t *testing.T) {
	file := ruleFile(t, `domain: edge
descriptors:
  - {key: remote_address, rate_limit: {name: per_ip, unit: minute, requests_per_unit: 100}}
  - {key: api_key, value: s3cret, secret: true, rate_limit: {unit: day, requests_per_unit: 5, scope: region}}
  - {key: api_key, value: unl, rate_limit: {name: free, unlimited: true}}
`)
	r := edgelimit(t, "rules", "list", file)
	if want := `RULE                PROMISE                           CONSISTENCY  PLACE
per_ip              100 in 1 min by sliding_window    all nodes    edge/remote_address
edge/api_key=#1ec1  5 in 1 day by sliding_window      each region  edge/api_key=#1ec1
free                unlimited                         all nodes    edge/api_key=unl
`; strings.Join(strings.Fields(r.out), " ") != strings.Join(strings.Fields(want), " ") || r.code != 0 {
		t.Errorf("%+v\nwant %s", r, want)
	}
	edgelimit(t, "rules", "list", "--json", file).says(t, 0, `"rule": "per_ip"`, `"place": "edge/remote_address"`,
		`"limit": 100`, `"window_seconds": 60`, `"algorithm": "sliding_window"`, `"consistency": "each region"`)
	edgelimit(t, "rules", "list").says(t, 0, "per_ip")
	edgelimit(t, "rules", "list", ruleFile(t, invalidRules)).says(t, 1, "1 problem")
	edgelimit(t, "rules", "list", "/nowhere.yaml").says(t, 2, "no such file")
	if out := edgelimit(t, "rules", "explain", "--rules", file, "api_key=s3cret").out; strings.Contains(
		strings.SplitN(out, "\n", 2)[1], "s3cret") {
		t.Errorf("explain shows a secret: %s", out)
	}
}
