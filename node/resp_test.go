package node

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rlsapi"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// debtClasses is the number of classes of debts that a table has at most.
const debtClasses = 15

// One client that asks for 1,100 different limits of a year takes no room for them, and keeps nobody from others.
func TestAFloodOfLimits(t *testing.T) {
	n := launch(t, withRESP(quiet(perClient))).ready(t)
	c := redisClient(t, n, redis.Options{})
	const yearly = 365 * 24 * 3600
	throttle(t, c, "legit", 15, 30, 3600)
	before := n.table.Stats()
	for i := range 1100 {
		throttle(t, c, "flood", 15, i+1, yearly, 0)
	}
	if got := n.table.Stats(); got.Keys != before.Keys {
		t.Errorf("after peeks %+v", got)
	}
	for i := range 1100 {
		throttle(t, c, "flood", 15, i+1, yearly)
	}
	if got := len(n.debts.Limits()); got > debtClasses || n.table.Stats().Evicted != 0 {
		t.Errorf("after the flood %d classes, %+v", got, n.table.Stats())
	}
	if got := throttle(t, c, "legit", 15, 30, 3600); !slices.Equal(got[:3], []int64{0, 16, 14}) {
		t.Errorf("the limit from before the flood: %v", got)
	}
	if got := throttle(t, c, "other", 5, 10, 60); !slices.Equal(got[:3], []int64{0, 6, 5}) {
		t.Errorf("a new limit: %v", got)
	}
}

// withRESP adds a listener of the Redis protocol.
func withRESP(cfg Config) Config {
	cfg.RESP = "127.0.0.1:0"
	return cfg
}

