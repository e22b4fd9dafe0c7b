package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/client"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// served is the URL of the HTTP door of a node with some rules, which runs until the test ends.
func served(t *testing.T) string {
	t.Helper()
	set, err := rulefile.Parse("test.yaml", []byte(`
domain: edge
descriptors:
  - {key: client, rate_limit: {name: per_client, unit: minute, requests_per_unit: 3}}
  - {key: password, rate_limit: {name: passwords, unit: minute, requests_per_unit: 1, ban: 1h}}
  - {key: path, value: /login,
     descriptors: [{key: client, rate_limit: {name: login, window: 10s, requests_per_unit: 1}}]}
`))
	testkit.Must(t, err)
	cfg := node.DefaultConfig()
	cfg.HTTP, cfg.Health, cfg.RuleSet, cfg.Logger = "127.0.0.1:0", "", set, slog.New(slog.DiscardHandler)
	n, err := node.New(cfg)
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections() // of the command's client, which uses the default transport
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	eventually(t, "ready", func() bool { return n.Ready() == nil })
	return "http://" + n.Addr("http")
}

func TestCheckAsksANode(t *testing.T) {
	url := served(t)
	ask := func(args ...string) result { return edgelimit(t, append([]string{"check", "--url", url}, args...)...) }

	ask("--rule", "per_client", "--identity", "x").says(t, 0, "allowed by per_client: 2 of 3 left, all of it again in ")
	ask("--domain", "edge", "client=x").says(t, 0, "allowed by per_client: 1 of 3 left")
	ask("--rule", "per_client", "--identity", "x", "--peek").says(t, 0, "1 of 3 left")
	ask(
		"--rule", "per_client", "--identity", "x", "--cost", "2",
	).says(t, 1, "denied by per_client: 1 of 3 left, try again in ")
	ask(
		"--rule", "per_client", "--identity", "x", "--cost", "4",
	).says(t, 1, "denied by per_client: more than its limit of 3 can ever admit")
	ask("--rule", "per_client", "--identity", "x").says(t, 0, "0 of 3 left")
	ask("--rule", "per_client", "--identity", "x").says(t, 1, "denied by per_client: 0 of 3 left, try again in ")
	ask("--domain", "nowhere", "client=x").says(t, 0, "allowed: no rule limits this")

	// Several descriptors, one of two entries: all or nothing.
	ask("--domain", "edge", "path=/login,client=y", "client=y").says(t, 0, "allowed by login: 0 of 1 left")
	ask("--domain", "edge", "path=/login,client=y", "client=y").says(t, 1, "denied by login")
	ask("--domain", "edge", "client=y").says(t, 0, "1 of 3 left")

	ask("--rule", "passwords", "--identity", "x").says(t, 0, "0 of 1 left")
	ask("--rule", "passwords", "--identity", "x").says(t, 1, "denied by passwords: ")
	ask("--rule", "passwords", "--identity", "x").says(t, 1, "denied by passwords: banned, try again in ")
	ask("--rule", "passwords", "--identity", "x", "--json").says(t, 1, `"banned":true`)

	for _, args := range [][]string{{"--rule", "nonsense"}, {"--rule", "per_client"}, {"--domain", "edge", "client=x",
		"=y"},
		{"--rule", "per_client", "--identity", "x", "client=x"}} {
		ask(args...).says(t, 2, "the node refused: ")
	}
	ask("--rule", "nonsense", "--identity", "x").says(t, 2, "Not Found", "unknown rule", `"nonsense"`)
}

func TestCheckJSON(t *testing.T) {
	url := served(t)
	for i, code := range []int{0, 0, 0, 1} {
		r := edgelimit(t, "check", "--url", url+"/", "--json", "--rule", "per_client", "--identity", "x")
		r.says(t, code)
		var got struct {
			Allowed   bool
			Rule      string
			Remaining int
		}
		if err := json.Unmarshal([]byte(r.out), &got); err != nil {
			t.Fatalf("it prints %q: %v", r.out, err)
		}
		if got.Allowed != (code == 0) || got.Rule != "per_client" || got.Remaining != max(0, 2-i) {
			t.Errorf("request %d: %s", i+1, r.out)
		}
		if strings.Count(r.out, "\n") != 1 {
			t.Errorf("it prints %q, want one line", r.out)
		}
	}
}

// The domain of descriptors is that of the rules, if they have only one.
func TestCheckWithoutADomain(t *testing.T) {
	edgelimit(t, "check", "--url", served(t), "client=x").says(t, 0, "allowed by per_client: 2 of 3 left")
}

// The address may come from the environment; a flag goes over it.
func TestCheckURL(t *testing.T) {
	url := served(t)
	t.Setenv("EDGELIMIT_URL", url)
	edgelimit(t, "check", "--rule", "per_client", "--identity", "x").says(t, 0, "allowed")
	t.Setenv("EDGELIMIT_URL", "http://127.0.0.1:1")
	edgelimit(t, "check", "--rule", "per_client", "--identity", "x").says(t, 2, "127.0.0.1:1")
	edgelimit(t, "check", "--url", url, "--rule", "per_client", "--identity", "x").says(t, 0, "allowed")
}

func TestCheckWithoutANode(t *testing.T) {
	edgelimit(t, "check", "--url", "http://127.0.0.1:1", "--rule", "r").says(t, 2, "is 'edgelimit serve' running?",
		"refused")
	edgelimit(t, "check", "--url", "127.0.0.1:1", "--rule", "r").says(t, 2)
	edgelimit(t, "check").says(t, 2, "--rule and --identity, or descriptors")
	edgelimit(t, "check", "--identity", "x").says(t, 2, "say what to check")
}

