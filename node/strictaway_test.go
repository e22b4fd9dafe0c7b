package node

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/regions/strict"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestStoreAway(t *testing.T) {
	cfg := quiet(strictRules)
	cfg.OnFailure = rules.FailOpen // it is not for strict rules
	var lines testkit.Log
	cfg.Logger = slog.New(slog.NewTextHandler(&lines, nil))
	n, here, there := strictNode(t, cfg)
	for _, key := range []string{"local", "world", "closed"} {
		layersOf(t, n, Request{}, key)
	}
	there.down = strict.ErrUnavailable
	for _, c := range []struct {
		key     string
		on      rules.Failure
		allowed bool
		waived  bool
		failed  bool
		left    uint64
	}{
		{"closed", rules.FailUnset, false, false, true, 0},
		{"open", rules.FailUnset, true, true, true, 0},
		{"world", rules.FailUnset, false, false, true, 0}, // nothing but the rule opens it
		{"world", rules.FailLocal, false, false, true, 0},
		{"world", rules.FailOpen, false, false, true, 0},
		{"closed", rules.FailOpen, false, false, true, 0},
		{"open", rules.FailClosed, false, false, true, 0}, // a request closes it
		{"local", rules.FailClosed, false, false, true, 0},
		{"local", rules.FailOpen, true, false, false, 0}, // one was counted while the store decided
		{"local", rules.FailUnset, false, false, false, 0},
	} {
		layers := layersOf(t, n, Request{OnFailure: c.on}, "client", c.key)
		d := layers[1]
		if d.Allowed != c.allowed || d.Waived != c.waived || d.Failed != c.failed || !d.Degraded || d.Rule != c.key {
			t.Errorf("%s %s: %+v", c.key, c.on, d)
		}
	}
	if used := spent(t, n, "per_client", "v"); used != 2 { // what was admitted
		t.Errorf("the node counts %d", used)
	}
	if reasons := strings.Join(n.Degraded(), ", "); !strings.Contains(reasons, "region there") {
		t.Errorf("degraded: %q", reasons)
	}
	there.down = nil
	if d := layersOf(t, n, Request{}, "closed")[0]; !d.Allowed || d.Degraded || d.Remaining != 1 {
		t.Errorf("after the heal: %+v", d)
	}
	status := n.Status().Strict[1]
	if status.Passed != 2 || status.Fallbacks != 10 {
		t.Errorf("%+v", status)
	}
	log := lines.String()
	if !strings.Contains(log, "passed_without_it=2") {
		t.Errorf("no line has what passed: %s", log)
	}
	away, back := strings.Count(log, "does not answer"), strings.Count(log, "answers again")
	if away != 1 || back != 1 {
		t.Errorf("logged %d and %d times:\n%s", away, back, log)
	}
	if d := layersOf(t, n, Request{}, "unknown")[0]; d.Allowed || !d.Failed || !d.Degraded {
		t.Errorf("of an unknown store: %+v", d)
	}
	here.expect(t, "test/account", 0, 0, 0)
}

// A store that fails after another one has charged does not keep that charge, unless the request passes.
func TestSecondStoreAway(t *testing.T) {
	n, here, there := strictNode(t, quiet(strictRules))
	there.down = errors.New("broken")
	layersOf(t, n, Request{}, "account", "closed")
	here.expect(t, "test/account", 0, 1, 1)
	layersOf(t, n, Request{}, "account", "open")
	here.expect(t, "test/account", 1, 2, 1)
}

func TestClientGoneWhileTheStoreIsAsked(t *testing.T) {
	n, here, _ := strictNode(t, quiet(strictRules))
	ctx, cancel := context.WithCancel(t.Context())
	here.during = cancel
	req := ask(by("client", "v"), by("account", "v"))
	if layers, err := n.Decide(ctx, &req, nil); !errors.Is(err, context.Canceled) || len(layers) != 0 {
		t.Errorf("%+v, %v", layers, err)
	}
	here.expect(t, "test/account", 0, 1, 1)
	if used := spent(t, n, "per_client", "v"); used != 0 {
		t.Errorf("the node counts %d", used)
	}
	req = ask(by("login", "v"))
	if _, pending, err := n.Begin(ctx, &req, nil); err == nil || pending != nil {
		t.Errorf("begun: %v", err)
	}
	if len(n.pending.counts) != 0 {
		t.Error("a request that has gone is pending")
	}
}
