package node

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// sharing is a node without peers whose region has a Redis.
func sharing(redis *regionstest.Server, id string) Config {
	cfg := withListeners(quiet(perClient))
	cfg.NodeID, cfg.Redis.URL = id, "redis://"+redis.Addr()
	return cfg
}

// What a node admitted outlives it in the Redis of its region, and nodes that know each other by it alone share it.
func TestCountsOutliveTheNode(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	first := launch(t, sharing(redis, "a")).ready(t)
	takeSome(t, first.Node, "per_client", "x", 200)
	testkit.Must(t, first.stop())
	second := launch(t, sharing(redis, "b")).ready(t)
	if got := spent(t, second.Node, "per_client", "x"); got != 200 {
		t.Errorf("a node that is ready counts %d of the 200 that another one left", got)
	}
	again := launch(t, sharing(redis, "a")).ready(t)
	takeSome(t, again.Node, "per_client", "x", 100)
	testkit.Eventually(t, "what the other was told", func() bool {
		takeSome(t, second.Node, "per_client", "x", 1) // who has nothing to tell is not told either
		return spent(t, second.Node, "per_client", "x") > 300
	})
	testkit.Eventually(t, "a word of the other", func() bool {
		takeSome(t, again.Node, "per_client", "x", 1)
		takeSome(t, second.Node, "per_client", "x", 1)
		return strings.Contains(fmt.Sprint(second.Status().Summary), "another node counts in the Redis of region")
	})
}

// Counts far below their limit are not worth a write; what rises once they are no more, is.
func TestSmallCountsStayHome(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	n := launch(t, sharing(redis, "a")).ready(t)
	takeSome(t, n.Node, "per_client", "small", 49)
	takeSome(t, n.Node, "per_client", "large", 50)
	testkit.Eventually(t, "a key in Redis", func() bool { return redis.Do("DBSIZE") != "0" })
	testkit.Must(t, n.stop())
	cfg := sharing(redis, "b")
	cfg.Redis.MinFill = 0
	second := launch(t, cfg).ready(t)
	if small, large := spent(t, second.Node, "per_client", "small"),
		spent(t, second.Node, "per_client", "large"); small != 0 ||
		large != 50 {
		t.Errorf("of 49 %d were told, of 50 %d", small, large)
	}
	takeSome(t, second.Node, "per_client", "other", 1)
	testkit.Must(t, second.stop())
	if got := spent(t, launch(t, sharing(redis, "c")).ready(t).Node, "per_client", "other"); got != 1 {
		t.Errorf("with min_fill 0, %d of 1 was told", got)
	}
}

// A Redis that hangs is left alone within a second, changes no decision, and gets everything when it is back.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	n := launch(t, sharing(redis, "a")).ready(t)
	takeSome(t, n.Node, "per_client", "x", 100)
	state := func() float64 {
		_, series := scrape(t, n.Addr("health"))
		return series["edgelimit_store_breaker_state"]
	}
	testkit.Eventually(t, "calls of the store", func() bool {
		_, series := scrape(t, n.Addr("health"))
		return series["edgelimit_store_call_seconds outcome=ok"] > 0 && series["edgelimit_store_pending_slots"] == 0
	})
	redis.Pause()
	testkit.Eventually(t, "the breaker opens", func() bool {
		takeSome(t, n.Node, "per_client", "x", 1)
		return state() != 0
	})
	if n.Ready() != nil {
		t.Errorf("a node whose Redis hangs is not ready: %v", n.Ready())
	}
	if got := takeSome(t, n.Node, "per_client", "y", 1001); got != 1000 {
		t.Errorf("%d of a limit of 1000 admitted", got)
	}
	redis.Resume()
	testkit.Eventually(t, "everything is told", func() bool {
		_, series := scrape(t, n.Addr("health"))
		return series["edgelimit_store_breaker_state"] == 0 && series["edgelimit_store_pending_slots"] == 0
	})
	if got := spent(t, launch(t, sharing(redis, "b")).ready(t).Node, "per_client", "y"); got != 1000 {
		t.Errorf("%d of 1000 were told", got)
	}
}

