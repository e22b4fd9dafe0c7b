package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/client"
	"github.com/edgelimit/edgelimit/node/envoy"
	"github.com/edgelimit/edgelimit/node/middleware"
	noderules "github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const patience = testkit.Patience

// api is one way to send a request to a node.
type api struct {
	name string
	can  need
	open func(t *testing.T, rules string) func(*testing.T, request) answer
}

var apis = []api{
	{"library", costs | peeks | layers | rules, openLibrary},
	{"/v1/check", costs | peeks | layers | rules, openCheck},
	{"/v1/check by rule", costs | peeks | rules, openCheckByRule},
	{"/v1/check/batch", costs | peeks | layers | rules, openBatch},
	{"/limiter/check", rules, openLimiterCheck},
	{"/v1/auth", layers | rules, openAuth("/v1/auth")},
	{"/v1/auth with parameters", layers | rules, openAuth("/v1/auth/deny/429/domain/edge?deny=401&domain=other")},
	{"client", costs | peeks | layers | rules, openClient},
	{"net/http middleware", layers | rules, openMiddleware},
	{"reverse proxy", layers | rules, openProxy},
	{"gRPC interceptors", costs | peeks | layers | rules, openInterceptors},
	{"Envoy's rate limit service", costs | peeks | layers | rules, openEnvoy},
	{"/json", costs | peeks | layers | rules, openJSON},
	{"Redis protocol", costs | peeks, openRedis},
}

// open runs a node until the test ends.
func open(t *testing.T, ruleFile string, change func(*node.Config)) *node.Node {
	t.Helper()
	set, err := rulefile.Parse("conformance.yaml", []byte(ruleFile))
	if err != nil {
		t.Fatal(err)
	}
	cfg := node.DefaultConfig()
	cfg.NodeID, cfg.HTTP, cfg.Health, cfg.RuleSet, cfg.Logger, cfg.Memory = "a", "", "", set, slog.New(
		slog.DiscardHandler,
	), counters.MinMemory
	cfg.Drain, cfg.Envoy = 100*time.Millisecond, envoy.Service
	if strings.Contains(ruleFile, strictly) {
		redisServer.Do("FLUSHALL")
		cfg.Redis.URL = "redis://" + redisServer.Addr()
		cfg.Strict.MinTimeout, cfg.Strict.MaxTimeout = 5*time.Second, 5*time.Second // however busy the machine is
	}
	if change != nil {
		change(&cfg)
	}
	n, err := node.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Background(t, n.Run)
	testkit.Eventually(t, "the node is ready", func() bool { return n.Ready() == nil })
	return n
}

// toRequest returns the library's form of a request.
func toRequest(q request) node.Request {
	req := node.Request{Domain: "edge", Cost: q.cost, Peek: q.cost == 0}
	for _, l := range q.layers {
		req.Descriptors = append(req.Descriptors, []noderules.Entry{{Key: l.key, Value: l.value}})
	}
	return req
}

func openLibrary(t *testing.T, rules string) func(*testing.T, request) answer {
	n := open(t, rules, nil)
	return func(t *testing.T, q request) answer {
		d, err := n.Take(t.Context(), toRequest(q))
		if err != nil {
			t.Fatal(err)
		}
		if d.Rule == "" {
			return answer{d.Allowed, "", -1, -1, none}
		}
		return answer{
			d.Allowed, plain(d.Rule), int64(d.Limit), int64(d.Remaining), waitOf(d.RetryAfter, counters.Never),
		}
	}
}

func waitOf(d, never time.Duration) wait {
	switch d {
	case 0:
		return none
	case never:
		return forever
	}
	return some
}

// plain is a rule's name without its domain.
func plain(rule string) string { return rule[strings.LastIndexByte(rule, '/')+1:] }

// web keeps connections for one test.
func web(t *testing.T) *http.Client {
	c := &http.Client{Transport: &http.Transport{}, Timeout: patience}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// openHTTP opens a node's HTTP door and returns what posts to it: an answer that is not of the wanted statuses fails
// the test.
func openHTTP(
	t *testing.T, rules string, change func(*node.Config),
) (url string, send func(t *testing.T, r *http.Request, into any) *http.Response) {
	n := open(t, rules, func(cfg *node.Config) {
		cfg.HTTP = "127.0.0.1:0"
		if change != nil {
			change(cfg)
		}
	})
	c := web(t)
	return "http://" + n.Addr("http"), func(t *testing.T, r *http.Request, into any) *http.Response {
		t.Helper()
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err == nil && into != nil {
			err = json.Unmarshal(b, into)
		}
		if err != nil || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("%s: %s, %v", resp.Status, b, err)
		}
		return resp
	}
}

