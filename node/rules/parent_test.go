package rules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const elasticRules = `
domain: edge
descriptors:
  - key: tenant
    deny: [192.0.2.66]
    rate_limit: {name: tenant, unit: minute, requests_per_unit: 1000}
    descriptors:
      - key: user
        allow: [192.0.2.1]
        rate_limit: {name: user, unit: minute, requests_per_unit: 10, mode: elastic, parent: tenant}
      - {key: trial, shadow_mode: true,
          rate_limit: {name: trial, unit: minute, requests_per_unit: 10, mode: elastic, parent: tenant}}
  - {key: all, value: requests, rate_limit: {name: pool, unit: minute, requests_per_unit: 5000}}
  - {key: client, rate_limit: {name: client, unit: minute, requests_per_unit: 10, mode: elastic, parent: pool}}
  - {key: path, rate_limit: {name: path, unit: minute, requests_per_unit: 100}}
  - {key: agent, rate_limit: {name: agent, unit: minute, requests_per_unit: 10, mode: elastic, parent: path}}
  - {key: partner, rate_limit: {name: partner, unit: minute, requests_per_unit: 10, replaces: [{name: tenant}]}}
  - {key: vip, rate_limit: {name: vip, unit: minute, requests_per_unit: 10, replaces: [{name: user}]}}
`

