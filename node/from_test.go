package node

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/middleware"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// fromRules limits each value of a key once, wherever it comes from; the keys are in one file, and in no other setting.
const fromRules = `
domain: edge
descriptors:
  - {key: api_key, from: header X-Api-Key, rate_limit: {name: key, window: 1h, requests_per_unit: 1}}
  - {key: session, from: cookie sid, rate_limit: {name: session, window: 1h, requests_per_unit: 1}}
  - {key: token, from: query token, rate_limit: {name: token, window: 1h, requests_per_unit: 1}}
  - {key: subject, from: jwt sub, rate_limit: {name: subject, window: 1h, requests_per_unit: 1}}
  - {key: tenant, from: "template /tenants/{tenant}/*", rate_limit: {name: tenant, window: 1h, requests_per_unit: 1}}
  - key: path
    value: /login
    descriptors: [{key: api_key, rate_limit: {name: login, window: 1h, requests_per_unit: 9}}]
`

// A rule that says where its values come from limits requests at each entrance, with no other setting; also after a
// reload, and nobody is warned of it.
func TestRulesSayWhereValuesComeFrom(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer app.Close()
	for _, entrance := range []string{"http", "proxy", "middleware"} {
		log := new(testkit.Log)
		cfg := withListeners(quiet("domain: edge\ndescriptors: []"))
		cfg.Logger = log.Logger()
		cfg.Requests.TrustedProxies = []string{"127.0.0.1"}
		if entrance == "proxy" {
			cfg.HTTP, cfg.Proxy.Lax = "", false
			cfg.Proxy.Listen, cfg.Proxy.Upstreams = "127.0.0.1:0", []string{app.URL}
		}
		n := launch(t, cfg).ready(t)
		n.SetRules(ruleSet(fromRules))
		addr := n.Addr(entrance)
		if entrance == "middleware" {
			limited, err := middleware.HTTP(n.Node, middleware.Options{})
			testkit.Must(t, err)
			s := httptest.NewServer(limited(app.Config.Handler))
			defer s.Close()
			addr = s.Listener.Addr().String()
		}
		ask := func(path, header, value string) int {
			url := "http://" + addr + path
			if entrance == "http" {
				url = "http://" + addr + "/v1/auth"
			}
			r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
			testkit.Must(t, err)
			r.Header.Set("X-Forwarded-Uri", path)
			r.Header.Set("X-Forwarded-For", "192.0.2.1")
			if header != "" {
				r.Header.Set(header, value)
			}
			resp, err := web.Do(r)
			testkit.Must(t, err)
			slurp(t, resp)
			return resp.StatusCode
		}
		const bearer = "Bearer e30.eyJzdWIiOiJhbm4ifQ.x" // {"sub":"ann"}
		for _, tt := range [][3]string{{"/", "X-Api-Key", "a"}, {"/login", "X-Api-Key", "b"}, {"/", "Cookie", "sid=a"},
			{"/?token=a", "", ""}, {"/", "Authorization", bearer}, {"/tenants/a/x", "", ""}} {
			if first, second := ask(tt[0], tt[1], tt[2]), ask(tt[0], tt[1], tt[2]); first != 200 || second != 429 {
				t.Errorf("%s, %q: %d, then %d", entrance, tt, first, second)
			}
		}
		if got := ask("/", "", ""); got != 200 {
			t.Errorf("%s: without any value: %d", entrance, got)
		}
		if p := peekAt(t, n.Node, "login", "b"); p.Remaining != 8 {
			t.Errorf("%s: the nested rule has %d left", entrance, p.Remaining)
		}
		if found := cfg.Warnings(ruleSet(fromRules)); len(found) > 0 {
			t.Errorf("%s: warnings %+v", entrance, found)
		}
		n.SetRules(ruleSet("domain: edge\ndescriptors: [{key: api_key, from: header X-Other, rate_limit: {name: key, " +
			"window: 2h, requests_per_unit: 1}}]"))
		got := []int{ask("/", "X-Api-Key", "c"), ask("/", "X-Api-Key", "c"), ask("/", "X-Other", "c"),
			ask("/", "X-Other", "c")}
		if !slices.Equal(got, []int{200, 200, 200, 429}) {
			t.Errorf("%s: a reload does not change where values come from: %v", entrance, got)
		}
	}
}

// A node that is nothing but a reverse proxy does not start with rules that no request meets, unless it is to; nor does
// anybody hear of them where /v1/auth is not used.
func TestUnmetRules(t *testing.T) {
	const unmet = "domain: edge\ndescriptors: [{key: api_key, rate_limit: {name: key, window: 1h, " +
		"requests_per_unit: 1}}]"
	proxyOnly := func() Config {
		cfg := quiet(unmet)
		cfg.Proxy.Lax, cfg.Proxy.Listen, cfg.Proxy.Upstreams = false, "127.0.0.1:0", []string{"http://127.0.0.1:1"}
		return cfg
	}
	_, err := New(proxyOnly())
	if err == nil || !strings.Contains(err.Error(), "rule key is never met by the proxy") ||
		!strings.Contains(err.Error(), "from: header X-Api-Key") || !strings.Contains(err.Error(), "--lax") {
		t.Errorf("a proxy with a rule that limits nothing: %v", err)
	}
	for name, change := range map[string]func(*Config){
		"lax":         func(c *Config) { c.Proxy.Lax = true },
		"another API": func(c *Config) { c.HTTP = "127.0.0.1:0" },
		"met": func(c *Config) {
			c.RuleSet = ruleSet(strings.Replace(unmet, "api_key,", "api_key, from: header X-Api-Key,", 1))
		},
		"sample rules": func(c *Config) { c.RuleSet = nil },
	} {
		cfg := proxyOnly()
		change(&cfg)
		n, err := New(cfg)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		testkit.Must(t, n.Close())
	}
	for _, auth := range []bool{true, false} {
		cfg := withListeners(quiet(unmet))
		cfg.Auth = auth
		n := launch(t, cfg).ready(t)
		if found := n.Status().Warnings; (len(found) == 1) != auth {
			t.Errorf("with /v1/auth %v: %q", auth, found)
		}
		status, body := get(t, n.Addr("http"), "/v1/auth")
		if want := map[bool]int{true: 200, false: 404}[auth]; status != want {
			t.Errorf("with auth %v /v1/auth answers %d %s", auth, status, body)
		}
	}
}

// The sample rules, which nobody wrote, warn of nothing, at any API.
func TestSampleRulesWarnOfNothing(t *testing.T) {
	for _, change := range []func(*Config){
		func(*Config) {},
		func(c *Config) { c.GRPC = "127.0.0.1:0" },
		func(c *Config) { c.Proxy.Listen, c.Proxy.Upstreams = "127.0.0.1:0", []string{"http://127.0.0.1:1"} },
	} {
		cfg := withListeners(quiet(""))
		change(&cfg)
		n, err := New(cfg)
		testkit.Must(t, err)
		if found := n.Status().Warnings; len(found) > 0 {
			t.Errorf("%q", found)
		}
		testkit.Must(t, n.Close())
	}
}