func post(t *testing.T, url string, body any) *http.Request {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// check is the body of /v1/check.
func check(q request) map[string]any {
	var descriptors [][]map[string]string
	for _, l := range q.layers {
		descriptors = append(descriptors, []map[string]string{{"key": l.key, "value": l.value}})
	}
	return withCost(map[string]any{"domain": "edge", "descriptors": descriptors}, q.cost)
}

func withCost(body map[string]any, cost uint64) map[string]any {
	if cost == 0 {
		body["peek"] = true
	} else if cost > 1 {
		body["cost"] = cost
	}
	return body
}

// checked is the answer of /v1/check.
type checked struct {
	Allowed   bool   `json:"allowed"`
	Rule      string `json:"rule"`
	Limit     *int64 `json:"limit"`
	Remaining *int64 `json:"remaining"`

	RetryAfter int64 `json:"retry_after_ms"` // -1: never
}

func (c checked) answer() answer {
	if c.Rule == "" {
		return answer{c.Allowed, "", -1, -1, none}
	}
	return answer{
		c.Allowed, plain(c.Rule), *c.Limit, *c.Remaining,
		waitOf(time.Duration(c.RetryAfter)*time.Millisecond, -time.Millisecond),
	}
}

func openCheck(t *testing.T, rules string) func(*testing.T, request) answer {
	url, send := openHTTP(t, rules, nil)
	return func(t *testing.T, q request) answer {
		var c checked
		send(t, post(t, url+"/v1/check", check(q)), &c)
		return c.answer()
	}
}

func openCheckByRule(t *testing.T, rules string) func(*testing.T, request) answer {
	url, send := openHTTP(t, rules, nil)
	return func(t *testing.T, q request) answer {
		if _, met := limits[q.layers[0].key]; !met {
			return answer{true, "", -1, -1, none} // that is an unknown rule, and has its own test
		}
		var c checked
		send(
			t,
			post(t, url+"/v1/check",
				withCost(map[string]any{"rule": "per_" + q.layers[0].key, "identity": q.layers[0].value}, q.cost)),
			&c,
		)
		return c.answer()
	}
}

func openBatch(t *testing.T, rules string) func(*testing.T, request) answer {
	url, send := openHTTP(t, rules, nil)
	return func(t *testing.T, q request) answer {
		var all struct{ Results []checked }
		send(t, post(t, url+"/v1/check/batch", map[string]any{"checks": []any{check(q)}}), &all)
		if len(all.Results) != 1 {
			t.Fatalf("%d results", len(all.Results))
		}
		return all.Results[0].answer()
	}
}

func openLimiterCheck(t *testing.T, rules string) func(*testing.T, request) answer {
	url, send := openHTTP(t, rules, nil)
	return func(t *testing.T, q request) answer {
		if _, met := limits[q.layers[0].key]; !met {
			return answer{true, "", -1, -1, none} // as above
		}
		var c checked
		send(
			t,
			post(t, url+"/limiter/check",
				map[string]any{"rule_id": "per_" + q.layers[0].key, "identity": q.layers[0].value}),
			&c,
		)
		return answer{c.Allowed, "?", -1, *c.Remaining, unknown}
	}
}

// described are the actions that make the descriptors of a request's headers.
func described() actions.Config {
	cfg := actions.Config{Domain: "edge"}
	for _, key := range []string{"stranger", "client", "path", "shadow"} {
		cfg.Descriptors = append(cfg.Descriptors, actions.Descriptor{{Key: key, Source: "header X-" + key}})
	}
	return cfg
}

// httpRequest is a request whose headers hold the descriptors.
func httpRequest(t *testing.T, url string, q request) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), "GET", url, nil)
	r.RequestURI = ""
	for _, l := range q.layers {
		r.Header.Set("X-"+l.key, l.value)
	}
	return r
}

