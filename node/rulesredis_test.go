package node

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/node/rulestore"
	"github.com/edgelimit/edgelimit/node/status"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// following is a node whose rules come from a Redis.
func following(redis *regionstest.Server, cfg Config) Config {
	cfg.RuleSet, cfg.Rules = nil, []string{"redis://" + redis.Addr()}
	return cfg
}

// publisher is who publishes rules and overrides to the Redis of several regions.
type publisher struct {
	t      *testing.T
	stores []*rulestore.Store
	next   uint64
}

func publishTo(t *testing.T, servers ...*regionstest.Server) *publisher {
	t.Helper()
	p := &publisher{t: t}
	for _, redis := range servers {
		s, err := rulestore.Open(regions.DefaultRedisConfig(redis.Addr()))
		testkit.Must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		p.stores = append(p.stores, s)
	}
	return p
}

// put puts a text in force in each Redis, as a new version, which it returns.
func (p *publisher) put(k rulestore.Kind, text []byte, err error) uint64 {
	p.t.Helper()
	testkit.Must(p.t, err)
	d, err := rulestore.NewDocument(text, "test", "", time.Now())
	testkit.Must(p.t, err)
	p.next++
	d.Version.Version = p.next
	for _, s := range p.stores {
		testkit.Must(p.t, s.Follow(context.WithoutCancel(p.t.Context()), k, d))
	}
	return d.Version.Version
}

func (p *publisher) rules(specs ...string) uint64 {
	p.t.Helper()
	text := "domain: test\ndescriptors:\n"
	for _, spec := range specs {
		f := strings.Fields(spec)
		text += fmt.Sprintf("  - {key: %s, rate_limit: {name: %[1]s, requests_per_unit: %s, window: %s}}\n", f[0], f[1],
			f[2])
	}
	b, err := rulestore.EncodeFiles([]rulefile.File{{Name: "rules.yaml", Data: []byte(text)}})
	return p.put(rulestore.Rules, b, err)
}

// limits gives identities of rule a limits of their own in an hour, until a time.
func (p *publisher) limits(keys Keys, until time.Time, of map[string]uint64) uint64 {
	p.t.Helper()
	var all []rulestore.Limit
	for identity, most := range of {
		met, err := limited("a 10 1h").Match(&Request{Rule: "a", Identity: identity}, keys.Identity, nil)
		testkit.Must(p.t, err)
		all = append(all, rulestore.Limit{Rule: "test/a", Key: rulestore.Hex(uint64(met[0].Key)),
			Identity: rulestore.Hex(keys.Fingerprint()), Max: most, Window: "1h", Until: &until, Set: time.Now().UTC()})
	}
	b, err := rulestore.EncodeLimits(all)
	return p.put(rulestore.Limits, b, err)
}

func limitOf(t *testing.T, n *Node, identity string) uint64 {
	t.Helper()
	return take(t, n, Request{Rule: "a", Identity: identity, Peek: true}).Limit
}

// inForce waits until all nodes have a limit for an identity, and fails if that takes more than a second.
func inForce(t *testing.T, since time.Time, identity string, want uint64, nodes ...*running) {
	t.Helper()
	for _, n := range nodes {
		testkit.Eventually(t, fmt.Sprintf("%s has a limit of %d", n.cfg.NodeID, want),
			func() bool { return limitOf(t, n.Node, identity) == want })
	}
	if took := time.Since(since); took > time.Second {
		t.Errorf("a limit of %d is in force everywhere after %v", want, took)
	}
}

