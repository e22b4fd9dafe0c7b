package node

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/bans"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/status"
	"github.com/edgelimit/edgelimit/testnet/netem"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const exposing = `domain: test
descriptors:
  - {key: client, rate_limit: {name: per_client, window: 1h, requests_per_unit: 2, expose: identity}}
  - {key: hidden, rate_limit: {name: hidden, window: 1h, requests_per_unit: 2}}
`

func denyOften(t *testing.T, n *Node, rule, identity string, times int) {
	t.Helper()
	for range 2 + times {
		take(t, n, Request{Rule: rule, Identity: identity})
	}
}

func TestTopDenied(t *testing.T) {
	n := idle(t, exposing)
	denyOften(t, n, "per_client", "joe\x1b[2J", 3)
	denyOften(t, n, "per_client", "ann", 5)
	denyOften(t, n, "hidden", "bob", 4)
	take(t, n, Request{Rule: "per_client", Identity: "joe\x1b[2J", Peek: true}) // is no request
	if _, err := n.Decide(t.Context(), &Request{Domain: "test",                 // and by a descriptor
		Descriptors: [][]rules.Entry{by("client", "ann")}}, nil); err != nil {
		t.Fatal(err)
	}
	all, err := n.TopDenied("", 10)
	var got []string
	for _, d := range all {
		if len(d.Key) != 16 {
			t.Errorf("%+v", d)
		}
		got = append(got, fmt.Sprintf("%s %q %d", d.Rule, d.Identity, d.Denials))
	}
	want := `per_client "ann" 6; hidden "" 4; per_client "joe?[2J" 3`
	if strings.Join(got, "; ") != want || err != nil {
		t.Errorf("%q %v, want %q", got, err, want)
	}
	if some, err := n.TopDenied("hidden", 1); len(some) != 1 || err != nil || some[0].Rule != "hidden" {
		t.Errorf("%+v %v", some, err)
	}
	if _, err := n.TopDenied("nobody", 1); err == nil {
		t.Error("there is a rule nobody")
	}
	b, _ := json.Marshal(all)
	if strings.Contains(string(b), "bob") {
		t.Errorf("an identity is exposed: %s", b)
	}
}

func TestDenialsDoNotAllocate(t *testing.T) {
	n := idle(t, exposing)
	var room [4]Decision
	names := make([]string, 1000) // more than a rule has room for
	for i := range names {
		names[i] = fmt.Sprintf("client %d", i)
		denyOften(t, n, "per_client", names[i], 1)
	}
	at := 0
	req := &Request{Rule: "per_client"}
	if allocs := testing.AllocsPerRun(500, func() {
		at++
		req.Identity = names[at%len(names)]
		if _, err := n.Decide(t.Context(), req, room[:0]); err != nil {
			t.Fatal(err)
		}
	}); allocs != 0 {
		t.Errorf("a denial allocates %v times", allocs)
	}
}

func TestSettings(t *testing.T) {
	cfg := quiet(perClient)
	cfg.Redis.URL = "rediss://joe:hunter2@redis.example:6379/0?password=hunter2"
	cfg.RulesXDS.Headers = map[string]string{"x-api-key": "hunter2"}
	cfg.RulesXDS.Metadata = map[string]string{"cookie": "hunter2"}
	cfg.Bans.Exports = []bans.Export{{Command: []string{"curl", "-H", "Authorization: hunter2"}}}
	file := cfg
	cfg.Linger = 3 * time.Second
	cfg.Layers = []Layer{{"file", file}, {"flag", cfg}}
	cfg.Memory = 64 << 20
	all, err := (&Node{cfg: cfg}).Settings()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(all)
	if strings.Contains(string(b), "hunter2") {
		t.Errorf("it shows a password: %s", b)
	}
	got := make(map[string]string)
	for _, s := range all {
		got[s.Name] = s.From + " " + string(s.Value)
	}
	for name, want := range map[string]string{
		"linger": `flag "3s"`, "memory": `program "64MiB"`,
		"redis.url":    `file "rediss://joe:***@redis.example:6379/0?***"`,
		"gossip.label": `default "edgelimit"`, "max_connections": "default 10000", "node_id": `file "a"`,
	} {
		if got[name] != want {
			t.Errorf("%s: %s, want %s", name, got[name], want)
		}
	}
}

