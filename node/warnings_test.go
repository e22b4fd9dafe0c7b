package node

import (
	"bytes"
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/proxy"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const keyRules = loginRules + `  - {key: api_key, rate_limit: {name: per_key, unit: hour, requests_per_unit: 10000}}
  - {key: api_key, value: partner, rate_limit: {unlimited: true}}
  - {key: plan, value: free, descriptors: [{key: remote_address,
      rate_limit: {name: free, unit: hour, requests_per_unit: 9}}]}
`

// Rules that charge responses, and rules that delay requests.
const (
	laterRules = `domain: edge
descriptors:
  - {key: remote_address, rate_limit: {unit: minute, requests_per_unit: 9, charge_on: {status: [401]}}}
  - {key: path, descriptors: [{key: remote_address,
      rate_limit: {unit: minute, requests_per_unit: 9, cost_from: response_bytes}}]}
`
	waitRules = `domain: edge
descriptors:
  - {key: remote_address, rate_limit: {algorithm: leaky_bucket, queue: true, unit: second, requests_per_unit: 9}}
  - {key: path, descriptors: [{key: remote_address,
      rate_limit: {algorithm: gcra, unit: second, requests_per_unit: 9, mode: throttle, max_delay: 2s}}]}
`
)

// inProxy has requests come through the reverse proxy alone; met has all rules be met at /v1/auth.
func inProxy(c *Config) { c.HTTP, c.Proxy.Listen = "", "127.0.0.1:0" }
func met(c *Config)     { c.Requests.TrustedProxies = []string{"10.0.0.1"} }

// descriptors returns descriptors of lists of keys and sources.
func descriptors(lists ...[]actions.Entry) (all []actions.Descriptor) {
	for _, l := range lists {
		all = append(all, l)
	}
	return all
}

// Proxies of which anybody is one, and replicas that do not know each other.
func TestWarningsOfTheNetwork(t *testing.T) {
	for proxy, wide := range map[string]bool{
		"0.0.0.0/0": true, "0.0.0.0/1": true, "128.0.0.0/1": true, "8.0.0.0/7": true, "::/0": true, "2000::/3": true,
		"2600::/12": true, "::ffff:0:0/96": true, "10.0.0.0/8": false, "172.16.0.0/12": false, "192.0.2.1": false,
		"fc00::/7": false, "2001:db8::/32": false, "fd00::/8": false, "unix": false,
	} {
		cfg := DefaultConfig()
		cfg.Requests.TrustedProxies = []string{proxy}
		if got := warnsOf(t, &cfg, proxy+" holds clients"); got != wide {
			t.Errorf("trusted proxies %s: a warning: %v, want %v", proxy, got, wide)
		}
	}
	for name, tt := range map[string]struct {
		change func(*Config)
		alone  bool
	}{
		"in the place of envoyproxy/ratelimit": {func(*Config) {}, true},
		"with a Redis":                         {func(c *Config) { c.Redis.URL = "redis://127.0.0.1:6379" }, true},
		"with gossip":                          {func(c *Config) { c.Gossip.LAN = "127.0.0.1:7946" }, false},
		"as itself":                            {func(c *Config) { c.Compatibility = "" }, false},
	} {
		cfg := DefaultConfig()
		cfg.Compatibility = rulefile.Ratelimit
		tt.change(&cfg)
		if got := warnsOf(t, &cfg, "each admits the whole limit"); got != tt.alone {
			t.Errorf("%s: a warning: %v, want %v", name, got, tt.alone)
		}
	}
}

// warnsOf reports whether a configuration has a warning, which is no hint.
func warnsOf(t *testing.T, cfg *Config, text string) bool {
	t.Helper()
	set, err := rulefile.Parse("rules.yaml", []byte(loginRules))
	testkit.Must(t, err)
	return slices.ContainsFunc(cfg.Warnings(set), func(w Warning) bool {
		return !w.Hint && strings.Contains(w.Text, text)
	})
}

func TestWarnings(t *testing.T) {
	client, path := actions.Entry{Key: "remote_address", Source: "client"}, actions.Entry{Key: "path", Source: "path"}
	key := actions.Entry{Key: "api_key", Source: "header X-Api-Key"}
	free := actions.Entry{Key: "plan", Source: "text free"}
	everything := descriptors([]actions.Entry{client}, []actions.Entry{path, client}, []actions.Entry{key},
		[]actions.Entry{free, client})
	for _, tt := range []struct {
		name   string
		rules  string
		change func(*Config)
		want   []string // the parts of one warning each, separated by |; a hint begins with one
	}{
		{"all is met", keyRules, func(c *Config) {
			c.Requests.Descriptors, c.Requests.TrustedProxies = everything, []string{"10.0.0.0/8"}
		}, nil},
		{"the default", keyRules, func(*Config) {}, []string{"rule login is never met by " +
			"/v1/auth: |has (path, remote_address), which only trusted proxies|trusted_proxies is empty",
			"rule per_key is never met by /v1/auth: requests.descriptors sends (remote_address) only; it would " +
				"need (api_key)",
			"rule free is never met by /v1/auth: |it would need (plan, remote_address)"}},
		{"the default, behind a proxy", loginRules,
			func(c *Config) { c.Requests.TrustedProxies = []string{"10.0.0.1"} }, nil},
		{"Envoy asks, too", keyRules, func(c *Config) {
			c.GRPC, c.Requests.Descriptors = "127.0.0.1:0", everything[:1]
		}, []string{"hint|login", "hint|per_key", "hint|free"}},
		{"nobody wrote the rules", "", func(*Config) {}, nil},
		{"no HTTP API", keyRules, func(c *Config) { c.HTTP = "" }, nil},
		{"a misspelt key", loginRules, func(c *Config) {
			c.Requests.TrustedProxies = []string{"10.0.0.1"}
			c.Requests.Descriptors = descriptors([]actions.Entry{{Key: "remote_adress", Source: "client"}},
				[]actions.Entry{path, client})
		}, []string{`(remote_adress) meets no rule: none has the key "remote_adress"; did you mean "remote_address"?`,
			"rule per_ip is never met by /v1/auth: requests.descriptors sends (remote_adress), (path, " +
				"remote_address) only"}},
		{"a misspelt key of a rule", strings.Replace(loginRules, "key: remote_address", "key: remote_addres", 1),
			func(*Config) {},
			[]string{`is never met by /v1/auth: no request has its key "remote_addres"; did you mean "remote_address"?`,
				"only trusted proxies"}},
		{"a descriptor that ends half way", loginRules, func(c *Config) {
			c.Requests.TrustedProxies = []string{"10.0.0.1"}
			c.Requests.Descriptors = descriptors([]actions.Entry{client}, []actions.Entry{path}, []actions.Entry{path,
				client})
		}, []string{"(path) meets no rule of domain edge; the nearest is login, which " +
			"needs (path=/login, remote_address)"}},
		{"another text", keyRules, func(c *Config) {
			c.Requests.TrustedProxies = []string{"10.0.0.1"}
			c.Requests.Descriptors = descriptors([]actions.Entry{client}, []actions.Entry{path, client},
				[]actions.Entry{key}, []actions.Entry{{Key: "plan", Source: "text fre"}, client})
		}, []string{"(plan=fre, remote_address) meets no rule|needs (plan=free, remote_address)",
			"rule free is never met|it would need (plan=free, remote_address)"}},
		{"a misspelt domain", loginRules, func(c *Config) { c.Requests.Domain = "egde" },
			[]string{`no rule is in domain "egde": /v1/auth allows everything; did you mean "edge"?`}},
		{"a misspelt domain, and closed", loginRules, func(c *Config) {
			c.Requests.Domain, c.OnFailure = "egde", rules.FailClosed
		}, []string{`no rule is in domain "egde": /v1/auth denies everything; did you mean "edge"?`}},
		{"rules without a domain", `[{rule_id: x, limit: 5, window_seconds: 60}]`, func(*Config) {},
			[]string{"hint|no rule is in domain"}},
		{"rules without a domain, and only a proxy", `[{rule_id: x, limit: 5, window_seconds: 60}]`, inProxy,
			[]string{"no rule is in domain \"edge\": the proxy allows everything"}},
		{"twice", loginRules, func(c *Config) {
			c.Requests.TrustedProxies = []string{"10.0.0.1"}
			c.Requests.Descriptors = descriptors([]actions.Entry{client}, []actions.Entry{path, client},
				[]actions.Entry{client})
		}, []string{"(remote_address) stands there twice"}},
		{"headers of nobody", loginRules, func(c *Config) {
			c.Requests.Descriptors, c.Requests.ClientHeader = everything[:2], "x-real-ip"
		}, []string{"requests.client_header: x-real-ip has no effect: requests.trusted_proxies is empty",
			"rule login"}},
		{"a socket whose clients have no address", loginRules, func(c *Config) {
			c.HTTP, c.Requests.TrustedProxies = "unix:/tmp/x", []string{"10.0.0.1"}
		}, []string{"rule per_ip is never met|has (remote_address), but who connects has no address: " +
			"http is a Unix socket, and unix is not in",
			"rule login is never met|only trusted proxies can ask about"}},
		{"a trusted socket", loginRules, func(c *Config) {
			c.HTTP, c.Requests.TrustedProxies = "unix:/tmp/x",
				[]string{"unix"}
		}, nil},
		{"trust in sockets alone", loginRules, func(c *Config) { c.Requests.TrustedProxies = []string{"unix"} },
			[]string{"rule login|trusted_proxies names no address"}},

		{"the proxy sees the request", loginRules, inProxy, nil},
		{"both APIs: one of them meets each rule", loginRules, func(c *Config) { c.Proxy.Listen = "127.0.0.1:0" }, nil},
		{"routes meet the rest", keyRules, func(c *Config) {
			inProxy(c)
			c.Proxy.Routes = []proxy.Route{{Path: "/a", Descriptors: everything[2:3]},
				{Path: "/b", Descriptors: everything[3:]}, {Path: "/c", Cost: new(uint64(2))}}
		}, nil},
		{"a route that meets nothing", loginRules, func(c *Config) {
			inProxy(c)
			c.Proxy.Routes = []proxy.Route{{Path: "/a", Cost: new(uint64(2))}, {Path: "/b", Descriptors: descriptors(
				[]actions.Entry{{Key: "remote_adress", Source: "client"}})}}
		}, []string{`proxy.routes: route 2: descriptors: (remote_adress) meets no rule|mean "remote_address"?`}},
		{"a route in no domain", loginRules, func(c *Config) {
			inProxy(c)
			c.Proxy.Routes = []proxy.Route{{Path: "/a", Domain: "egde"}}
		}, []string{`proxy.routes: route 1: domain: no rule is in domain "egde": the proxy allows everything|"edge"?`}},
		{"a rule that no route meets", keyRules, func(c *Config) {
			inProxy(c)
			c.Proxy.Routes = []proxy.Route{{Path: "/a", Descriptors: everything[3:]}}
		}, []string{"rule per_key is never met by the proxy: requests.descriptors and proxy.routes send (" +
			"remote_address), (path, remote_address), (plan=free, remote_address) only; it would need (api_key)"}},
		{"no domain, in both APIs", loginRules, func(c *Config) {
			c.Proxy.Listen, c.Requests.Domain = "127.0.0.1:0", "egde"
		}, []string{"requests.domain: no rule is in domain|: /v1/auth and the proxy allow everything"}},
		{"a proxy on a socket", loginRules, func(c *Config) { inProxy(c); c.Proxy.Listen = "unix:/tmp/x" },
			[]string{"per_ip is never met by the proxy: |the proxy's descriptors have|has no address: " +
				"proxy.listen is a Unix socket", "login is never met by the proxy"}},
		{"headers that only /v1/auth reads", loginRules, func(c *Config) {
			inProxy(c)
			c.Requests.OriginalHeaders = actions.XOriginal
		}, []string{"requests.original_headers: x-original has no effect: only /v1/auth reads them"}},
		{"headers of the proxy's nobody", loginRules, func(c *Config) {
			inProxy(c)
			c.Requests.ClientHeader = "x-real-ip"
		}, []string{"requests.client_header: x-real-ip has no effect: requests.trusted_proxies is empty"}},

		{"responses that nobody sees", laterRules, met, []string{"hint|rule edge/remote_address (and 1 more) charges " +
			"responses|report them to /v1/report"}},
		{"responses that the proxy sees", laterRules, func(c *Config) { met(c); inProxy(c) }, nil},
		{"responses in process", laterRules, func(c *Config) { c.HTTP = "" }, nil},
		{"responses to Envoy", laterRules, func(c *Config) { c.HTTP, c.GRPC = "", "127.0.0.1:0" }, []string{
			"hint|edge/remote_address (and 1 more) charges"}},
		{"waits", waitRules, met, []string{"hint|rule edge/remote_address (and 1 more) has requests wait: /v1/auth"}},
		{"waits in Envoy", waitRules, func(c *Config) { c.HTTP, c.GRPC = "", "127.0.0.1:0" }, []string{
			"hint|rule edge/remote_address (and 1 more) has requests wait: Envoy does not wait, and"}},
		{"waits in Envoy and elsewhere", waitRules, func(c *Config) { met(c); c.GRPC = "127.0.0.1:0" }, []string{
			"hint|has requests wait: Envoy does not|; /v1/auth says"}},
		{"waits in the proxy", waitRules, func(c *Config) { met(c); c.Proxy.Listen = "127.0.0.1:0" }, nil},
	} {
		cfg := quiet(tt.rules)
		cfg.HTTP = DefaultHTTP
		tt.change(&cfg)
		found := cfg.Warnings(cmp.Or(cfg.RuleSet, rulefile.Sample()))
		if len(found) != len(tt.want) {
			t.Errorf("%s: %d warnings, want %d: %+v", tt.name, len(found), len(tt.want), found)
			continue
		}
		for i, w := range found {
			want, hint := strings.CutPrefix(tt.want[i], "hint|")
			for part := range strings.SplitSeq(want, "|") {
				if !strings.Contains(w.Text, part) || w.Hint != hint {
					t.Errorf("%s: it says %+v, want %s", tt.name, w, tt.want[i])
				}
			}
		}
	}
}

// Rules that one line of the configuration would cure are one warning.
func TestWarningsAreGrouped(t *testing.T) {
	cfg := quiet(keyRules + "  - {key: path, value: /a, descriptors: [{key: remote_address, rate_limit: {unit: hour, " +
		"requests_per_unit: 9}}]}\n")
	cfg.HTTP, cfg.Requests.Descriptors = DefaultHTTP, actions.DefaultConfig().Descriptors[:1]
	found := cfg.Warnings(cfg.RuleSet)
	if len(found) != 3 || len(found[0].Rules) != 2 || !strings.Contains(found[0].Text,
		"rule login is never met by /v1/auth, nor 1 more: ") {
		t.Errorf("warnings %+v", found)
	}
}

// What the reader of rule files warns of is in the log, once, with its place, also where no HTTP API is served.
func TestWarningsOfFiles(t *testing.T) {
	set, err := rulefile.Options{Compatibility: rulefile.Ratelimit}.Parse("f", []byte(
		"domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day}}\n- {key: b, rate_limit: ~}\n"))
	testkit.Must(t, err)
	cfg := quiet(keyRules)
	cfg.HTTP, cfg.RuleSet = "", set
	found := cfg.Warnings(set)
	if len(found) != 2 || found[0].File != "f" || found[0].Line != 3 || found[0].Hint || found[1].Line != 4 ||
		!strings.HasPrefix(found[1].Text, "f:4:24: rate_limit is empty") {
		t.Fatalf("warnings %+v", found)
	}
	var log bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	n, err := New(cfg)
	testkit.Must(t, err)
	n.logWarnings()
	if got := strings.Count(log.String(), "f:3:24: a rate_limit without requests_per_unit"); got != 1 {
		t.Errorf("it is in the log %d times: %s", got, log.String())
	}
}