// What is no answer of a node is never taken for one: a status of 0 or 1 would be a decision.
func TestCheckStrangers(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		body   string
	}{
		{"a web page", 200, "<html>hello</html>"},
		{"nothing", 200, ""},
		{"another service", 200, `{"status":"ok"}`},
		{"an empty object", 200, `{}`},
		{"null", 200, `null`},
		{"a list", 200, `[{"allowed":true}]`},
		{"allowed that is no truth value", 200, `{"allowed":"yes"}`},
		{"half an answer", 200, `{"allowed":tr`},
		{"more than an answer can be", 200, `{"allowed":true,"rule":"` + strings.Repeat("x", 2<<20) + `"}`},
		{"a proxy's error", 502, "<html>Bad Gateway</html>"},
		{"another service's error", 404, `{"error":"no such route"}`},
		{"a decision with an error's status", 500, `{"allowed":true}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}))
			defer s.Close()
			r := edgelimit(t, "check", "--url", s.URL, "--rule", "r", "--identity", "x")
			if r.says(t, 2, "does not answer like an edgelimit node", fmt.Sprint(test.status)); r.out != "" {
				t.Errorf("it prints %.100q", r.out)
			}
		})
	}
}

func TestCheckDoesNotWaitForEver(t *testing.T) {
	asked := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-asked
	}))
	defer s.Close()
	defer close(asked)
	began := time.Now()
	edgelimit(t, "check", "--url", s.URL, "--timeout", "30ms", "--rule", "r").says(t, 2, " exceeded")
	if took := time.Since(began); took > patience {
		t.Errorf("it took %v", took)
	}
}

// What is asked is what was typed.
func TestCheckBody(t *testing.T) {
	var got, path, kind string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, path, kind = string(b), r.Method+" "+r.URL.Path, r.Header.Get("Content-Type")
		_, _ = io.WriteString(w, `{"allowed":true}`)
	}))
	defer s.Close()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--rule", "r", "--identity", "a b"}, `{"rule":"r","identity":"a b","cost":1}`},
		{[]string{"--rule", "r", "--peek"}, `{"rule":"r","cost":1,"peek":true}`},
		{[]string{"--rule", "r", "--cost", "7"}, `{"rule":"r","cost":7}`},
		{[]string{"--rule", "r", "--cost", "0"}, `{"rule":"r","peek":true}`},
		{[]string{"--domain", "d", "k=v", "a=b=c,d="}, `{"domain":"d","descriptors":[[{"key":"k","value":"v"}],` +
			`[{"key":"a","value":"b=c"},{"key":"d","value":""}]],"cost":1}`},
	} {
		edgelimit(t, append([]string{"check", "--url", s.URL}, test.args...)...).says(t, 0)
		if got != test.want || path != "POST /v1/check" || kind != "application/json" {
			t.Errorf("%q asks %s %s (%s), want %s", test.args, path, got, kind, test.want)
		}
	}
}

// The command reads costs as the API does.
func TestCheckCosts(t *testing.T) {
	var got struct {
		Cost uint64
		Peek bool
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Cost, got.Peek = 0, false
		_ = json.NewDecoder(r.Body).Decode(&got)
		_, _ = io.WriteString(w, `{"allowed":true}`)
	}))
	defer s.Close()
	for _, c := range testkit.Costs {
		asked := edgelimit(t, "check", "--url", s.URL, "--rule", "r", "--cost="+c.Text)
		if !c.OK {
			asked.says(t, 2, "want a whole number")
		} else if asked.says(t, 0); got.Cost != c.Cost || got.Peek != (c.Cost == 0) {
			t.Errorf("--cost=%.30s asks %+v", c.Text, got)
		}
	}
}

func TestAnswerInWords(t *testing.T) {
	for _, test := range []struct {
		answer client.Answer
		want   string
	}{
		{client.Answer{Allowed: true}, "allowed: no rule limits this"},
		{client.Answer{Allowed: true, Rule: "q", Limit: 10, Remaining: 4, ResetAfter: 1500 * time.Millisecond,
			Delay: 250 * time.Millisecond},
			"allowed by q: 4 of 10 left, all of it again in 1.5 s; its turn is in 250 ms"},
		{client.Answer{Allowed: true, Rule: "r", Limit: 10, Remaining: 4, ResetAfter: 1500 * time.Millisecond},
			"allowed by r: 4 of 10 left, all of it again in 1.5 s"},
		{client.Answer{Allowed: true, Rule: "r", Limit: 10, ResetAfter: 1500 * time.Millisecond, Mode: "shadow"},
			"allowed by r: 0 of 10 left, all of it again in 1.5 s (in shadow mode: nothing is denied)"},
		{client.Answer{Rule: "r", Limit: 10, RetryAfter: 250 * time.Millisecond}, "denied by r: 0 of 10 left, try " +
			"again in 250 ms"},
		{client.Answer{Rule: "r", Limit: 10, Remaining: 10, RetryAfter: client.Never}, "denied by r: more than its " +
			"limit of 10 can ever admit"},
		{client.Answer{Rule: "r", Limit: 1, RetryAfter: 61 * time.Second, Degraded: true},
			"denied by r: 0 of 1 left, try again in 61 s (the node cannot see the whole cluster)"},
	} {
		if got := answerText(test.answer); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// What cannot be asked is refused before anything is sent.
func TestCheckRefuses(t *testing.T) {
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"--rule", "r", "--peek", "--cost", "7"}, "--peek"},
		{[]string{"--domain", "d", "remote_address"}, "KEY=VALUE"},
	} {
		edgelimit(t, append([]string{"check"}, test.args...)...).says(t, 2, test.says)
	}
}