func TestMasked(t *testing.T) {
	for _, tt := range [][3]string{
		{"url", "redis://host:6379", "redis://host:6379"},
		{"url", "redis://:p@ss@host", "redis://***@host"},
		{"url", "redis://token@host", "redis://***@host"},
		{"url", "redis://u:p/x@host/0", "redis://u:***@host/0"},
		{"url", "https://host/?token=x", "https://host/?***"},
		{"password", "x", "***"}, {"password_file", "/run/x", "/run/x"}, {"api_key", "x", "***"},
		{"password", "", ""}, {"reason", "a@b", "***@b"},
	} {
		if got := masked(tt[0], tt[1]); got != tt[2] {
			t.Errorf("%s: %s becomes %s, want %s", tt[0], tt[1], got, tt[2])
		}
	}
}

// A node says of another region, which is cut off, since when and what to do; and that it is back.
func TestStatusOfAPartition(t *testing.T) {
	links := netem.NewLinks(1)
	a := launch(t, through(links, "a", gossiping("a", "us"))).ready(t)
	b := launch(t, through(links, "b", gossiping("b", "eu", "wan:"+a.Addr("wan")))).ready(t)
	allMembers(t, a, b)
	for range 5 {
		take(t, b.Node, Request{Rule: "per_client", Identity: "joe"})
	}
	inspect := func() status.Layer {
		in, err := a.Inspect(t.Context(), "per_client", "joe")
		if err != nil || len(in.Layers) != 1 {
			t.Fatalf("%+v %v", in, err)
		}
		return in.Layers[0]
	}
	testkit.Eventually(t, "a knows what b admitted", func() bool { return inspect().Used == 5 })
	l := inspect()
	if len(l.Counts) != 1 || l.Counts[0] != (status.NodeCount{Node: "b", Region: "eu", Count: 5}) ||
		l.ByRegion["eu"] != 5 || l.Remaining != l.Limit-5 || !l.Allowed {
		t.Errorf("%+v", l)
	}
	testkit.Eventually(t, "health", func() bool { return a.Status().Health == status.Healthy })
	cut := time.Now()
	links.Partition("b")
	testkit.Eventually(t, "a finding about the partition", func() bool { return a.Status().Health == status.Degraded })
	s := a.Status()
	eu := s.Regions[1]
	if eu.Name != "eu" || eu.Reachable || eu.Since.Before(cut.Add(-2*time.Second)) || eu.Since.After(time.Now()) ||
		eu.Members[0].Reachable || !s.Regions[0].Reachable || s.Regions[0].Name != "us" {
		t.Errorf("regions %+v", s.Regions)
	}
	if f := s.Summary[0]; !strings.HasPrefix(f.Text, "region eu is cut off since ") ||
		!strings.Contains(f.Text, "; its 1 node keeps ") || f.Do == "" || f.Level != "warn" {
		t.Errorf("it finds %+v", s.Summary)
	}
	links.Heal()
	testkit.Eventually(t, "health again", func() bool { return a.Status().Health == status.Healthy })
	events, _ := a.Events().Since(0)
	var texts []string
	for _, e := range events {
		texts = append(texts, e.Text)
	}
	for _, want := range []string{"ready", "gossip: member joined", "a region cannot be reached",
		"a region is reachable"} {
		if !strings.Contains(strings.Join(texts, "\n"), want) {
			t.Errorf("no event says %q: %q", want, texts)
		}
	}
}

// A strict rule whose home the node does not know is decided by on_failure: status, metrics and bound say so.
func TestStatusOfAnUnknownHome(t *testing.T) {
	far := func(id string, join ...string) Config {
		cfg := gossiping(id, "here", join...)
		cfg.RuleSet = ruleSet(`{domain: test, descriptors: [{key: client, rate_limit: {name: far, window: 1h,
			requests_per_unit: 1000, consistency: strict, home_region: nowhere, on_failure: local}}]}`)
		return cfg
	}
	a := launch(t, withListeners(far("a"))).ready(t)
	b := launch(t, far("b", a.Addr("lan"))).ready(t)
	allMembers(t, a, b)
	s := a.Status()
	if len(s.Strict) != 1 || s.Strict[0] != (status.Store{Region: "nowhere"}) || s.Health != status.Degraded ||
		s.Summary[0].Level != "error" || !strings.Contains(s.Summary[0].Text, "region nowhere is not known") ||
		!strings.Contains(strings.Join(s.Degraded, ";"), "region nowhere is not known: on_failure decides") {
		t.Errorf("%s, %+v, degraded %q, strict %+v", s.Health, s.Summary, s.Degraded, s.Strict)
	}
	client := 0
	testkit.Eventually(t, "a bound", func() bool {
		client++
		takeSome(t, a.Node, "far", strconv.Itoa(client), 600)
		takeSome(t, b.Node, "far", strconv.Itoa(client), 500)
		return b.Bound("test/client") > 0
	})
	if _, series := scrape(t, a.Addr("health")); series["edgelimit_strict_fallbacks_total home_region=nowhere"] == 0 {
		t.Error("no metric counts what on_failure decided on")
	}
	b.SetRules(ruleSet(perClient))
	if s := b.Status(); len(s.Strict) != 0 {
		t.Errorf("without that rule: %+v", s.Strict)
	}
}

