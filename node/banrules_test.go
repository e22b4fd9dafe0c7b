package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/bans"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/node/rulestore"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Node and kernel agree after any change of rules, and whoever is listed can be let out.
func TestBansOfChangedRules(t *testing.T) {
	const before = "domain: test\ndescriptors:\n  - key: remote_address\n    allow: [203.0.113.9]\n    rate_limit: " +
		"{name: per_ip, window: 10s, requests_per_unit: 3, ban: 24h, export: address}\n"
	for name, test := range map[string]struct{ old, new, exported string }{
		"same":    {"", "", "192.0.2.7 198.51.100.0/24 2001:db8:1:2::/64"},
		"length":  {"ban: 24h", "ban: 1m", "198.51.100.0/24"},
		"shadow":  {"allow: [203.0.113.9]", "shadow_mode: true", ""},
		"scope":   {"export:", "scope: node, export:", ""},
		"ipv6":    {"allow:", "ipv6_prefix: 56\n    allow:", "198.51.100.0/24"},
		"allowed": {"203.0.113.9", "192.0.2.0/28, 198.51.100.1", "2001:db8:1:2::/64"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, file := quiet(before), filepath.Join(t.TempDir(), "f")
			cfg.Bans = bans.Config{Exports: []bans.Export{{Format: "haproxy", File: file}}}
			n := launch(t, cfg).ready(t)
			exports := func(want string) {
				t.Helper()
				testkit.Eventually(t, "the export of "+want, func() bool {
					text, _ := os.ReadFile(file)
					var addresses []string
					for line := range strings.Lines(string(text)) {
						if !strings.HasPrefix(line, "#") {
							addresses = append(addresses, strings.TrimSpace(line))
						}
					}
					slices.Sort(addresses)
					return strings.Join(addresses, " ") == want
				})
			}
			takeSome(t, n.Node, "per_ip", "192.0.2.7", 4)
			takeSome(t, n.Node, "per_ip", "2001:db8:1:2::1", 4)
			addBan(t, n.Node, "per_ip", "198.51.100.0/24", time.Hour)
			exports("192.0.2.7 198.51.100.0/24 2001:db8:1:2::/64")
			n.SetRules(ruleSet(strings.Replace(before, test.old, test.new, 1)))
			exports(test.exported)
			for _, id := range []string{"192.0.2.7", "198.51.100.9", "2001:db8:1:2::1"} {
				blocked := strings.Contains(test.exported, id[:7])
				if d := peekAt(t, n.Node, "per_ip", id); blocked && !d.Banned {
					t.Errorf("%s is exported, and the node decides %+v", id, d)
				}
			}
			for _, id := range []string{"192.0.2.7", "198.51.100.0/24", "2001:db8:1:2::/64"} {
				if _, err := n.RemoveBans(BanRequest{Rule: "per_ip", Identity: id}, Operator{}); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
			if left := listed(t, n.Node, ""); len(left) != 0 {
				t.Errorf("still listed: %v", left)
			}
			exports("")
		})
	}
}

// What a node in shadow mode does not deny, the kernel does not either; nor whom a list allows.
func TestExportsOfShadowAndAllowed(t *testing.T) {
	cfg, file := quiet(exporting), filepath.Join(t.TempDir(), "f")
	cfg.Bans = bans.Config{Exports: []bans.Export{{Format: "haproxy", File: file}}}
	n := launch(t, cfg).ready(t)
	has := func(text string) bool { b, _ := os.ReadFile(file); return strings.Contains(string(b), text) }
	if w := addBan(t, n.Node, "per_ip", "203.0.113.0/24", time.Hour).Warnings; len(w) != 1 ||
		!strings.Contains(w[0], "allow list") {
		t.Errorf("a prefix over an allowed address: %q", w)
	}
	addBan(t, n.Node, "per_ip", "198.51.100.0/24", time.Hour)
	testkit.Eventually(t, "the ban", func() bool { return has("198.51.100.0/24") })
	if has("203.0.113") {
		t.Error("an allowed address is exported")
	}
	n.Shadow(true)
	testkit.Eventually(t, "no ban", func() bool { return !has("198.51.100.0/24") })
	n.Shadow(false)
	testkit.Eventually(t, "the ban again", func() bool { return has("198.51.100.0/24") })
}

// A node that starts again while Redis is away does not first empty what it exports.
func TestExportsAwaitTheStore(t *testing.T) {
	t.Parallel()
	redis, file := regionstest.StartRedis(t), filepath.Join(t.TempDir(), "f")
	config := func(id string) Config {
		cfg := sharing(redis, id)
		cfg.RuleSet = ruleSet(exporting)
		return cfg
	}
	n := launch(t, config("a")).ready(t)
	takeSome(t, n.Node, "per_ip", "192.0.2.7", 4)
	testkit.Must(t, n.stop())
	redis.Pause()
	cfg := config("b")
	cfg.Bans = bans.Config{Exports: []bans.Export{{Format: "haproxy", File: file,
		Command: []string{"cp", file, file + ".first"}}}}
	launch(t, cfg).ready(t)
	redis.Resume()
	var first []byte
	testkit.Eventually(t, "an export", func() bool { first, _ = os.ReadFile(file + ".first"); return len(first) > 0 })
	if !strings.Contains(string(first), "192.0.2.7") {
		t.Errorf("the first export is %q", first)
	}
}

// silent never answers.
type silent struct{}

func (silent) Warm(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// late answers after some tries.
type late struct{ tries int }

func (f *late) Warm(context.Context) error {
	if f.tries--; f.tries > 0 {
		return errors.New("not yet")
	}
	return nil
}

// The first export waits for peers and the store, and not for ever; where it ends the wait, it says so.
func TestExportsDoNotWaitForEver(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		for want, missing := range map[time.Duration][]warmer{0: nil, 3 * time.Second: {&late{4}, &late{2}},
			maxExportWait: {silent{}, &late{2}}} {
			n, log, began := idle(t, exporting), new(testkit.Log), time.Now()
			n.log = log.Logger()
			n.awaitBans(t.Context(), missing)
			took, warned := time.Since(began), log.HasLine("bans are exported though")
			if took != want || warned != (want == maxExportWait) {
				t.Errorf("it waits for %v, want %v\n%s", took, want, log)
			}
		}
	})
}

// A node that starts again, with rules from Redis, does not first empty what it exports.
func TestExportsAwaitRules(t *testing.T) {
	t.Parallel()
	counts, from := regionstest.StartRedis(t), regionstest.StartRedis(t)
	text, err := rulestore.EncodeFiles([]rulefile.File{{Name: "r.yaml", Data: []byte(exporting)}})
	publishTo(t, from).put(rulestore.Rules, text, err)
	config := func(id string) (cfg Config, file string) {
		cfg, file = following(from, sharing(counts, id)), filepath.Join(t.TempDir(), "f")
		cfg.Bans = bans.Config{Exports: []bans.Export{{Format: "haproxy", File: file,
			Command: []string{"cp", file, file + ".first"}}}}
		return cfg, file
	}
	cfg, _ := config("a")
	n := launch(t, cfg).ready(t)
	takeSome(t, n.Node, "per_ip", "192.0.2.7", 4)
	testkit.Must(t, n.stop())
	cfg, file := config("b")
	launch(t, cfg)
	var first []byte
	testkit.Eventually(t, "an export", func() bool { first, _ = os.ReadFile(file + ".first"); return len(first) > 0 })
	if !strings.Contains(string(first), "192.0.2.7") {
		t.Errorf("the first export is %q", first)
	}
}
