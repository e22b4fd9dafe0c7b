package node

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const sharedRules = `
domain: test
descriptors:
  - {key: client, rate_limit: {name: per_client, window: 1h, requests_per_unit: 100000}}
  - key: closed
    rate_limit: {name: closed, window: 1h, requests_per_unit: 60,
      consistency: strict, home_region: home, on_failure: closed}
  - key: local
    rate_limit: {name: local, window: 1h, requests_per_unit: 60, algorithm: token_bucket,
      consistency: strict, home_region: home, on_failure: local}
  - {key: own, rate_limit: {name: own, window: 1h, requests_per_unit: 60, consistency: strict, scope: region}}
`

// strictly is a node of a region that decides in a Redis.
func strictly(t *testing.T, region string, own, home *regionstest.Server) *running {
	cfg := withListeners(quiet(sharedRules))
	cfg.Region, cfg.Redis.URL = region, "redis://"+own.Addr()
	cfg.Strict.Redis = map[string]Redis{"home": {URL: "redis://" + home.Addr()}}
	cfg.Strict.MinTimeout, cfg.Strict.MaxTimeout = 5*time.Second, 5*time.Second // the machine may be busy
	return launch(t, cfg).ready(t)
}

// Nodes of two regions race for limits in one Redis; it goes away and comes back.
func TestStrictRulesInRedis(t *testing.T) {
	home, far := regionstest.StartRedis(t), regionstest.StartRedis(t)
	nodes := []*running{strictly(t, "home", home, home), strictly(t, "far", far, home)}
	for key, want := range map[string]int64{"closed": 60, "own": 120} {
		var admitted atomic.Int64
		var all sync.WaitGroup
		for g := range 8 {
			all.Go(func() {
				for range 30 {
					req := ask(by("client", "v"), by(key, "v"))
					if layers, err := nodes[g%2].Decide(t.Context(), &req, nil); err != nil {
						t.Error(err)
					} else if counters.VerdictOf(layers).Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		all.Wait()
		if admitted.Load() != want {
			t.Errorf("%s: %d admitted, want %d", key, admitted.Load(), want)
		}
	}
	decide := func(n *running, key, who string) Decision { return take(t, n.Node, ask(by(key, who))) }
	for range 20 {
		decide(nodes[1], "local", "w")
	}
	far.Pause() // the own region's Redis has no say on rules of another home
	if d := decide(nodes[1], "closed", "x"); !d.Allowed || d.Degraded {
		t.Errorf("without the own Redis: %+v", d)
	}
	far.Resume()
	home.Pause()
	began := time.Now()
	if d := decide(nodes[1], "closed", "x"); d.Allowed || !d.Failed || !d.Degraded {
		t.Errorf("closed, without its Redis: %+v", d)
	}
	if took := time.Since(began); took > 3*nodes[1].cfg.Strict.MaxTimeout {
		t.Errorf("it took %v", took)
	}
	if d := decide(nodes[1], "local", "w"); !d.Allowed || d.Failed || !d.Degraded || d.Remaining != 39 {
		t.Errorf("local, without its Redis: %+v", d)
	}
	if d := decide(nodes[1], "own", "x"); !d.Allowed || d.Degraded {
		t.Errorf("by another Redis: %+v", d)
	}
	if status, body := get(t, nodes[1].Addr("health"), "/readyz"); status != http.StatusOK ||
		!strings.Contains(body, "strict rules of region home") {
		t.Errorf("/readyz: %d %s", status, body)
	}
	home.Resume()
	healed := time.Now()
	testkit.Eventually(t, "decisions are strict again", func() bool {
		return !decide(nodes[1], "closed", "y").Degraded
	})
	if took := time.Since(healed); took > 3*time.Second { // go run ./testnet strict holds it to one
		t.Errorf("decisions were strict again after %v", took)
	}
	_, series := scrape(t, nodes[1].Addr("health"))
	for name, least := range map[string]float64{"edgelimit_strict_calls_total home_region=home": 100,
		"edgelimit_strict_failed_calls_total home_region=home":         1,
		"edgelimit_strict_fallbacks_total home_region=home":            2,
		"edgelimit_strict_passed_without_store_total home_region=home": 1,
		"edgelimit_strict_call_seconds home_region=far outcome=ok":     100} {
		if series[name] < least {
			t.Errorf("%s is %v", name, series[name])
		}
	}
	if slots := nodes[0].Slots(); len(slots) == 0 {
		t.Error("nothing is replicated for rules that may go local")
	}
}

// A program's rules may need a Redis that the node does not know; files that do are refused, and the last good ones
// stay.
func TestStrictRulesWithoutTheirRedis(t *testing.T) {
	path := write(t, "rules.yaml", perClient)
	cfg := withListeners(quiet(""))
	cfg.Rules, cfg.RuleSet = []string{path}, nil
	n := launch(t, cfg).ready(t)
	n.SetRules(ruleSet(sharedRules))
	if !n.warned["rule closed (and 2 more) is strict, and this node does not know the Redis that decides: "+
		"on_failure does; set redis.url or strict.redis"] {
		t.Errorf("warned of %v", n.warned)
	}
	if d := take(t, n.Node, ask(by("closed", "v"))); d.Allowed || !d.Failed {
		t.Errorf("%+v", d)
	}
	writeFile(t, path, sharedRules)
	n.Reload()
	testkit.Eventually(t, "the rules are refused", func() bool { _, failed := n.loads.counts(); return failed == 1 })
	if d, err := n.Take(t.Context(), Request{Rule: "per_client", Identity: "v"}); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestStrictConfig(t *testing.T) {
	const local = "redis://127.0.0.1:6379"
	for want, change := range map[string]func(*Config){
		"": func(c *Config) { c.Strict.Redis["us"] = Redis{URL: local} },
		"strict.min_timeout: 249ms, want 250ms to 10s": func(c *Config) {
			c.Strict.MinTimeout = 249 * time.Millisecond
		},
		"strict.max_timeout: 11s, want strict.min_timeout (250ms) to 10s": func(c *Config) {
			c.Strict.MaxTimeout = 11 * time.Second
		},
		"strict.max_timeout: 1s, want strict.min_timeout (3s) to 10s": func(c *Config) {
			c.Strict.MinTimeout, c.Strict.MaxTimeout = 3*time.Second, time.Second
		},
		"strict.redis.us.url is missing": func(c *Config) { c.Strict.Redis["us"] = Redis{} },
		"strict.redis.us: min_fill and min_window are for": func(c *Config) {
			c.Strict.Redis["us"] = Redis{URL: local, MinFill: 0.1}
		},
		"strict.redis.us.url: a Redis beyond loopback needs a key file": func(c *Config) {
			c.Strict.Redis["us"] = Redis{URL: "redis://10.0.0.1:6379"}
		},
		"strict.redis.us: settings for TLS, but the URL does not ask for it": func(c *Config) {
			c.Strict.Redis["us"] = Redis{URL: local, CAFile: "ca.pem"}
		},
		"want a name of 1 to": func(c *Config) { c.Strict.Redis[""] = Redis{URL: local} },
	} {
		cfg := quiet(perClient)
		change(&cfg)
		if err := cfg.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	cfg := quiet(perClient)
	cfg.Redis.URL = "redis://127.0.0.1:1"
	cfg.Strict.Redis = map[string]Redis{"us": {URL: "redis://127.0.0.1:2"}}
	if known := strings.Join(cfg.strictRegions(), " "); known != "here us" {
		t.Errorf("known are %q", known)
	}
	if r, _, _ := cfg.strictRedis("here"); r.URL != cfg.Redis.URL {
		t.Errorf("the own region's is %v", r)
	}
	cfg.Strict.Redis["here"] = Redis{URL: "redis://127.0.0.1:3"}
	if r, _, _ := cfg.strictRedis("here"); r.URL != cfg.Redis.URL {
		t.Errorf("in a list that all nodes have, the own region's is %v", r)
	}
	cfg.Redis.URL = ""
	if r, _, _ := cfg.strictRedis("here"); r.URL != "redis://127.0.0.1:3" {
		t.Errorf("without another, the own region's is %v", r)
	}
}