// finding returns what the summary has that holds a text, and fails the test unless it has its level, and is one.
func finding(t *testing.T, n *Node, level, text string) {
	t.Helper()
	s, found := n.Status(), 0
	for _, f := range s.Summary {
		if f.Level == level && strings.Contains(f.Text, text) && f.Do != "" {
			found++
		}
	}
	if found != 1 || s.Health == status.Healthy {
		t.Errorf("%s: %d findings %q, want one: %+v", s.Health, found, text, s.Summary)
	}
}

// A file with secrets, or of TLS, that cannot be used is a finding, and so is a certificate that expires soon.
func TestStatusOfBadFiles(t *testing.T) {
	server := testkit.NewAuthority(t, "ca").Issue(t, "server", func(c *x509.Certificate) {
		c.NotAfter = time.Now().Add(24 * time.Hour)
	})
	cfg := withListeners(gossiping("a", "here"))
	cfg.Gossip.KeyFile, cfg.RulesPoll = keyFile(t), 100*time.Millisecond
	cfg.TLS["http"] = ListenerTLS{CertFile: server.CertFile, KeyFile: server.KeyFile}
	n := launch(t, cfg).ready(t)
	finding(t, n.Node, "warn", "tls.http.cert_file: the certificate in ")
	writeFile(t, cfg.Gossip.KeyFile, "nonsense")
	writeFile(t, server.CertFile, "nonsense")
	n.Reload()
	testkit.Eventually(t, "both files are refused", func() bool {
		return n.secrets.files[0].bad.Load() && !n.listeners["http"].Certificate().Current
	})
	finding(t, n.Node, "error", "the file of gossip.key_file cannot be used")
	finding(t, n.Node, "error", "the files of tls.http cannot be used")
}

// A log that cannot be written is a finding.
func TestStatusOfFailingLogs(t *testing.T) {
	cfg := withListeners(quiet(perClient))
	cfg.Proxy.Listen, cfg.Proxy.Upstreams = "127.0.0.1:0", []string{"http://127.0.0.1:1"}
	cfg.DecisionLog.File, cfg.DecisionLog.Sample = "/dev/full", 1
	cfg.Proxy.AccessLog.File = "/dev/full"
	n := launch(t, cfg).ready(t)
	take(t, n.Node, Request{Rule: "per_client", Identity: "joe"})
	get(t, n.Addr("proxy"), "/")
	testkit.Eventually(t, "both logs fail", func() bool {
		return n.decisions.Stats().Failures > 0 && n.proxy.Stats().LogErrors > 0
	})
	finding(t, n.Node, "warn", "the decision log loses lines")
	finding(t, n.Node, "warn", "the access log loses lines")
}

// An export of bans that fails is a finding as soon as it does.
func TestStatusOfAFailingExport(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		cfg := quiet(exporting)
		cfg.Bans.Exports = []bans.Export{{Format: "nginx", File: filepath.Join(t.TempDir(), "banned")}}
		n := launch(t, cfg).ready(t)
		time.Sleep(5 * time.Minute)
		if s := n.Status(); s.Health != status.Healthy {
			t.Errorf("while it works: %+v", s.Summary)
		}
		if err := os.RemoveAll(filepath.Dir(cfg.Bans.Exports[0].File)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second) // beyond the next look
		finding(t, n.Node, "error", "the bans exported to nginx")
	})
}

