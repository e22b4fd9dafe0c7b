package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const explainRules = `
domain: edge
descriptors:
  - key: path
    value: /login
    descriptors:
      - {key: remote_address, deny: [192.0.2.66],
          rate_limit: {name: login, window: 10s, requests_per_unit: 5, replaces: [{name: per_ip}]}}
  - {key: path, value: /static/*, rate_limit: {name: static, unit: second, requests_per_unit: 500}}
  - {key: remote_address, rate_limit: {name: per_ip, unit: minute, requests_per_unit: 100}}
  - {key: plan, value: gold, rate_limit: {name: gold, unlimited: true}}
`

func TestExplain(t *testing.T) {
	s := mustParse(t, explainRules)
	for _, tt := range []struct {
		req  Request
		want []string // for each layer what is in its text
	}{
		{Request{Domain: "edge", Descriptors: [][]Entry{{{"path", "/login"}, {"remote_address", "192.0.2.66"}},
			{{"remote_address", "192.0.2.66"}}}}, []string{
			`"path" with value "/login": met by its exact value|"remote_address" with value "192.0.2.66": met by the ` +
				`bare key|login|deny|remote_address=192.0.2.66`,
			`met by the bare key|per_ip|replaced by login`,
		}},
		{Request{Domain: "edge", Descriptors: [][]Entry{{{"path", "/static/a.css"}}}}, []string{
			`met by "/static/*", the first wildcard|static|path=/static/a.css`}},
		{Request{Domain: "edge", Descriptors: [][]Entry{{{"path", "/"}}, {{"user", "x"}}, {{"path", "/login"}},
			{{"plan", "gold"}, {"deeper", "x"}}}}, []string{
			"no descriptor of this key has the value|the nearest rule is static: it needs " +
				"(path=/static/*)|no rule",
			"no descriptor here has this key, but path, plan, remote_address|no rule",
			"there is no rate_limit at this level|the nearest rule is login: it needs " +
				"(path=/login, remote_address)|no rule",
			"nothing is beneath|the nearest rule is gold: it needs (plan=gold)|no rule",
		}},
		{Request{Domain: "edge", Descriptors: [][]Entry{{{"remote_adress", "192.0.2.1"}}}}, []string{
			`but path, plan, remote_address: did you mean "remote_address"?|the nearest rule is per_ip: ` +
				`it needs (remote_address)|no rule`}},
		{Request{Domain: "egde", Descriptors: [][]Entry{{{"path", "/"}}}},
			[]string{`no file has domain "egde": did you mean "edge"?|no rule`}},
		{Request{Domain: "nowhere", Descriptors: [][]Entry{{{"path", "/"}}}},
			[]string{`no file has domain "nowhere"|no rule`}},
		{Request{Rule: "per_ip", Identity: "2001:db8::1"}, []string{"named by the " +
			"request|per_ip|remote_address=2001:db8::/64"}},
	} {
		layers, err := s.Explain(&tt.req, Secret{}, time.Time{})
		if err != nil || len(layers) != len(tt.want) {
			t.Errorf("%+v: %d layers, %v", tt.req, len(layers), err)
			continue
		}
		for i, l := range layers {
			text := fmt.Sprint(l.Why)
			if l.Rule == nil {
				text += " no rule"
			} else {
				text += " " + l.Rule.Name
			}
			if l.ReplacedBy != nil {
				text += " replaced by " + l.ReplacedBy.Name
			}
			if l.Listed == DenyListed {
				text += " deny"
			}
			for _, e := range l.Counted {
				text += " " + e.Key + "=" + e.Value
			}
			for part := range strings.SplitSeq(tt.want[i], "|") {
				if !strings.Contains(text, part) {
					t.Errorf("layer %d of %+v is\n\t%s\nwhich does not say %q", i, tt.req, text, part)
				}
			}
		}
	}
	if _, err := s.Explain(&Request{Rule: "nobody"}, Secret{}, time.Time{}); !errors.Is(err, ErrUnknownRule) {
		t.Errorf("an unknown rule: %v", err)
	}
	if _, err := s.Explain(&Request{}, Secret{}, time.Time{}); !errors.Is(err, ErrInvalidRequest) {
		t.Errorf("nothing: %v", err)
	}
}

// What is explained is what happens.
func TestExplainAgreesWithMatch(t *testing.T) {
	s := mustParse(t, explainRules)
	entry := rapid.Custom(func(t *rapid.T) Entry {
		return Entry{rapid.SampledFrom([]string{"path", "remote_address", "plan", "user"}).Draw(t, "key"),
			rapid.SampledFrom([]string{"", "/login", "/static/x", "192.0.2.66", "gold"}).Draw(t, "value")}
	})
	rapid.Check(t, func(t *rapid.T) {
		req := Request{
			Domain: "edge", Descriptors: rapid.SliceOfN(rapid.SliceOfN(entry, 1, 3), 1, 3).Draw(t, "descriptors"),
		}
		matches := matched(t, s, &req, testSecret)
		layers, err := s.Explain(&req, Secret{}, time.Time{})
		testkit.Must(t, err)
		for i, l := range layers {
			rule := l.Rule
			if l.ReplacedBy != nil {
				rule = nil
			}
			if rule != matches[i].Rule || rule != nil && l.Listed != matches[i].Listed {
				t.Fatalf("layer %d of %v is explained as %v %v, and is %v", i, req.Descriptors, rule, l.Listed,
					matches[i])
			}
		}
	})
}
