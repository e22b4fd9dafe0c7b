package main

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// proxies starts a proxy in each region, as the compose file configures them, before shops that answer wrong passwords
// with 401. Without gossip none knows of the others.
func proxies(t *testing.T, gossip bool, rules string) (urls []string) {
	t.Helper()
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/login" && r.PostFormValue("password") != "right" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(shop.Close)
	var nodes []*node.Node
	for _, region := range []string{"us-east", "eu-west", "ap-south"} {
		cfg, err := node.ReadConfig("compose/proxy.yaml")
		if err != nil {
			t.Fatal(err)
		}
		cfg.NodeID, cfg.Region, cfg.Logger = region, region, slog.New(slog.DiscardHandler)
		cfg.HTTP, cfg.Health, cfg.Admin, cfg.Rules = "", "", "", []string{rules}
		cfg.Strict.Redis["us-east"] = node.Redis{URL: "redis://127.0.0.1:1"} // of rules that nobody asks for here
		cfg.Proxy.Listen, cfg.Proxy.Upstreams = "127.0.0.1:0", []string{shop.URL}
		if gossip {
			cfg.Gossip.LAN, cfg.Gossip.WAN = "127.0.0.1:0", "127.0.0.1:0"
			if len(nodes) > 0 {
				cfg.Gossip.Join = []string{"wan:" + nodes[0].Addr("wan")}
			}
		}
		n, err := node.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		testkit.Background(t, n.Run)
		testkit.Eventually(t, region+" is ready", func() bool { return n.Ready() == nil })
		nodes, urls = append(nodes, n), append(urls, "http://"+n.Addr("proxy"))
	}
	testkit.Eventually(t, "all know each other", func() bool {
		for _, n := range nodes {
			if gossip && len(n.Members()) != len(nodes)-1 {
				return false
			}
		}
		return true
	})
	return urls
}

// The command's check, on proxies in this process.
func TestLogins(t *testing.T) {
	l := logins{proxies(t, true, "compose/rules"), "alice", testkit.Patience}
	if _, err := l.try(t.Context()); err != nil {
		t.Error(err)
	}
	l.user = "bob"
	if err := l.expect(t.Context(), l.proxies[0], "wrong", http.StatusUnauthorized); err != nil {
		t.Errorf("somebody else: %v", err)
	}
}

// The check finds proxies that count apart, and right passwords that are counted.
func TestLoginsFinds(t *testing.T) {
	counted := filepath.Join(t.TempDir(), "rules.yaml")
	rule := "domain: edge\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 10}}]\n"
	if err := os.WriteFile(counted, []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, urls := range map[string][]string{
		"after 10 wrong passwords: ": proxies(t, false, "compose/rules"),
		"try 6: ":                    proxies(t, false, counted)[:1],
	} {
		l := logins{urls, "alice", time.Millisecond}
		if _, err := l.try(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestLoginsWantsProxies(t *testing.T) {
	e := withRedis()
	if _, err := invoke(t, e, "logins"); !errors.Is(err, cluster.ErrNotUp) {
		t.Errorf("error %v", err)
	}
	e.add("eu-west-1", "node", "eu-west", "running", "}")
	if _, err := invoke(t, e, "logins"); err == nil || !strings.Contains(err.Error(), "--with sidecar") {
		t.Errorf("error %v", err)
	}
}