// redisClient is a client of a node's that ends with the test.
func redisClient(t *testing.T, n *running, opt redis.Options) *redis.Client {
	t.Helper()
	opt.Addr, opt.MaxRetries = n.Addr("resp"), -1
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout = testkit.Patience, testkit.Patience, testkit.Patience
	c := redis.NewClient(&opt)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// throttle asks by CL.THROTTLE key max_burst count period quantity.
func throttle(t *testing.T, c *redis.Client, args ...any) []int64 {
	t.Helper()
	got, err := c.Do(t.Context(), append([]any{"CL.THROTTLE"}, args...)...).Int64Slice()
	testkit.Must(t, err)
	return got
}

func TestThrottle(t *testing.T) {
	n := launch(t, withRESP(withListeners(quiet(perClient)))).ready(t)
	c := redisClient(t, n, redis.Options{})
	if got := throttle(t, c, "user123", 15, 30, 60); !slices.Equal(got, []int64{0, 16, 15, -1, 2}) {
		t.Errorf("a new key: %v", got)
	}
	// The coarse time may be a little behind that of the request before: then two seconds and a bit, rounded up, are
	// three.
	if got := throttle(t, c, "user123", 15, 30, 60, 16); got[0] != 1 || got[2] != 15 || got[3] < 1 || got[3] > 3 {
		t.Errorf("more than is left: %v", got)
	}
	if got := throttle(t, c, "other", 15, 30, 60, 0); !slices.Equal(got, []int64{0, 16, 16, -1, 0}) {
		t.Errorf("a peek: %v", got)
	}
	greeted := n.resp.Stats() // clients say more than they are asked to, and not all of it is understood
	if err := c.Do(t.Context(), "CL.THROTTLE", "k", 1, 0, 1).Err(); err == nil {
		t.Error("a count of 0 is taken")
	}
	text, series := scrape(t, n.Addr("health"))
	for id, want := range map[string]float64{
		"edgelimit_resp_commands_total outcome=allowed": 1, "edgelimit_resp_commands_total outcome=denied": 1,
		"edgelimit_resp_commands_total outcome=failed": float64(greeted.Failed + 1),
		"edgelimit_resp_commands_total outcome=other":  float64(greeted.Other),
		"edgelimit_resp_limits":                        1, "edgelimit_connections door=resp": 1,
		"edgelimit_accepted_connections_total door=resp":            1,
		"edgelimit_refused_connections_total door=resp reason=full": 0,
		"edgelimit_resp_malformed_requests_total":                   0, "edgelimit_resp_slow_connections_total": 0,
		"edgelimit_resp_over_admission_bound_ratio": 0,
		"edgelimit_keys": 1,
	} {
		if v, ok := series[id]; !ok || v != want {
			t.Errorf("%s = %v (there: %v), want %v", id, v, ok, want)
		}
	}
	if strings.Contains(text, "user123") || strings.Contains(text, "throttle/") {
		t.Error("a key or a limit of clients is in the metrics")
	}
	for _, s := range n.Slots() {
		if s.Meter.Rule != "%cl.throttle/64" {
			t.Errorf("slot of %s", s.Meter.Rule)
		}
	}
}

// Decisions by CL.THROTTLE are counted by outcome as those over HTTP and by Envoy's protocol are, in shadow mode as
// well. A peek is not counted.
func TestDecisionsOfAllAPIsAreCounted(t *testing.T) {
	n := launch(t, withGRPC(withRESP(withListeners(quiet("domain: test\ndescriptors: [{key: client, rate_limit: "+
		"{name: one, unit: hour, requests_per_unit: 1}}]"))))).ready(t)
	c, rls := redisClient(t, n, redis.Options{}), envoy(t, n)
	for name, decide := range map[string]struct {
		rule string
		send func()
	}{
		"HTTP": {"one", func() { post(t, n.Addr("http"), "/v1/check", `{"rule":"one","identity":"x"}`) }},
		"RESP": {"/adhoc", func() { throttle(t, c, "k", 0, 1, 3600) }},
		"gRPC": {"/adhoc", func() { shouldRateLimit(t, rls, bringing("a", 1)) }},
	} {
		count := func(outcome string) float64 {
			_, series := scrape(t, n.Addr("health"))
			v, ok := series["edgelimit_decisions_total outcome="+outcome+" rule="+decide.rule]
			if !ok {
				t.Errorf("%s: no series of %s, %s", name, decide.rule, outcome)
			}
			return v
		}
		for _, step := range []struct {
			outcome string
			shadow  bool
		}{{"allowed", false}, {"denied", false}, {"waived", true}} {
			n.Shadow(step.shadow)
			before := count(step.outcome)
			decide.send()
			if got := count(step.outcome) - before; got != 1 {
				t.Errorf("%s: %s rose by %v, want 1", name, step.outcome, got)
			}
		}
		n.Shadow(false)
	}
	throttle(t, c, "other", 0, 1, 3600, 0)
	_, series := scrape(t, n.Addr("health"))
	if got := series["edgelimit_decisions_total outcome=allowed rule=/adhoc"]; got != 2 {
		t.Errorf("after a peek %v ad-hoc decisions were allowed, want 2", got)
	}
	if got := series["edgelimit_near_limit_total rule=/adhoc"]; got != 2 {
		t.Errorf("%v ad-hoc decisions were near the limit, want 2", got)
	}
}

// A key is limited across the cluster, and the bound of that is exported.
func TestThrottleAcrossNodes(t *testing.T) {
	t.Parallel()
	first := launch(t, withRESP(withListeners(gossiping("a", "eu")))).ready(t)
	second := launch(t, withRESP(gossiping("b", "eu", first.Addr("lan")))).ready(t)
	allMembers(t, first, second)
	here, there := redisClient(t, first, redis.Options{}), redisClient(t, second, redis.Options{})
	// A node debits what a new peer reports first as of an earlier time: some of it may be paid. So each has to have
	// reported before, in both directions.
	keys := 0
	charged := func(from, to *redis.Client) string {
		for {
			keys++
			k := strconv.Itoa(keys)
			if got := throttle(t, from, k, 99, 1, 3600, 60); got[0] != 0 || got[2] != 40 {
				t.Fatalf("60 of 100: %v", got)
			}
			testkit.Eventually(t, "the other node knows",
				func() bool { return throttle(t, to, k, 99, 1, 3600, 0)[2] < 100 })
			if throttle(t, to, k, 99, 1, 3600, 0)[2] == 40 {
				return k
			}
		}
	}
	charged(there, here)
	k := charged(here, there)
	if got := throttle(t, there, k, 99, 1, 3600, 30); got[0] != 0 || got[2] != 10 {
		t.Errorf("30 more at the other node: %v", got)
	}
	if got := throttle(t, there, k, 99, 1, 3600, 11); got[0] != 1 {
		t.Errorf("11 more at the other node: %v", got)
	}
	testkit.Eventually(t, "and back", func() bool { return throttle(t, here, k, 99, 1, 3600, 0)[2] == 10 })
	if n, err := there.Del(t.Context(), k).Result(); n != 1 || err != nil {
		t.Errorf("DEL: %d, %v", n, err)
	}
	testkit.Eventually(t, "freed here, too", func() bool { return throttle(t, here, k, 99, 1, 3600, 0)[2] == 100 })
	testkit.Eventually(t, "a bound is exported where a node admits while another does", func() bool {
		keys++
		throttle(t, there, strconv.Itoa(keys), 99, 1, 3600, 60)
		throttle(t, here, strconv.Itoa(keys), 99, 1, 3600, 60)
		_, series := scrape(t, first.Addr("health"))
		return series["edgelimit_resp_over_admission_bound_ratio"] > 0
	})
}

func TestThrottleInShadowMode(t *testing.T) {
	n := launch(t, withRESP(quiet(perClient))).ready(t)
	c := redisClient(t, n, redis.Options{})
	n.Shadow(true)
	for range 3 {
		if got := throttle(t, c, "k", 0, 1, 3600); got[0] != 0 || got[3] != -1 {
			t.Errorf("in shadow mode: %v", got)
		}
	}
	n.Shadow(false)
	if got := throttle(t, c, "k", 0, 1, 3600); got[0] != 1 {
		t.Errorf("after shadow mode: %v", got)
	}
}

func TestRESPPassword(t *testing.T) {
	var log testkit.Log
	cfg := withRESP(quiet(perClient))
	cfg.RESPPasswordFile, cfg.Logger = write(t, "password", "correct horse\n"), log.Logger()
	n := launch(t, cfg).ready(t)
	if err := redisClient(t, n, redis.Options{Password: "correct horse"}).Ping(t.Context()).Err(); err != nil {
		t.Errorf("with the password: %v", err)
	}
	if err := redisClient(t, n, redis.Options{Password: "correct"}).Ping(t.Context()).Err(); err == nil ||
		!strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("with another: %v", err)
	}
	if strings.Contains(log.String(), "horse") {
		t.Error("the log tells the password")
	}
	for text, want := range map[string]string{"\n": "is empty", "": "is empty"} {
		cfg.RESPPasswordFile = write(t, "password", text)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "resp_password_file") {
			t.Errorf("password file %q: %v", text, err)
		}
	}
	cfg.RESPPasswordFile = "no/such/file"
	if _, err := New(cfg); !os.IsNotExist(unwrapped(err)) {
		t.Errorf("no password file: %v", err)
	}
}