// No other trouble hides that the rules may be old or that seeds do not answer; the worst comes first.
func TestStatusHidesNoReason(t *testing.T) {
	n := idle(t, perClient)
	n.ready.Store(true)
	s := status.Status{Health: status.Healthy, Rules: status.Rules{Loaded: true}, Shadow: true,
		Regions: []status.Region{{Name: "eu", Members: []status.Member{{Node: "b"}}}},
		Limits:  []status.Limit{{Rule: "per_client", Bound: 1.05}},
		Strict:  []status.Store{{Region: "us", Known: true, Away: true}}}
	found := n.summary(&s, reasons{cluster: []string{"region eu cannot be reached"}, blind: true,
		rules: []string{"rules: the Redis of the rules has not answered for 2h"}})
	var got []string
	for _, f := range found {
		got = append(got, f.Level+" "+strings.Join(strings.Fields(f.Text)[:3], " "))
	}
	want := "error the store of; warn region eu is; warn rules: the Redis; warn seeds do not; info over the limit:; " +
		"info all rules are"
	if strings.Join(got, "; ") != want || s.Health != status.Degraded {
		t.Errorf("%s: %q, want %q", s.Health, got, want)
	}
}

// The line about a large bound refers to the trouble that stands above it, also where all nodes are reachable, as with
// a blocked protocol; not to one that leaves the bound as it is.
func TestStatusOfALargeBound(t *testing.T) {
	n := idle(t, perClient)
	n.ready.Store(true)
	for _, test := range []struct {
		why   reasons
		refer bool
	}{
		{reasons{}, false},
		{reasons{rules: []string{"rules: the Redis of the rules has not answered for 2h"}}, false},
		{reasons{cluster: []string{"UDP from region us-east to this node is blocked"}}, true},
	} {
		s := status.Status{Rules: status.Rules{Loaded: true},
			Limits:  []status.Limit{{Rule: "per_client", Bound: 1.05}},
			Regions: []status.Region{{Name: "eu", Members: []status.Member{{Node: "b", Reachable: true}}}}}
		for _, f := range n.summary(&s, test.why) {
			bound := strings.HasPrefix(f.Text, "over the limit: rule per_client by at most 105.0 %")
			if bound && strings.HasPrefix(f.Do, "what the lines above say") != test.refer {
				t.Errorf("%+v: %q", test.why, f.Do)
			}
		}
	}
}

// A node that receives nothing of several other regions says that its own side is cut off; one that receives of some
// names the others. What nobody here is asked for any more is no base for a share.
func TestStatusOfTheSideThatIsCutOff(t *testing.T) {
	t.Parallel()
	links := netem.NewLinks(1)
	a := launch(t, through(links, "a", gossiping("a", "us"))).ready(t)
	b := launch(t, through(links, "b", gossiping("b", "eu", "wan:"+a.Addr("wan")))).ready(t)
	c := launch(t, through(links, "c", gossiping("c", "ap", "wan:"+a.Addr("wan")))).ready(t)
	allMembers(t, a, b, c)
	links.Partition("a")
	says := func(n *running, at int, level, begins string) bool {
		s := n.Status()
		return len(s.Summary) > at && s.Summary[at].Level == level && strings.HasPrefix(s.Summary[at].Text, begins)
	}
	testkit.Eventually(t, "a knows that it is the one", func() bool {
		return says(a, 0, "error", "this node is cut off from most nodes that share limits of scope global: rules ") &&
			says(a, 1, "warn", "this node is cut off from all other regions since ") &&
			strings.Contains(a.Status().Summary[1].Text,
				": ap (1 node keeps the part of the limits that they were asked for before), eu (")
	})
	testkit.Eventually(t, "b names a's region", func() bool {
		return says(b, 0, "warn", "region us is cut off since ")
	})
	if s := a.Status(); s.Regions[1].Share != nil {
		t.Errorf("nobody is asked for anything, and the share of %s is %v", s.Regions[1].Name, *s.Regions[1].Share)
	}
}

