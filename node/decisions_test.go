package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/decisionlog"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// The log has each layer that decided, by whichever API, and names nobody. The end of the node writes it all.
func TestDecisionLog(t *testing.T) {
	cfg := withListeners(quiet(layered))
	file := filepath.Join(t.TempDir(), "decisions.log")
	cfg.DecisionLog = decisionlog.Config{File: file, Sample: 1, MaxPerSecond: 1000}
	n := launch(t, cfg).ready(t)
	takeSome(t, n.Node, "test/client", "192.0.2.1", 11)
	take(t, n.Node, ask(by("client", "192.0.2.1"), by("endpoint", "192.0.2.2"))) // the first denies
	n.TakeDebt([]byte("192.0.2.3"), 1, 1)
	post(t, n.Addr("http"), "/v1/check", `{"rule":"test/nameless","identity":"192.0.2.4"}`)
	testkit.Must(t, n.stop())
	text, err := os.ReadFile(file)
	testkit.Must(t, err)
	type line struct {
		Rule, Identity, Outcome string
		Cost, Limit, Remaining  int
	}
	counts, identities := make(map[string]int), make(map[string]bool)
	for text := range strings.Lines(string(text)) {
		var l line
		testkit.Must(t, json.Unmarshal([]byte(text), &l))
		counts[l.Rule+" "+l.Outcome]++
		identities[l.Identity] = true
		if l.Rule == "per_client" && (l.Cost != 1 || l.Limit != 10 || l.Remaining > 9) {
			t.Errorf("%+v", l)
		}
	}
	for id, want := range map[string]int{"per_client allowed": 10, "per_client denied": 2, "/adhoc allowed": 1,
		"test/nameless allowed": 1} {
		if counts[id] != want {
			t.Errorf("%d lines of %s, want %d: %v", counts[id], id, want, counts)
		}
	}
	if len(counts) != 4 || len(identities) != 3 || strings.Contains(string(text), "192.0.2") {
		t.Errorf("%v of %d identities: %s", counts, len(identities), text)
	}
}

// A node does not start with a log that it cannot write.
func TestDecisionLogIsChecked(t *testing.T) {
	cfg := quiet(perClient)
	cfg.DecisionLog.File = filepath.Join(t.TempDir(), "missing", "decisions.log")
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "decision_log: open ") {
		t.Errorf("it starts: %v", err)
	}
	cfg.DecisionLog.Sample = 2
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "decision_log.sample: 2, want 0 to 1") {
		t.Errorf("it is valid: %v", err)
	}
}
