package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/bans"
	"github.com/edgelimit/edgelimit/node/client"
	"github.com/edgelimit/edgelimit/node/status"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// evil is a text that would steer a terminal.
const evil = "\x1b]0;x\x07\x1b[2J\u202e\u009b\u2066<b>"

// forged is a node whose every text is evil.
func forged(t *testing.T) string {
	member := status.Member{Node: evil, Region: evil, Addr: evil, Rules: evil, Since: time.Now()}
	s := status.Status{Node: evil, Region: evil, Version: evil, Health: status.Degraded, Warnings: []string{evil},
		Summary: []status.Finding{{Level: evil, Text: evil, Do: evil}},
		Regions: []status.Region{{Name: evil, Members: []status.Member{member}}},
		Limits:  []status.Limit{{Rule: evil, Algorithm: evil}}, Rules: status.Rules{Fingerprint: evil},
		Redis: &status.Redis{State: evil}}
	layer := status.Layer{Rule: evil, Key: evil, Listed: evil, Store: evil,
		Counts: []status.NodeCount{{Node: evil, Region: evil}}}
	event := status.Event{ID: 7, Level: evil, Text: evil, Attrs: map[string]string{evil: evil}}
	answers := map[string]any{"/api/status": s,
		"/api/top":     map[string]any{"top": []status.Denied{{Rule: evil, Key: evil, Identity: evil, Error: 4}}},
		"/api/inspect": status.Inspection{Node: evil, Layers: []status.Layer{layer}},
		"/api/config": map[string]any{"settings": []status.Setting{
			{Name: evil, From: evil, Value: json.RawMessage(`""`)}}},
		"/api/events": map[string]any{"events": []status.Event{event}},
		"/api/keys":   map[string]any{"nodes": []status.KeyHolder{{Node: evil, State: evil, Keys: []string{evil}}}},
		"/api/bans": client.AddedBans{Bans: []bans.Ban{{Rule: evil, Address: evil, By: evil, Reason: evil}},
			Warnings: []string{evil}},
		"/api/bans/remove": client.RemovedBans{Rules: []client.RemovedBan{{Rule: evil, Scope: evil,
			Around: []string{evil}}}},
		"/v1/check": map[string]any{"allowed": true, "rule": evil, "mode": evil},
		"/readyz":   evil}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == "text/event-stream" {
			b, _ := json.Marshal(event)
			_, _ = w.Write([]byte(": \n\nevent: event\nid: 7\ndata: " + string(b) + "\n\n"))
			return
		}
		_ = json.NewEncoder(w).Encode(answers[r.URL.Path])
	}))
	t.Cleanup(server.Close)
	return server.URL
}

var steers = regexp.MustCompile(`[\x00-\x09\x0b-\x1f\x7f\x{80}-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]`)

