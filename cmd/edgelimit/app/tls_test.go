package app

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Who trusts a node that speaks TLS alone, and shows a certificate, can ask it, probe it and lift a ban.
func TestCommandsOverTLS(t *testing.T) {
	ca, stranger := testkit.NewAuthority(t, "ca"), testkit.NewAuthority(t, "stranger")
	server, client := ca.Issue(t, "server"), ca.Issue(t, "client")
	cfg := node.DefaultConfig()
	cfg.HTTP, cfg.Health, cfg.Admin = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.Logger = slog.New(slog.DiscardHandler)
	for _, name := range []string{"http", "health", "admin"} {
		cfg.TLS[name] = node.ListenerTLS{CertFile: server.CertFile, KeyFile: server.KeyFile, ClientCAFile: ca.CertFile}
	}
	n, err := node.New(cfg)
	testkit.Must(t, err)
	testkit.Background(t, n.Run)
	eventually(t, "ready", func() bool { return n.Ready() == nil })
	trusting := []string{"--ca-file", ca.CertFile}
	known := append([]string{"--cert-file", client.CertFile, "--key-file", client.KeyFile}, trusting...)
	ask := func(listener string, flags []string, args ...string) result {
		args = append([]string{args[0], "--url", "https://" + n.Addr(listener)}, append(flags, args[1:]...)...)
		return edgelimit(t, args...)
	}
	check := []string{"check", "--rule", "per_ip", "--identity", "192.0.2.1"}
	ask("http", known, check...).says(t, 0, "allowed by per_ip")
	ask("http", append(known, "--server-name", "localhost"), check...).says(t, 0, "allowed by per_ip")
	ask("http", trusting, check...).says(t, 2, "certificate required", "show one with --cert-file and --key-file")
	ask("http", nil, check...).says(t, 2, "unknown authority", "trust who signed it with --ca-file")
	ask("http", []string{"--ca-file", stranger.CertFile}, check...).says(t, 2, "unknown authority", "--ca-file")
	ask("http", append(known, "--server-name", "other.test"), check...).says(t, 2, "not other.test", "--server-name")
	for _, url := range []string{"http://" + n.Addr("http"), n.Addr("http")} {
		edgelimit(t, append([]string{check[0], "--url", url}, check[1:]...)...).
			says(t, 2, "EOF", "use https:// and --ca-file if the node speaks TLS")
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	edgelimit(t, "health", "--url", strings.Replace(plain.URL, "http", "https", 1)).
		says(t, 1, "the node does not speak TLS there: use http://")
	ask("health", known, "health").says(t, 0, "ready")
	ask("health", trusting, "health").says(t, 1, "no answer")
	edgelimit(t, append([]string{"bans", "remove", "per_ip", "192.0.2.1", "--url", "https://" + n.Addr("admin")},
		known...)...).
		says(t, 2, "no rule that this meets has a ban")
	edgelimit(t, append([]string{"health", "--url", "http://" + n.Addr("health")}, trusting...)...).
		says(t, 2, "--url http://", "are for https://")
	edgelimit(t, "health", "--url", "http://"+n.Addr("health")).says(t, 1, "no answer")
	ask("health", []string{"--cert-file", client.CertFile}, "health").says(t, 2, "--cert-file and --key-file", "both")
	ask("health", []string{"--ca-file", "missing.pem"}, "health").says(t, 2, "--ca-file", "missing.pem")
}