// A node that is alone, and is asked on its own machine alone, says who is denied, but for secrets. Any other says how.
func TestALoneNodeSaysWhoIsDenied(t *testing.T) {
	const text = exposing + "  - {key: token, secret: true, rate_limit: {name: tokens, window: 1h, " +
		"requests_per_unit: 2}}\n"
	for _, test := range []struct {
		name   string
		change func(*Config)
		shows  bool
	}{
		{"alone", func(*Config) {}, true},
		{"on a socket", func(c *Config) { c.Admin = "unix:/tmp/admin" }, true},
		{"without operators", func(c *Config) { c.Admin = "" }, false},
		{"asked from elsewhere", func(c *Config) { c.Admin = "192.0.2.1:7949" }, false},
		{"with peers", func(c *Config) { c.Gossip.LAN = "127.0.0.1:0" }, false},
		{"with far peers", func(c *Config) { c.Gossip.WAN = "127.0.0.1:0" }, false},
		{"with viewers", func(c *Config) { c.Dashboard = "127.0.0.1:0" }, false},
		{"with exports", func(c *Config) { c.Bans.Exports = []bans.Export{{File: "/tmp/bans"}} }, false},
		{"with a collector", func(c *Config) { c.OTLP.Endpoint = "http://127.0.0.1:1" }, false},
	} {
		cfg := quiet("")
		if cfg.Admin = "127.0.0.1:0"; cfg.Dashboard != "" {
			t.Fatal("the harness has a dashboard")
		}
		if test.change(&cfg); cfg.keepsToItself() != test.shows {
			t.Errorf("%s: it keeps to itself: %v", test.name, !test.shows)
		}
	}
	for admin, want := range map[string]string{"127.0.0.1:0": `tokens "" 4; hidden "bob" 3`,
		"": `tokens "" 4; hidden "" 3`} {
		cfg := quiet(text)
		cfg.Admin = admin
		n, err := New(cfg)
		testkit.Must(t, err)
		n.ready.Store(true)
		denyOften(t, n, "tokens", "s3cret", 4)
		denyOften(t, n, "hidden", "bob", 3)
		all, err := n.TopDenied("", 10)
		var got []string
		for _, d := range all {
			got = append(got, fmt.Sprintf("%s %q %d", d.Rule, d.Identity, d.Denials))
		}
		if strings.Join(got, "; ") != want || err != nil {
			t.Errorf("admin %q: %q %v, want %q", admin, got, err, want)
		}
		if do := n.Status().Summary[0].Do; !strings.Contains(do, "the file says that it is secret") {
			t.Errorf("what to do: %s", do)
		}
	}
}

// Whom a rule denies most is a finding, and no trouble.
func TestStatusOfAFlood(t *testing.T) {
	n := idle(t, exposing)
	n.ready.Store(true)
	denyOften(t, n, "hidden", "bob", 1)
	denyOften(t, n, "per_client", "ann", 7)
	s := n.Status()
	if s.Health != status.Healthy || len(s.Summary) != 1 || s.Summary[0].Level != "info" ||
		s.Summary[0].Text != "rule per_client denies ann most: 7 denials by this node in the last minutes" ||
		!strings.Contains(s.Summary[0].Do, "edgelimit inspect per_client ann") || len(s.Top) != 2 {
		t.Errorf("%s %+v %+v", s.Health, s.Summary, s.Top)
	}
}

// What clients call themselves never becomes part of a command that an operator may paste.
func TestStatusRepeatsNoCommands(t *testing.T) {
	n := idle(t, exposing)
	n.ready.Store(true)
	for identity, want := range map[string]string{"x; reboot": "IDENTITY", "--json": "IDENTITY", "$(id)": "IDENTITY",
		"2001:db8::/64": "2001:db8::/64", "::1": "::1", "a.b@c_d": "a.b@c_d", "ümlaut": "IDENTITY"} {
		if got := argument(identity); got != want {
			t.Errorf("%q becomes %q, want %q", identity, got, want)
		}
	}
	denyOften(t, n, "per_client", "x; reboot", 3)
	if f := n.Status().Summary[0]; strings.Contains(f.Do, "reboot") || !strings.Contains(f.Text, "denies x; reboot") {
		t.Errorf("%+v", f)
	}
}

// Lines that a log lost are a finding for some minutes, not until the next start.
func TestLostLinesAreForgiven(t *testing.T) {
	var l losses
	at := time.Unix(1e9, 0)
	found := func(after time.Duration, failures uint64) int {
		return len(l.recent(map[string]uint64{"access": failures, "decision": 0}, at.Add(after)))
	}
	for i, step := range []struct {
		after    time.Duration
		failures uint64
		want     int
	}{{0, 0, 0}, {time.Second, 3, 1}, {lossesLast, 3, 1}, {lossesLast + 2*time.Second, 3, 0},
		{2 * lossesLast, 4, 1}, {4 * lossesLast, 4, 0}} {
		if got := found(step.after, step.failures); got != step.want {
			t.Errorf("step %d: %d findings, want %d", i, got, step.want)
		}
	}
}
