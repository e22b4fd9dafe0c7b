package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
)

// injected is what the flags make of a node's configuration, and what is logged.
func injected(t *testing.T, args ...string) (cfg node.Config, said string, err error) {
	t.Helper()
	var text bytes.Buffer
	outer := parsed(t, func(c *cli.Context) error {
		if cfg, err = serveConfig(c); err == nil {
			err = injectFaults(c, &cfg, slog.New(slog.NewTextHandler(&text, nil)))
		}
		return nil
	}, "serve", args...)
	if outer != nil {
		t.Fatal(outer)
	}
	return cfg, text.String(), err
}

func TestInjectedFaultsAreAnnounced(t *testing.T) {
	cfg, said, err := injected(t, "--gossip-wan", "127.0.0.1:0", "--inject-wan-delay", "40ms", "--inject-wan-jitter", "10ms", "--inject-wan-loss", "0.01")
	if err != nil || cfg.WrapTransport == nil {
		t.Errorf("no transport is wrapped: %v", err)
	}
	for _, part := range []string{"level=WARN", "FAULT INJECTION", "delay=40ms", "jitter=10ms", "loss=0.01"} {
		if !strings.Contains(said, part) {
			t.Errorf("it does not say %q, but %q", part, said)
		}
	}
}

func TestNothingIsInjectedUnasked(t *testing.T) {
	for _, args := range [][]string{nil, {"--inject-wan-delay", "0s", "--inject-wan-loss", "0"}} {
		if cfg, said, err := injected(t, args...); err != nil || cfg.WrapTransport != nil || said != "" {
			t.Errorf("%q: wrapped %v, said %q, %v", args, cfg.WrapTransport != nil, said, err)
		}
	}
}

func TestInjectedByVariables(t *testing.T) {
	t.Setenv("EDGELIMIT_GOSSIP_WAN", "127.0.0.1:0")
	t.Setenv("EDGELIMIT_INJECT_WAN_DELAY", "") // as compose files leave it
	t.Setenv("EDGELIMIT_INJECT_WAN_LOSS", "0.5")
	if cfg, said, err := injected(t); err != nil || cfg.WrapTransport == nil || !strings.Contains(said, "loss=0.5") {
		t.Errorf("wrapped %v, said %q, %v", cfg.WrapTransport != nil, said, err)
	}
}