// A Redis that is down when the node starts delays nothing for long, and is used once it is there.
func TestRedisComesLater(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	redis.Kill()
	var book testkit.Log
	cfg := sharing(redis, "a")
	cfg.Logger = book.Logger()
	n := launch(t, cfg).ready(t)
	if !book.HasLine("WARN", "store could not be read") {
		t.Errorf("the log does not say that Redis is down:\n%s", book.String())
	}
	takeSome(t, n.Node, "per_client", "x", 300)
	redis.Restart(regionstest.Empty)
	testkit.Eventually(t, "a key in Redis", func() bool { return redis.Do("DBSIZE") != "0" })
}

// A Redis that others can reach needs a key file: without one everybody knows the secret of the hashes that lie there.
func TestRedisBeyondLoopbackNeedsAKeyFile(t *testing.T) {
	for url, needed := range map[string]bool{
		"redis://10.0.0.1": true, "redis://redis:6379": true, "rediss://[2001:db8::1]:6379": true,
		"redis+cluster://127.0.0.1,10.0.0.1": true,
		"redis+sentinel://10.0.0.1/main":     true, "redis://127.0.0.1": false, "redis://localhost:6379": false,
		"redis://:p@[::1]": false,
	} {
		cfg := DefaultConfig()
		cfg.NodeID, cfg.Redis.URL = "a", url
		err := cfg.Validate()
		if (err != nil) != needed || needed && !strings.Contains(err.Error(), "edgelimit keygen --out") {
			t.Errorf("%s without a key file: %v", url, err)
		}
		cfg.Gossip.KeyFile = "k"
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s with a key file: %v", url, err)
		}
	}
}

// A configuration that is printed or logged shows no password.
func TestRedisShowsNoPassword(t *testing.T) {
	for _, url := range []string{"redis://edge:horse@127.0.0.1", "redis://:horse@127.0.0.1",
		"redis://ho%zz:horse@127.0.0.1", "horse"} {
		var book testkit.Log
		cfg := DefaultConfig()
		cfg.Redis.URL = url
		book.Logger().Info("settings", "redis", cfg.Redis, "all", cfg)
		for _, text := range []string{fmt.Sprintf("%v %+v %#v %s", cfg.Redis, cfg.Redis, cfg.Redis, cfg.Redis),
			fmt.Sprintf("%+v", cfg), book.String()} {
			if strings.Contains(text, "horse") {
				t.Errorf("%s shows as %s", url, text)
			}
		}
	}
	if got := (Redis{URL: "redis://edge:horse@127.0.0.1"}).String(); got != "redis://edge:***@127.0.0.1:6379" {
		t.Error(got)
	}
}

func TestRedisSettings(t *testing.T) {
	for _, test := range []struct {
		set  Redis
		want []string // parts of the error; none: valid
	}{
		{Redis{}, nil},
		{Redis{URL: "redis://10.0.0.1"}, nil},
		{Redis{URL: "rediss+sentinel://a,b/main", CAFile: "ca.pem", PasswordFile: "p", MinFill: 0.5,
			MinWindow: time.Minute}, nil},
		{Redis{URL: "10.0.0.1:6379"}, []string{"redis.url", "redis://host:port"}},
		{Redis{URL: "http://10.0.0.1:6379"}, []string{"redis.url", `"http"`}},
		{Redis{CAFile: "ca.pem"}, []string{"without redis.url", "--redis"}},
		{Redis{PasswordFile: "p"}, []string{"without redis.url"}},
		{Redis{URL: "redis://edge@a", PasswordFile: "p"}, nil},
		{Redis{URL: "redis://edge@a"}, []string{"redis.password_file"}},
		{Redis{URL: "redis://10.0.0.1", CAFile: "ca.pem"}, []string{"TLS", "rediss"}},
		{Redis{URL: "redis://10.0.0.1", ServerName: "x"}, []string{"TLS", "rediss"}},
		{Redis{URL: "rediss://10.0.0.1", CertFile: "c"}, []string{"redis.cert_file and key_file"}},
		{Redis{MinFill: 1, MinWindow: -1}, []string{"min_fill: 1", "min_window: -1ns"}},
		{Redis{MinFill: -0.1}, []string{"min_fill: -0.1"}},
	} {
		cfg := DefaultConfig()
		cfg.NodeID, cfg.Redis, cfg.Gossip.KeyFile = "a", test.set, "k"
		err := cfg.Validate()
		if (err == nil) != (test.want == nil) {
			t.Errorf("%+v: %v", test.set, err)
		}
		for _, part := range test.want {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%+v: %v does not say %q", test.set, err, part)
			}
		}
	}
}

