package reference

import (
	"fmt"
	"math/rand/v2"
	"strings"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"go.yaml.in/yaml/v3"
)

const (
	sessions         = 10
	sessionExchanges = 2000
)

// ruleFile, rule and limit are a file as envoyproxy/ratelimit reads it.
type ruleFile struct {
	Domain      string
	Descriptors []*rule
}

type rule struct {
	Key            string
	Value          string  `yaml:",omitempty"`
	RateLimit      *limit  `yaml:"rate_limit,omitempty"`
	Descriptors    []*rule `yaml:",omitempty"`
	ShadowMode     bool    `yaml:"shadow_mode,omitempty"`
	QuotaMode      bool    `yaml:"quota_mode,omitempty"`
	DetailedMetric bool    `yaml:"detailed_metric,omitempty"`
	ValueToMetric  bool    `yaml:"value_to_metric,omitempty"`
	ShareThreshold bool    `yaml:"share_threshold,omitempty"`
}

type limit struct {
	Name            string              `yaml:",omitempty"`
	Unit            string              `yaml:",omitempty"`
	RequestsPerUnit int                 `yaml:"requests_per_unit,omitempty"`
	Unlimited       bool                `yaml:",omitempty"`
	Replaces        []map[string]string `yaml:",omitempty"`
}

// session generates rules, and exchanges that meet them often enough to use them up. The same seed gives the same ones.
type session struct{ *rand.Rand }

func newSession(seed uint64) *session { return &session{rand.New(rand.NewPCG(seed, 0))} }

// chance is true in p of 100 cases.
func (s *session) chance(p int) bool { return s.IntN(100) < p }

// pick returns one of several.
func pick[T any](s *session, all ...T) T { return all[s.IntN(len(all))] }

// The vocabulary is small, so that requests meet rules, and each other.
var (
	domains   = []string{"edge", "inner"}
	keys      = []string{"client", "path", "tenant", "remote_address"}
	values    = []string{"a", "ab", "abc", "b", "ba", "2001:db8::1", "2001:db8::2", "x y", "ü"}
	wildcards = []string{"a*", "ab*", "b*", "2001:*", "*"}
	units     = []string{"second", "minute", "hour", "day", "week", "month", "year"}
)

// files returns a file of rules per domain.
func (s *session) files() map[string]string {
	files := make(map[string]string)
	for _, domain := range domains {
		text, err := yaml.Marshal(ruleFile{Domain: domain, Descriptors: s.rules(1)})
		if err != nil {
			panic(err)
		}
		files[domain+".yaml"] = string(text)
	}
	return files
}

// rules generates the rules of one level, no two of which have the same key and value.
func (s *session) rules(depth int) (all []*rule) {
	taken := make(map[string]bool)
	for range 3 + s.IntN(14/depth) {
		r := &rule{Key: pick(s, keys...)}
		switch {
		case s.chance(35):
			r.Value = pick(s, values...)
		case s.chance(40):
			r.Value = pick(s, wildcards...)
			r.ShareThreshold = s.chance(40)
		}
		if taken[r.Key+"_"+r.Value] {
			continue
		}
		taken[r.Key+"_"+r.Value] = true
		if s.chance(80) {
			r.RateLimit = s.limit()
		}
		r.ShadowMode, r.QuotaMode = s.chance(10), s.chance(10)
		r.DetailedMetric, r.ValueToMetric = s.chance(10), s.chance(10)
		if depth < 3 && s.chance(35) {
			r.Descriptors = s.rules(depth + 1)
		}
		all = append(all, r)
	}
	return all
}

func (s *session) limit() *limit {
	l := &limit{}
	if s.chance(40) {
		l.Name = fmt.Sprintf("n%d", s.IntN(8))
	}
	if s.chance(25) {
		if other := fmt.Sprintf("n%d", s.IntN(8)); other != l.Name {
			l.Replaces = []map[string]string{{"name": other}}
		}
	}
	if s.chance(6) {
		l.Unlimited = true
		return l
	}
	l.Unit, l.RequestsPerUnit = pick(s, units...), s.IntN(40)
	if s.chance(10) {
		l.Unit = strings.ToUpper(l.Unit)
	}
	return l
}

// exchanges returns what both servers are asked.
func (s *session) exchanges() []exchange {
	all := make([]exchange, sessionExchanges)
	for i := range all {
		all[i] = exchange{name: "random", request: s.request()}
	}
	return all
}

func (s *session) request() *rls.RateLimitRequest {
	req := &rls.RateLimitRequest{Domain: pick(s, domains...)}
	if s.chance(2) {
		req.Domain = pick(s, "", "nowhere")
	}
	if s.chance(20) {
		req.HitsAddend = uint32(s.IntN(4))
	}
	for range s.length(1, 60) {
		req.Descriptors = append(req.Descriptors, s.descriptor())
	}
	return req
}

// length returns at least least, and one more each time that chance says so.
func (s *session) length(least, chance int) int {
	for s.chance(chance) {
		least++
	}
	return least
}

func (s *session) descriptor() *descriptor {
	made := new(descriptor)
	if !s.chance(1) {
		for range s.length(1, 30) {
			made.Entries = append(made.Entries, d(pick(s, keys...)+"="+pick(s, values...)).Entries...)
		}
	}
	if s.chance(10) {
		made = limited(uint32(s.IntN(30)), envoytype.RateLimitUnit(1+s.IntN(7)), made)
	}
	switch {
	case s.chance(10):
		made = hits(0, made)
	case s.chance(10):
		made = hits(uint64(s.IntN(12)), made)
	case s.chance(1):
		made = hits(s.Uint64N(1<<40), made)
	}
	return made
}