func unwrapped(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = u.Unwrap()
	}
}

// Clients that ask without a break while the node stops are told of each request that is charged: a connection ends
// between two of them.
func TestStopAnswersRedisClients(t *testing.T) {
	cfg := withRESP(quiet(perClient))
	cfg.Logger = slog.New(slog.DiscardHandler)
	n := launch(t, cfg).ready(t)
	addr := n.Addr("resp")
	var clients sync.WaitGroup
	var asked, answered atomic.Int64
	for i := range 8 {
		conn := testkit.Dial(t, addr) // before the others ask: the node may stop as soon as they have
		clients.Go(func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(3 * testkit.Patience))
			question := fmt.Sprintf("CL.THROTTLE k%d 999999 1 60\r\n", i)
			answer := make([]byte, 256)
			for {
				if _, err := conn.Write([]byte(question)); err != nil {
					return // it has ended, as the next read would have told
				}
				asked.Add(1)
				got, err := conn.Read(answer)
				if err != nil {
					return
				}
				if !strings.HasPrefix(string(answer[:got]), "*5\r\n:0\r\n:1000000\r\n") {
					t.Errorf("the answer is %q", answer[:got])
					return
				}
				answered.Add(1)
			}
		})
	}
	testkit.Eventually(t, "questions", func() bool { return asked.Load() > 100 })
	if err := n.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	clients.Wait()
	got := n.resp.Stats()
	if int64(got.Allowed) != answered.Load() {
		t.Errorf("%d were admitted, and %d clients heard of it", got.Allowed, answered.Load())
	}
	if got.Connections != 0 {
		t.Errorf("%d connections are open", got.Connections)
	}
}

// Clients have made all limits that they may, and as many rules as there can be take the place of as many others: all
// have room for counts.
func TestMetersOfRulesAndClients(t *testing.T) {
	full := func(key string) string {
		var text strings.Builder
		text.WriteString("domain: test\ndescriptors:\n")
		for i := range rulefile.MaxLimited {
			name := fmt.Sprint(key, i)
			fmt.Fprintf(&text, "- {key: %s, rate_limit: {name: %[1]s, unit: day, requests_per_unit: 1}}\n", name)
		}
		return text.String()
	}
	admitted := func(n *Node, key string) (count int) {
		for i := range rulefile.MaxLimited {
			count += takeSome(t, n, fmt.Sprint(key, i), "x", 1)
		}
		return count
	}
	n := idle(t, full("old"))
	made := make([]*counters.Limit, debtClasses+rlsapi.MaxOverrides)
	for i := range made {
		made[i], _ = counters.NewLimit(
			counters.NewMeter(fmt.Sprintf("%%made/%d", i), counters.TokenBucket, 24*time.Hour), 1)
	}
	n.learnAdHoc(redisAPI)(made[:debtClasses])
	n.learnAdHoc(envoyAPI)(made[debtClasses:])
	if got := admitted(n, "old"); got != rulefile.MaxLimited {
		t.Errorf("%d rules admitted a request", got)
	}
	n.SetRules(ruleSet(full("new")))
	if got := admitted(n, "new"); got != rulefile.MaxLimited {
		t.Errorf("%d of the rules in their place did", got)
	}
	for _, l := range made {
		if d := n.table.Take(l, 1, 1, n.clock.Now()); !d.Allowed {
			t.Fatalf("%s: %+v", l.Meter().Rule, d)
		}
	}
}