// An edit is in force on all nodes of two regions within a second, under load: no request fails, none is denied that
// both sets of rules admit, and no count is reset.
func TestRulesFromRedis(t *testing.T) {
	us, eu := regionstest.StartRedis(t), regionstest.StartRedis(t)
	p := publishTo(t, us, eu)
	p.rules("a 1000000 1h", "steady 1000 1h")
	var nodes []*running
	var join []string
	for i, of := range []struct {
		region string
		redis  *regionstest.Server
	}{{"us", us}, {"us", us}, {"eu", eu}, {"eu", eu}} {
		cfg := following(of.redis, gossiping(fmt.Sprint("n", i), of.region, join...))
		cfg.Health = "127.0.0.1:0"
		n := launch(t, cfg).ready(t)
		nodes, join = append(nodes, n), []string{"wan:" + n.Addr("wan")}
		if i%2 == 0 { // the next one is of the same region
			join = append(join, n.Addr("lan"))
		}
	}
	allMembers(t, nodes...)
	if got := takeSome(t, nodes[0].Node, "steady", "x", 600); got != 600 {
		t.Fatalf("%d of 600 are admitted", got)
	}
	stop := make(chan struct{})
	var asked, failed atomic.Int64
	var asking sync.WaitGroup
	for _, n := range nodes {
		asking.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				d, err := n.Take(context.Background(), Request{Rule: "a", Identity: fmt.Sprint(i % 100)})
				if asked.Add(1); err != nil || !d.Allowed {
					failed.Add(1)
				}
				if i%50 == 0 {
					time.Sleep(time.Millisecond) // a load, not all of the machine
				}
			}
		})
	}
	for i := range 5 {
		began := time.Now()
		p.rules(fmt.Sprintf("a %d 1h", 2_000_000+i), "steady 1000 1h")
		inForce(t, began, "x", uint64(2_000_000+i), nodes...)
	}
	began := time.Now()
	p.limits(loopbackKeys(), began.Add(time.Hour), map[string]uint64{"whale": 3_000_000})
	inForce(t, began, "whale", 3_000_000, nodes...)
	close(stop)
	asking.Wait()
	if failed.Load() > 0 || asked.Load() < 1000 {
		t.Errorf("of %d requests %d failed", asked.Load(), failed.Load())
	}
	for _, n := range nodes {
		testkit.Eventually(t, "the counts are everywhere",
			func() bool { return spent(t, n.Node, "steady", "x") >= 600 })
		if got := spent(t, n.Node, "steady", "x"); got != 600 {
			t.Errorf("%s counts %d of 600", n.cfg.NodeID, got)
		}
		testkit.Eventually(t, "no node lags", func() bool {
			_, series := scrape(t, n.Addr("health"))
			return series["edgelimit_peers_with_other_rules"] == 0 &&
				series["edgelimit_rules_version of=rules"] == 6 &&
				series["edgelimit_rules_stored_version of=rules"] == 6 &&
				series["edgelimit_rules_version of=limits"] == 7 && series["edgelimit_overrides"] == 1 &&
				series["edgelimit_rules_problems"] == 0
		})
	}
}

// A node waits for Redis to have rules; one that has a copy starts from it while Redis is away, and says so.
func TestRulesOfRedisThatIsAway(t *testing.T) {
	redis := regionstest.StartRedis(t)
	cfg := following(redis, quiet(""))
	cfg.RulesRedis.Dir, cfg.RulesRedis.Poll = filepath.Join(t.TempDir(), "copies"), 50*time.Millisecond
	n := launch(t, cfg)
	testkit.Eventually(t, "it says why it waits", func() bool {
		return strings.Contains(strings.Join(n.Degraded(), " "), "no rules have been published")
	})
	if n.Ready() == nil {
		t.Error("a node without rules is ready")
	}
	p := publishTo(t, redis)
	p.rules("a 10 1h")
	n.ready(t)
	testkit.Must(t, n.stop())
	redis.Kill()
	var log testkit.Log
	cfg.Logger = log.Logger()
	again := launch(t, cfg).ready(t)
	if limitOf(t, again.Node, "x") != 10 || !log.HasLine("WARN", "from the copy on disk") ||
		!strings.Contains(strings.Join(again.Degraded(), " "), "does not answer") {
		t.Errorf("%v: %s", again.Degraded(), log.String())
	}
	redis.Restart(regionstest.Empty)
	p.rules("a 20 1h")
	testkit.Eventually(t, "new rules are in force", func() bool { return limitOf(t, again.Node, "x") == 20 })
	testkit.Eventually(t, "all is well", func() bool { return len(again.Degraded()) == 0 })

	cfg.RulesRedis.Dir, cfg.StartWithoutRules = "", true
	redis.Kill()
	without := launch(t, cfg).ready(t)
	if reasons := strings.Join(without.Degraded(), " "); !strings.Contains(reasons, "no rules have been loaded yet") {
		t.Error(reasons)
	}
}