// Whatever a node or a rule file says, nothing of it reaches the terminal as a command, in a table or in JSON, in an
// answer or an error.
func TestNothingSteersTheTerminal(t *testing.T) {
	url, web := forged(t), ruleFile(t, fmt.Sprintf("domain: edge\ndescriptors:\n  - {key: path, value: %q, "+
		"descriptors: [{key: remote_address, rate_limit: {name: %q, unit: hour, requests_per_unit: 5}}]}\n", evil,
		evil))
	wrong := ruleFile(t, fmt.Sprintf("domain: edge\ndescriptors: [{key: a, %q: 1}]\n", evil))
	other := hourly(t, 7)
	log := filepath.Join(t.TempDir(), "access.log")
	testkit.Must(t, os.WriteFile(log, []byte(`192.0.2.1 - - [29/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1`+"\n"),
		0o600))
	redis := regionstest.StartRedis(t)
	store := "--redis=redis://" + redis.Addr()
	edgelimit(t, "rules", "push", other, store).says(t, 0)
	for _, command := range [][]string{
		{"status", "--url", url}, {"members", "--url", url}, {"top", "--url", url}, {"inspect", "r", "i", "--url", url},
		{"events", "--url", url}, {"config", "--url", url}, {"keys", "status", "--url", url},
		{"bans", "list", "--url", url}, {"bans", "remove", "r", "i", "--url", url},
		{"bans", "add", "r", "i", "--for", "1h", "--url", url},
		{"check", "--rule", "r", "--identity", "i", "--url", url},
		{"rules", "validate", web}, {"rules", "validate", wrong}, {"rules", "diff", web, other},
		{"rules", "diff", other, web}, {"rules", "explain", "--rules", web, "path=" + evil + ",remote_address=::1"},
		{"rules", "explain", "--rules", web, "--rule", evil, "--identity", evil},
		{"rules", "explain", "--rules", web, evil + "=" + evil}, {"replay", "--rules", web, log},
		{"rules", "push", web, store, "--message", "b"}, {"rules", "history", store},
		{"limits", "set", evil, "<b>", "5/hour", store, "--key-file", "none"}, {"limits", "list", store},
		{"limits", "unset", evil, evil, store, "--key-file", "none"}, {"rules", "rollback", "1", store},
		{"status", evil}, {"status", "--" + evil}, {evil}, {"check", "--cost", evil},
	} {
		for _, flags := range [][]string{nil, {"--json"}} {
			args := append(slices.Clone(command), flags...)
			r := edgelimit(t, args...)
			if all := r.out + r.err; steers.MatchString(all) || all == "" {
				t.Errorf("%q: %q %q", args, r.out, r.err)
			}
			if from := slices.Index(args, "--url"); from > 0 && !strings.Contains(r.out, "<b>") &&
				!strings.Contains(r.out, "003cb") {
				t.Errorf("%q keeps to itself what the node says: %q %q", args, r.out, r.err)
			}
		}
	}
	edgelimit(t, "health", "--url", url).says(t, 0, `ready"\u001b`)
	r := edgelimit(t, "events", "--follow", "--url", url)
	if steers.MatchString(r.out) || !strings.Contains(r.out, "<b>") {
		t.Errorf("events --follow: %q", r.out)
	}
	r.says(t, 2, "the node ended the stream")
}

// Events are asked for by their time or by their id.
func TestEventsSince(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	var asked []string
	events := []status.Event{{ID: 6, Time: now.Add(-time.Hour), Level: "info", Text: "an hour ago"},
		{ID: 7, Time: now.Add(-time.Minute), Level: "info", Text: "a minute ago"}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("since"))
		_ = json.NewEncoder(w).Encode(map[string]any{"events": events})
	}))
	defer server.Close()
	for since, want := range map[string]struct {
		asked     string
		hour, min bool
	}{
		"": {"0", true, true}, "15m": {"0", false, true}, "2h30m": {"0", true, true}, "5": {"5", true, true},
		"0s": {"0", false, false},
		now.Add(-30 * time.Minute).Format(time.RFC3339):                           {"0", false, true},
		now.Add(-2 * time.Hour).In(time.FixedZone("", 3600)).Format(time.RFC3339): {"0", true, true},
	} {
		asked = nil
		for _, flags := range [][]string{nil, {"--json"}} {
			r := edgelimit(t, append([]string{"events", "--url", server.URL, "--since", since}, flags...)...)
			if r.code != 0 || strings.Contains(r.out, "an hour ago") != want.hour ||
				strings.Contains(r.out, "a minute ago") != want.min {
				t.Errorf("--since %q: %+v", since, r)
			}
		}
		if len(asked) != 2 || asked[0] != want.asked {
			t.Errorf("--since %q asks for %q", since, asked)
		}
	}
	for _, since := range []string{"-1m", "yesterday", "2026-01-02", "1.5"} {
		edgelimit(t, "events", "--since="+since, "--url", server.URL).says(t, 2, "want a duration as 15m")
	}
}

