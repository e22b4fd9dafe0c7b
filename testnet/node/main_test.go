package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/cmd/edgelimit/app"
	"github.com/edgelimit/edgelimit/node"
)

// injected returns what the flags change in a node's configuration, what is logged, and the error.
func injected(t *testing.T, args ...string) (cfg node.Config, log string, err error) {
	t.Helper()
	var text, stderr bytes.Buffer
	testnetApp := app.New(faults())
	testnetApp.ErrWriter = &stderr
	testnetApp.Command("serve").Action = func(c *cli.Context) error {
		cfg.Gossip.WAN = c.String("gossip-wan")
		cfg.Logger = slog.New(slog.NewTextHandler(&text, nil))
		err = injectFaults(c, &cfg)
		return nil
	}
	if code := app.Run(t.Context(), testnetApp, append([]string{"edgelimit", "serve"}, args...)); code != 0 {
		t.Fatal(stderr.String())
	}
	return cfg, text.String(), err
}

func TestInjectedFaultsAreLogged(t *testing.T) {
	cfg, log, err := injected(t, "--gossip-wan", "127.0.0.1:0", "--inject-wan-delay", "40ms",
		"--inject-wan-jitter", "10ms", "--inject-wan-loss", "0.01")
	if err != nil || cfg.WrapTransport == nil {
		t.Errorf("no transport is wrapped: %v", err)
	}
	for _, part := range []string{"level=WARN", "FAULT INJECTION", "delay=40ms", "jitter=10ms", "loss=0.01"} {
		if !strings.Contains(log, part) {
			t.Errorf("the log lacks %q: %q", part, log)
		}
	}
}

func TestNothingIsInjectedByDefault(t *testing.T) {
	for _, args := range [][]string{nil, {"--inject-wan-delay", "0s", "--inject-wan-loss", "0"}} {
		if cfg, log, err := injected(t, args...); err != nil || cfg.WrapTransport != nil || log != "" {
			t.Errorf("%q: wrapped %v, logged %q, %v", args, cfg.WrapTransport != nil, log, err)
		}
	}
}

func TestInjectedByVariables(t *testing.T) {
	t.Setenv("EDGELIMIT_GOSSIP_WAN", "127.0.0.1:0")
	t.Setenv("EDGELIMIT_INJECT_WAN_DELAY", "") // as compose files leave it
	t.Setenv("EDGELIMIT_INJECT_WAN_LOSS", "0.5")
	if cfg, log, err := injected(t); err != nil || cfg.WrapTransport == nil || !strings.Contains(log, "loss=0.5") {
		t.Errorf("wrapped %v, logged %q, %v", cfg.WrapTransport != nil, log, err)
	}
}

// A node with invalid faults does not start: serve itself reports them.
func TestInvalidFaults(t *testing.T) {
	for _, test := range []struct{ args, want []string }{
		{[]string{"--gossip-wan", "127.0.0.1:0", "--inject-wan-delay", "-1ms", "--inject-wan-loss", "1.5"},
			[]string{"--inject-wan", "latency is -1ms", "loss is 1.5"}},
		{[]string{"--gossip-wan", "127.0.0.1:0", "--inject-wan-jitter", "-1ms"}, []string{"jitter is -1ms"}},
		{[]string{"--inject-wan-delay", "40ms"}, []string{"not on the WAN", "--gossip-wan"}},
		{[]string{"--inject-wan-loss", "much"},
			[]string{"--inject-wan-loss much: want a number such as 0.5; see edgelimit serve --help"}},
	} {
		var stderr bytes.Buffer
		testnetApp := app.New(faults())
		testnetApp.ErrWriter = &stderr
		code := app.Run(t.Context(), testnetApp, append([]string{"edgelimit", "serve"}, test.args...))
		if code != 2 {
			t.Errorf("%q: exit status %d", test.args, code)
		}
		for _, part := range test.want {
			if !strings.Contains(stderr.String(), part) {
				t.Errorf("%q: the error lacks %q: %q", test.args, part, stderr.String())
			}
		}
	}
}