// fromHeaders reads the RateLimit headers. Without a denial they do not name the rule that governs, but the first is
// the tightest.
func fromHeaders(t *testing.T, allowed bool, h http.Header) answer {
	t.Helper()
	first, _, _ := strings.Cut(h.Get("RateLimit"), ",")
	if first == "" {
		return answer{allowed, "", -1, -1, none}
	}
	a := answer{allowed, "?", -1, -1, unknown}
	for field := range strings.SplitSeq(first, ";") {
		if r, ok := strings.CutPrefix(field, "r="); ok {
			remaining, err := strconv.ParseInt(r, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			a.remaining = remaining
		}
	}
	return a
}

func openAuth(path string) func(*testing.T, string) func(*testing.T, request) answer {
	return func(t *testing.T, rules string) func(*testing.T, request) answer {
		url, send := openHTTP(t, rules, func(cfg *node.Config) { cfg.Requests = described() })
		return func(t *testing.T, q request) answer {
			resp := send(t, httpRequest(t, url+path, q), nil)
			if allowed := resp.StatusCode == http.StatusOK; allowed == (resp.Header.Get("X-RL-Decision") == "deny") {
				t.Fatalf("%s with the decision %q", resp.Status, resp.Header.Get("X-RL-Decision"))
			}
			return fromHeaders(t, resp.StatusCode == http.StatusOK, resp.Header)
		}
	}
}

func openMiddleware(t *testing.T, rules string) func(*testing.T, request) answer {
	n := open(t, rules, nil)
	made, err := actions.New(described())
	if err != nil {
		t.Fatal(err)
	}
	wrap, err := middleware.HTTP(n, middleware.Options{Actions: made})
	if err != nil {
		t.Fatal(err)
	}
	passed := false
	h := wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true }))
	return func(t *testing.T, q request) answer {
		passed = false
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httpRequest(t, "http://shop/", q))
		if passed != (w.Code == http.StatusOK) {
			t.Fatalf("handed on: %v, with status %d", passed, w.Code)
		}
		return fromHeaders(t, passed, w.Header())
	}
}

func openProxy(t *testing.T, rules string) func(*testing.T, request) answer {
	passed := false
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true }))
	t.Cleanup(upstream.Close)
	n := open(t, rules, func(cfg *node.Config) {
		cfg.Proxy.Listen, cfg.Proxy.Upstreams, cfg.Requests = "127.0.0.1:0", []string{upstream.URL}, described()
	})
	c := web(t)
	return func(t *testing.T, q request) answer {
		passed = false
		resp, err := c.Do(httpRequest(t, "http://"+n.Addr("proxy"), q))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if passed != (resp.StatusCode == http.StatusOK) {
			t.Fatalf("forwarded: %v, with %s", passed, resp.Status)
		}
		return fromHeaders(t, passed, resp.Header)
	}
}

func openClient(t *testing.T, rules string) func(*testing.T, request) answer {
	n := open(t, rules, func(cfg *node.Config) { cfg.HTTP = "127.0.0.1:0" })
	c := client.New("http://"+n.Addr("http"), web(t))
	return func(t *testing.T, q request) answer {
		a, err := c.Check(t.Context(), toRequest(q))
		if err != nil {
			t.Fatal(err)
		}
		if a.Rule == "" {
			return answer{a.Allowed, "", -1, -1, none}
		}
		return answer{a.Allowed, plain(a.Rule), int64(a.Limit), int64(a.Remaining), waitOf(a.RetryAfter, client.Never)}
	}
}

// openRedis sends the bucket of the rule client with CL.THROTTLE.
func openRedis(t *testing.T, rules string) func(*testing.T, request) answer {
	n := open(t, rules, func(cfg *node.Config) { cfg.RESP = "127.0.0.1:0" })
	c := redis.NewClient(
		&redis.Options{Addr: n.Addr("resp"), DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience},
	)
	t.Cleanup(func() { _ = c.Close() })
	const year = 365 * 24 * 60 * 60
	return func(t *testing.T, q request) answer {
		l := q.layers[0]
		key, limit := fmt.Sprintf("%s:%s", l.key, l.value), limits[l.key]
		got, err := c.Do(t.Context(), "CL.THROTTLE", key, limit-1, limit, year, q.cost).Int64Slice()
		if err != nil || len(got) != 5 {
			t.Fatal(got, err)
		}
		if q.cost == 0 { // redis-cell admits a cost of 0
			got[0] = 0
			if got[2] == 0 {
				got[0] = 1
			}
		}
		return answer{got[0] == 0, "?", got[1], got[2], unknown}
	}
}