func TestStatusCommandsRefuse(t *testing.T) {
	for args, want := range map[string]string{
		"status x": "takes no arguments", "top a b": `want one RULE, got "b"`, "inspect r": "want RULE and IDENTITY",
		"members x": "takes no arguments", "events --since x": `--since "x": want`,
		"completion tcsh":                   "want one of bash",
		"status --url 127.0.0.1:1":          "is a node running here",
		"events --follow --url 127.0.0.1:1": "is a node running here",
		"nodes":                             "did you mean edgelimit members?",
	} {
		edgelimit(t, strings.Fields(args)...).says(t, 2, want)
	}
	edgelimit(t, "completion", "fish").says(t, 0, "complete -c edgelimit", completionFlag)
	edgelimit(t, "completion", "zsh").says(t, 0, "bashcompinit")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{}`))
	}))
	defer other.Close()
	edgelimit(t, "status", "--url", other.URL).says(t, 2, "does not answer like")
}

// followed runs events --follow until its output has a text.
func followed(t *testing.T, url, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out testkit.Log
	app := New()
	app.Writer = &out
	ended := make(chan int)
	go func() { ended <- Run(ctx, app, []string{"edgelimit", "events", "--follow", "--url", url}) }()
	testkit.Eventually(t, "an event: "+text, func() bool { return strings.Contains(out.String(), text) })
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("interrupted, it ends with %d", code)
	}
}

// checkStatus asks one of two nodes about both, while the other is silent, as in a partition.
func checkStatus(t *testing.T, binary string) {
	admin, seed := free(t), free(t)
	doors := []string{free(t), free(t)}
	rules := written(t, "rules.yaml", `domain: edge
descriptors:
  - {key: client, rate_limit: {name: per_client, unit: hour, requests_per_unit: 3, expose: identity}}
`)
	start(t, binary, "serve", "--node-id", "a", "--region", "us", "--http", doors[0], "--health", "", "--admin", admin,
		"--gossip-wan", seed, "--rules", rules)
	b := start(t, binary, "serve", "--node-id", "b", "--region", "eu", "--http", doors[1], "--health", "",
		"--admin", "", "--gossip-wan", free(t), "--join", "wan:"+seed, "--rules", rules)
	ask := func(command ...string) result { return runBinary(t, binary, append(command, "--url", admin)...) }
	eventually(t, "both are members", func() bool {
		r := ask("members", "--json")
		return r.code == 0 && strings.Contains(r.out, `"node":"b"`)
	})
	eventually(t, "health", func() bool { return ask("status").code == 0 })
	for range 5 {
		runBinary(t, binary, "check", "--url", doors[1], "--rule", "per_client", "--identity", "joe")
		runBinary(t, binary, "check", "--url", doors[0], "--rule", "per_client", "--identity", "ann")
	}
	eventually(t, "what b admitted is known at a", func() bool {
		r := ask("inspect", "per_client", "joe")
		return r.code == 1 && strings.Contains(r.out, "used 3 of 3") &&
			regexp.MustCompile(`eu +b +3`).MatchString(r.out)
	})
	ask("top", "per_client").says(t, 0, "per_client", "ann")
	ask("config", "--changed").says(t, 0, "gossip.wan", "flag", "region")
	if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the partition in the status", func() bool {
		r := ask("status")
		return r.code == 1 && strings.Contains(r.out, "DEGRADED") &&
			strings.Contains(r.out, "region eu is cut off since ") && strings.Contains(r.out, "  do: ")
	})
	ask("members").says(t, 0, "cut off since")
	followed(t, admin, "a region cannot be reached")
	if err := b.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "health again", func() bool { return ask("status").code == 0 })
	ask("events").says(t, 0, "a region is reachable again")
	var s status.Status
	if err := json.Unmarshal([]byte(ask("status", "--json").out), &s); err != nil || len(s.Regions) != 2 {
		t.Errorf("%v %+v", err, s)
	}
}