// Files of TLS that cannot be used keep the node from starting, with the setting that names them.
func TestRedisTLSFiles(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for setting, set := range map[string]Redis{
		"redis.ca_file: ":   {URL: "rediss://127.0.0.1:1", CAFile: missing},
		"redis.cert_file: ": {URL: "rediss://127.0.0.1:1", CertFile: missing, KeyFile: missing},
	} {
		cfg := quiet(perClient)
		set.MinWindow = time.Minute
		cfg.Redis = set
		if n, err := New(cfg); err == nil || !strings.Contains(err.Error(), setting) ||
			!strings.Contains(err.Error(), missing) {
			t.Errorf("%s: %v, %v", setting, n, err)
		}
	}
}

// The password comes from its file, and a file that is not there is named.
func TestRedisPasswordFile(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t, "--requirepass", "open sesame")
	cfg := sharing(redis, "a")
	cfg.Redis.PasswordFile = filepath.Join(t.TempDir(), "password")
	writeFile(t, cfg.Redis.PasswordFile, "open sesame\n")
	n := launch(t, cfg).ready(t)
	takeSome(t, n.Node, "per_client", "x", 300)
	testkit.Eventually(t, "a call that succeeded", func() bool {
		_, series := scrape(t, n.Addr("health"))
		return series["edgelimit_store_call_seconds outcome=ok"] > 0
	})
	cfg.Redis.PasswordFile = "no/such/file"
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "no/such/file") {
		t.Errorf("New returned %v", err)
	}
}

// Redis is called as often for an identity that is asked for 50,000 times a second on two nodes as for one that is
// asked for 50 times.
func TestRedisCommandsPerSecond(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	var nodes []*running
	for _, id := range []string{"a", "b"} {
		cfg := sharing(redis, id)
		cfg.RuleSet = ruleSet(strings.Replace(perClient, "requests_per_unit: 1000", "requests_per_unit: 100000000", 1))
		cfg.Redis.MinFill = 0
		nodes = append(nodes, launch(t, cfg).ready(t))
	}
	// during is how many commands a second reach Redis while every tick brings so many requests to each node.
	during := func(identity string, tick time.Duration, requests int) float64 {
		takeSome(t, nodes[0].Node, "per_client", identity, 1)
		before, began := commands(t, redis), time.Now()
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		taken := 0
		for time.Since(began) < 5*time.Second {
			<-ticker.C
			for _, n := range nodes {
				taken += takeSome(t, n.Node, "per_client", identity, requests)
			}
		}
		took := time.Since(began).Seconds()
		perSecond := float64(commands(t, redis)-before) / took
		t.Logf("%.0f requests/s: %.1f commands/s", float64(taken)/took, perSecond)
		return perSecond
	}
	few, many := during("x", 40*time.Millisecond, 1), during("y", time.Millisecond, 25)
	if few < 1 || many > 2*few {
		t.Errorf("%.1f commands/s for few requests, %.1f for many", few, many)
	}
}

// commands is how many commands Redis has had of clients.
func commands(t *testing.T, redis *regionstest.Server) (n int) {
	t.Helper()
	for name, calls := range redis.Calls() {
		if name == "evalsha" { // the commands that the script runs are counted beside it
			n += calls
		}
	}
	return n
}