// An override holds at once, on the counts that there are, and ends on time without anybody's doing.
func TestOverridesInANode(t *testing.T) {
	redis := regionstest.StartRedis(t)
	p := publishTo(t, redis)
	p.rules("a 10 1h")
	n := launch(t, following(redis, quiet(""))).ready(t)
	if got := takeSome(t, n.Node, "a", "x", 12); got != 10 {
		t.Fatalf("%d of 12 are admitted, want 10", got)
	}
	p.limits(loopbackKeys(), time.Now().Add(2*time.Second), map[string]uint64{"x": 15, "blocked": 0})
	testkit.Eventually(t, "the override is in force", func() bool { return limitOf(t, n.Node, "x") == 15 })
	d := take(t, n.Node, Request{Rule: "a", Identity: "x"})
	if !d.Allowed || d.Limit != 15 || d.Remaining != 4 || d.Rule != "a" {
		t.Errorf("%+v", d)
	}
	if d := take(t, n.Node, Request{Rule: "a", Identity: "blocked"}); d.Allowed || d.Limit != 0 ||
		d.RetryAfter != counters.Never {
		t.Errorf("a limit of 0: %+v", d)
	}
	if got := limitOf(t, n.Node, "y"); got != 10 {
		t.Errorf("another identity has %d", got)
	}
	says := func() (found []status.Finding) {
		for _, f := range n.Status().Summary {
			if strings.HasPrefix(f.Text, "identities with limits of their own: rule a (2)") {
				found = append(found, f)
			}
		}
		return found
	}
	if found := says(); len(found) != 1 || found[0].Level != "info" ||
		!strings.Contains(found[0].Do, "edgelimit limits list") || n.Status().Health != status.Healthy {
		t.Errorf("while overrides are in force the status says %+v", n.Status().Summary)
	}
	testkit.Eventually(t, "the override has ended", func() bool { return limitOf(t, n.Node, "x") == 10 })
	if found := says(); len(found) > 0 {
		t.Errorf("of overrides that have ended it says %+v", found)
	}
	if take(t, n.Node, Request{Rule: "a", Identity: "x"}).Allowed {
		t.Error("the counts were reset")
	}
}

func TestRulesRedisConfig(t *testing.T) {
	for _, tt := range []struct {
		change func(*Config)
		says   string // nothing: valid
	}{
		{func(c *Config) { c.Rules = []string{"redis://a:1"} }, ""},
		{func(c *Config) { c.Rules = []string{"redis+cluster://a:1", "b:2"} }, ""},
		{func(c *Config) { c.Rules = []string{"redis://a:1", "/etc/rules.yaml"} }, "not from both"},
		{func(c *Config) { c.Rules = []string{"/etc/rules.yaml", "redis://a:1"} }, "not from both"},
		{func(c *Config) { c.Rules = []string{"redis://a:1", "b:2"} }, "rules: redis: 2 addresses"},
		{func(c *Config) { c.Rules = []string{"redis+x://a:1"} }, "rules: redis URL: unknown scheme"},
		{func(c *Config) { c.Rules = []string{"redis://u@a:1"} }, "rules_redis: the URL has a user without a password"},
		{func(c *Config) { c.Rules, c.RulesRedis.CAFile = []string{"redis://a:1"}, "ca" },
			"rules_redis: settings for TLS"},
		{func(c *Config) { c.RulesRedis.Dir = "/x" }, "rules name none"},
		{func(c *Config) { c.RulesRedis.Poll = 0 }, "rules_redis.poll"},
		{func(c *Config) { c.Rules, c.RulesXDS.Server = []string{"redis://a:1"}, "x:1" }, "rules_xds.server"},
	} {
		cfg := DefaultConfig()
		tt.change(&cfg)
		err := cfg.Validate()
		if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%q: %v, want %q", cfg.Rules, err, tt.says)
		}
	}
}