// lendersOf writes what a request meets: names, in brackets whom they borrow from.
func lendersOf(layers []Match) string {
	var names []string
	for _, m := range layers {
		name := "-"
		if m.Rule != nil {
			name = m.Rule.Name
		}
		if m.Listed != Unlisted {
			name += map[Listing]string{AllowListed: " allowed", DenyListed: " denied"}[m.Listed]
		}
		if m.lender > 0 {
			name += fmt.Sprintf("(%d)", m.lender)
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// A parent is met beside its child: as a layer of its own, or without being named where its key is known.
func TestElasticRulesMeetTheirParents(t *testing.T) {
	s := mustParse(t, elasticRules)
	for text, want := range map[string]string{
		"tenant=a,user=x":                                   "user(2) tenant",
		"tenant=a,user=x;path=/":                            "user(3) path tenant",
		"tenant=a;tenant=a,user=x":                          "tenant user(1)",
		"tenant=b;tenant=a,user=x":                          "tenant user(3) tenant", // another tenant
		"tenant=a,user=x;tenant=a,user=y":                   "user(3) user(3) tenant",
		"tenant=a,user=x;client=z;tenant=b,user=x;client=y": "user(5) client(6) user(7) client(6) tenant pool tenant",
		"client=z":                  "client(2) pool",
		"client=z;all=requests":     "client(2) pool",
		"agent=z":                   "agent", // the path is not known
		"agent=z;path=/":            "agent(2) path",
		"tenant=a,trial=x":          "trial",
		"tenant=a,user=192.0.2.1":   "user allowed",
		"tenant=192.0.2.66,user=x":  "user(2) tenant denied",
		"tenant=a,user=x;partner=p": "user partner", // the parent is replaced
		"tenant=a,user=x;vip=p":     "- vip",
		"tenant=a":                  "tenant",
	} {
		req := Request{Domain: "edge"}
		for descriptor := range strings.SplitSeq(text, ";") {
			var entries []Entry
			for e := range strings.SplitSeq(descriptor, ",") {
				key, value, _ := strings.Cut(e, "=")
				entries = append(entries, Entry{key, value})
			}
			req.Descriptors = append(req.Descriptors, entries)
		}
		layers, err := s.Match(&req, testSecret, make([]Match, 1))
		testkit.Must(t, err)
		if got := lendersOf(layers[1:]); got != want {
			t.Errorf("%s meets %s, want %s", text, got, want)
		}
		explained, err := s.Explain(&req, Secret{}, time.Time{})
		if err != nil || len(explained) != len(layers)-1 {
			t.Fatalf("%s: %d layers are explained, want %d (%v)", text, len(explained), len(layers)-1, err)
		}
	}
}

// The key of a parent that a request implies is that of a request which names it.
func TestImpliedParentsHaveTheirOwnKey(t *testing.T) {
	s := mustParse(t, elasticRules)
	match := func(req Request) []Match {
		t.Helper()
		got := matched(t, s, &req, testSecret)
		return got
	}
	implied := match(Request{Domain: "edge", Descriptors: [][]Entry{{{"tenant", "a"}, {"user", "x"}}}})
	named := match(Request{Domain: "edge", Descriptors: [][]Entry{{{"tenant", "a"}}}})
	if implied[1].Key != named[0].Key || implied[1].Key == implied[0].Key {
		t.Errorf("%v, want the key of %v", implied, named)
	}
	client := match(Request{Rule: "client", Identity: "z"})
	pool := match(Request{Rule: "pool"})
	if got := lendersOf(client); got != "client(2) pool" || client[1].Key != pool[0].Key {
		t.Errorf("by rule and identity: %s, with the key %v, want %v", got, client[1].Key, pool[0].Key)
	}
	req := Request{Rule: "client", Identity: "z"}
	ch := client[0].Charge(&req, 0)
	if ch.Mode != counters.Elastic || ch.Lender != 2 || client[1].Charge(&req, 0).Limit != pool[0].Rule.Limit {
		t.Errorf("it is charged %+v", ch)
	}
}

func TestTooManyLimitsWithParents(t *testing.T) {
	s := mustParse(t, elasticRules)
	req := Request{Domain: "edge"}
	for i := range MaxDescriptors - 1 {
		req.Descriptors = append(req.Descriptors, []Entry{{"client", fmt.Sprint(i)}})
	}
	if got, err := s.Match(&req, testSecret, nil); err != nil || len(got) != MaxDescriptors {
		t.Errorf("as many as there may be: %d, %v", len(got), err)
	}
	req.Descriptors = append(req.Descriptors, []Entry{{"client", "one too many"}})
	if got, err := s.Match(&req, testSecret, nil); err == nil || got != nil ||
		!strings.Contains(err.Error(), "more than 32 limits") {
		t.Errorf("one more: %d, %v", len(got), err)
	}
}

func TestExplainParents(t *testing.T) {
	s := mustParse(t, elasticRules)
	layers, err := s.Explain(
		&Request{Domain: "edge", Descriptors: [][]Entry{{{"tenant", "a"}, {"user", "x"}}, {{"agent", "z"}}}},
		Secret{}, time.Time{})
	if err != nil || len(layers) != 3 {
		t.Fatalf("%+v, %v", layers, err)
	}
	for i, want := range []string{"borrows from tenant", "its parent path is not met by this request",
		"brought along by user"} {
		if got := fmt.Sprint(layers[i].Why); !strings.Contains(got, want) {
			t.Errorf("layer %d: %s, want %s", i, got, want)
		}
	}
	if l := layers[2]; l.Rule.Name != "tenant" || fmt.Sprint(l.Entries) != "[{tenant a}]" ||
		fmt.Sprint(l.Counted) != "[{tenant a}]" {
		t.Errorf("the parent is explained as %+v", l)
	}
}

func TestDiffSeesParents(t *testing.T) {
	other := strings.Replace(elasticRules, "mode: elastic, parent: pool", "mode: elastic, max_pressure: 0.3", 1)
	changes := Diff(mustParse(t, elasticRules), mustParse(t, other))
	if len(changes) != 1 || changes[0].Kind != PolicyChanged || changes[0].Counts != "kept" ||
		!strings.Contains(changes[0].Old, "borrows from pool") ||
		!strings.Contains(changes[0].New, "more up to a pressure of 0.3") {
		t.Errorf("%+v", changes)
	}
}

func TestMatchOfElasticRulesAllocatesNothing(t *testing.T) {
	s := mustParse(t, elasticRules)
	dst := make([]Match, 0, 4)
	for _, req := range []Request{
		{Domain: "edge", Descriptors: [][]Entry{{{"tenant", "192.0.2.2"}, {"user", "192.0.2.3"}}}},
		{Rule: "client", Identity: "z"},
	} {
		if n := testing.AllocsPerRun(200, func() { dst, _ = s.Match(&req, testSecret, dst[:0]) }); n != 0 {
			t.Errorf("%+v: %v allocations", req, n)
		}
	}
}

func TestIdleAt(t *testing.T) {
	s := mustParse(
		t,
		"domain: d\ndescriptors:\n- {key: ip, deny: [192.0.2.1], rate_limit: {unit: day, requests_per_unit: 1, mode: "+
			"elastic, max_pressure: 0.3}}\n"+
			"- {key: hard, rate_limit: {unit: day, requests_per_unit: 1}}\n",
	)
	for _, tt := range []struct {
		key, value string
		pressure   float64
		want       bool
	}{
		{"ip", "192.0.2.2", 0, true}, {"ip", "192.0.2.2", 0.3, true}, {"ip", "192.0.2.2", 0.31, false},
		{"ip", "192.0.2.1", 0, false},
		{"hard", "x", 0, false}, {"nothing", "x", 0, false},
	} {
		got, err := s.Match(&Request{Domain: "d", Descriptors: [][]Entry{{{tt.key, tt.value}}}}, testSecret, nil)
		if err != nil || got[0].IdleAt(tt.pressure) != tt.want {
			t.Errorf("%+v: %v, %v", tt, got, err)
		}
	}
}
