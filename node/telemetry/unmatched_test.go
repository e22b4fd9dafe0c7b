package telemetry

import (
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Of several keys the misspelt one is found, wherever it stands.
func TestUnmatchedSampleFindsTheKey(t *testing.T) {
	req := &rules.Request{
		Domain:      "edge",
		Descriptors: [][]rules.Entry{{{Key: "path", Value: "/"}, {Key: "remote_adress", Value: "a"}}},
	}
	if near := newSample(req).nearest(ruleSet(loginRules)); near != "remote_address" {
		t.Errorf("did_you_mean is %q", near)
	}
}

// Each kind is logged once a minute, however many requests there are and whatever they hold.
func TestUnmatchedIsLoggedOnceAMinute(t *testing.T) {
	log := &testkit.Log{}
	u, set := Unmatched{log: log.Logger()}, ruleSet(loginRules)
	long := strings.Repeat("x", 10_000) + "\n"
	for _, step := range []struct {
		after time.Duration
		req   *rules.Request
		line  string
	}{
		{0, request("egde", "path"),
			`level=WARN msg="a request names a domain that no rule is in, and is allowed" domain=egde keys=(path) ` +
				`requests=1 did_you_mean=edge`},
		{time.Second, request("egde", "path"), ""},
		{2 * time.Second, request("edge", "remote_adress", "b"),
			`domain=edge keys="(remote_adress), (b)" requests=1 did_you_mean=remote_address`},
		{3 * time.Second, request("edge", "path"), `level=DEBUG msg="a request meets no rule by its values`},
		{50 * time.Second, request("edge", "b"), ""},
		{61 * time.Second, nil, ""},
		{62 * time.Second, request("a\nb"+long, "1", "2", "3", "4", "5"), `domain="a\nbxxx`},
		{63 * time.Second, nil, ""},
		{64 * time.Second, request("edge", long), `requests=3`},
	} {
		before := log.String()
		if step.req != nil {
			u.Count(set, step.req, at(0).Add(step.after).UnixNano())
		}
		u.logSamples(set)
		line := strings.TrimPrefix(log.String(), before)
		if line == "" != (step.line == "") || !strings.Contains(line, step.line) || strings.Count(line, "\n") > 1 ||
			len(line) > 600 {
			t.Errorf("at %v it logs %q, want %q", step.after, line, step.line)
		}
	}
	if log.HasLine("secret") {
		t.Error("a value is in the log")
	}
}
