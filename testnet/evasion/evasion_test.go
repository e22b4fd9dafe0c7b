package evasion

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/middleware"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// start runs a node with Rules and Requests until the test ends.
func start(t *testing.T) *node.Node {
	t.Helper()
	return startWith(t, func(*node.Config) {})
}

// startWith is start with other settings.
func startWith(t *testing.T, change func(*node.Config)) *node.Node {
	t.Helper()
	set, err := rulefile.Parse("rules.yaml", []byte(Rules()))
	testkit.Must(t, err)
	cfg := node.DefaultConfig()
	cfg.NodeID, cfg.HTTP, cfg.Health = "evasion", "127.0.0.1:0", "127.0.0.1:0"
	cfg.Memory, cfg.Logger, cfg.RuleSet = counters.MinMemory, slog.New(slog.DiscardHandler), set
	cfg.Requests = Requests("127.0.0.1")
	change(&cfg)
	n, err := node.New(cfg)
	testkit.Must(t, err)
	testkit.Background(t, n.Run)
	return n
}

func TestThereAreEnough(t *testing.T) {
	names := map[string]bool{}
	for _, v := range Variations() {
		if names[v.Name] {
			t.Errorf("two are named %s", v.Name)
		}
		names[v.Name] = true
	}
	if len(names) < 400 {
		t.Errorf("%d variations", len(names))
	}
	if asks, forms := len(valued(values))+len(envoyRequests()), len(throttleForms()); asks < 400 || forms < 200 {
		t.Errorf("%d requests of Envoy, and %d forms of CL.THROTTLE", asks, forms)
	}
}

// TestAuth: no form of a request that a proxy asks about evades a layer.
func TestAuth(t *testing.T) {
	n := start(t)
	m := MeterAt(t.Context(), n.Addr("http"), n.Addr("health"), Client)
	Check(t, m, Variations(), func(v Variation) (int, error) {
		return Send(n.Addr("http"), v.Asked("/v1/auth"))
	})
}

// TestAuthWithTheClientsQuery: nor does it where the proxy appends the client's query, as Caddy does.
func TestAuthWithTheClientsQuery(t *testing.T) {
	n := start(t)
	m := MeterAt(t.Context(), n.Addr("http"), n.Addr("health"), Client)
	Check(t, m, others(), func(v Variation) (int, error) {
		return Send(n.Addr("http"), v.Asked("/v1/auth?"))
	})
}

// TestMiddleware: nor does it before a Go program. The client's address is in a header here, as the test's own is that
// of the machine.
func TestMiddleware(t *testing.T) {
	n := start(t)
	describe, err := actions.New(Requests("127.0.0.1"))
	testkit.Must(t, err)
	limited, err := middleware.HTTP(n, middleware.Options{Actions: describe, Logger: slog.New(slog.DiscardHandler)})
	testkit.Must(t, err)
	server := httptest.NewUnstartedServer(
		limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "shop") })),
	)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(server.Close)
	m := MeterAt(t.Context(), n.Addr("http"), n.Addr("health"), Client)
	Check(t, m, Variations(), func(v Variation) (int, error) {
		v.Lines = append(v.Lines, "X-Forwarded-For: "+Client)
		return Send(server.Listener.Addr().String(), v.Direct())
	})
}
