package rules

import (
	"fmt"
	"testing"
)

const reachRules = `
domain: edge
descriptors:
  - key: path
    value: /login
    descriptors: [{key: remote_address, rate_limit: {name: login, window: 10s, requests_per_unit: 5}}]
  - {key: path, value: /static/*, rate_limit: {name: static, unit: second, requests_per_unit: 500}}
  - {key: remote_address, rate_limit: {name: per_ip, unit: minute, requests_per_unit: 100}}
  - {key: api, value: v1, rate_limit: {name: v1, unit: minute, requests_per_unit: 100}}
  - {key: api, rate_limit: {name: other, unit: minute, requests_per_unit: 100}}
  - {key: all, value: "yes", rate_limit: {name: all, unit: minute, requests_per_unit: 100}}
  - {key: user, rate_limit: {name: user, unit: minute, requests_per_unit: 1, mode: elastic, parent: all}}
---
domain: edges
descriptors: [{key: plan, rate_limit: {name: plan, unit: minute, requests_per_unit: 100}}]
`

// What a shape can meet is what some request of that shape meets.
func TestReach(t *testing.T) {
	s := mustParse(t, reachRules)
	key := func(k string) Shape { return Shape{Key: k} }
	for _, tt := range []struct {
		shape []Shape
		want  string
	}{
		{[]Shape{key("remote_address")}, "[per_ip]"},
		{[]Shape{key("path")}, "[static]"},
		{[]Shape{key("path"), key("remote_address")}, "[login]"},
		{[]Shape{key("remote_address"), key("path")}, "[]"},
		{[]Shape{key("api")}, "[v1 other]"},
		{[]Shape{{"api", "v1", true}}, "[v1]"},
		{[]Shape{{"api", "v2", true}}, "[other]"},
		{[]Shape{{"path", "/static/a", true}}, "[static]"},
		{[]Shape{{"path", "/", true}, key("remote_address")}, "[]"},
		{[]Shape{key("user")}, "[user all]"}, // its parent comes along
		{[]Shape{key("plan")}, "[]"},
	} {
		if got := fmt.Sprint(s.Reach("edge", tt.shape)); got != tt.want {
			t.Errorf("%v reaches %s, want %s", tt.shape, got, tt.want)
		}
	}
	if got := s.Reach("nowhere", []Shape{key("path")}); len(got) != 0 {
		t.Errorf("an unknown domain reaches %v", got)
	}
}

func TestMiss(t *testing.T) {
	s := mustParse(t, reachRules)
	for _, tt := range []struct {
		domain      string
		descriptors [][]Entry
		want        Miss
	}{
		{"egde", [][]Entry{{{"path", "/"}}}, UnknownDomain},
		{"edge", [][]Entry{{{"remote_adress", "x"}}}, UnknownKey},
		{"edge", [][]Entry{{{"a", "x"}}, {{"b", "x"}}}, UnknownKey},
		{"edge", [][]Entry{{{"a", "x"}}, {{"path", "/about"}}}, NoRule},
		{"edge", [][]Entry{{{"path", "/about"}, {"remote_address", "x"}}}, NoRule},
		{"edge", [][]Entry{{{"path", "/login"}, {"remote_adress", "x"}}}, UnknownKey},
		{"edge", [][]Entry{{{"path", "/login"}}}, NoRule},
		{"edge", [][]Entry{{{"remote_address", "x"}, {"path", "/"}}}, UnknownKey}, // nothing is beneath
	} {
		req := Request{Domain: tt.domain, Descriptors: tt.descriptors}
		if got := s.Miss(&req); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt, got, tt.want)
		}
		if n := testing.AllocsPerRun(100, func() { s.Miss(&req) }); n != 0 {
			t.Errorf("%+v: %v allocations", tt, n)
		}
	}
}

func TestNearestNames(t *testing.T) {
	s := mustParse(t, reachRules)
	if d, k := s.NearestDomain("egde"), s.NearestKey("edge", "remote_adress"); d != "edge" || k != "remote_address" {
		t.Errorf("nearest are %q and %q", d, k)
	}
	if d, k, same := s.NearestDomain("payments"), s.NearestKey("edge", "zzz"), s.NearestKey("edge",
		"path"); d != "" || k != "" || same != "" {
		t.Errorf("nearest are %q, %q and %q, want none", d, k, same)
	}
	if r := s.NearestRule("nowhere", []Entry{{"a", "b"}}); r != nil {
		t.Errorf("the nearest rule of an unknown domain is %v", r)
	}
}
