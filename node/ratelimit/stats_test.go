package ratelimit_test

import (
	"bytes"
	_ "embed"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/ratelimit"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

var (
	//go:embed testdata/rules.yaml
	ruleFile []byte
	// counted is what envoyproxy/ratelimit (January 2026) sent to statsd for the requests of TestCountsAsMeasured.
	//go:embed testdata/counted.txt
	counted string
)

func parse(t testing.TB, text []byte) *rules.Set {
	t.Helper()
	set, err := rulefile.Options{Algorithm: "fixed_window"}.Parse("rules.yaml", text)
	testkit.Must(t, err)
	return set
}

// server decides as envoyproxy/ratelimit does within one window: each descriptor by itself, and denials count.
type server struct {
	set   *rules.Set
	stats *ratelimit.Stats
	used  map[string]uint64
}

func newServer(t testing.TB, opt ratelimit.Options) *server {
	s := &server{parse(t, ruleFile), ratelimit.NewStats(opt), make(map[string]uint64)}
	s.stats.SetRules(s.set.Rules())
	return s
}

// ask asks about descriptors as in "v=1,w=2".
func (s *server) ask(t testing.TB, domain string, hits uint64, descriptors ...string) {
	t.Helper()
	s.stats.Requests.Add(1)
	req := rules.Request{Domain: domain}
	for _, d := range descriptors {
		req.Descriptors = append(req.Descriptors, entries(d))
	}
	matches, err := s.set.Match(&req, rules.Secret{}, nil)
	if err != nil {
		s.stats.ServiceErrors.Add(1)
		return
	}
	if !s.set.HasDomain(domain) {
		s.stats.DomainNotFound(domain, len(descriptors))
		return
	}
	for i, m := range matches {
		if m.Rule != nil && m.Rule.Limit != nil {
			s.count(&ratelimit.Hit{Domain: domain, Entries: req.Descriptors[i], Rule: m.Rule, Limit: m.Rule.Limit.Max(),
				Hits: hits}, fmt.Sprint(m.Rule.FullName, m.Key))
		}
	}
}

func (s *server) count(h *ratelimit.Hit, key string) {
	h.Before = s.used[key]
	s.used[key] += h.Hits
	s.stats.Count(h)
}

func entries(descriptor string) (list []rules.Entry) {
	for pair := range strings.SplitSeq(descriptor, ",") {
		key, value, _ := strings.Cut(pair, "=")
		list = append(list, rules.Entry{Key: key, Value: value})
	}
	return list
}

// nonZero returns the statistics of the service that are not zero, a line each.
func nonZero(s *ratelimit.Stats) string {
	var b strings.Builder
	s.Each(func(name string, value uint64) {
		if value > 0 && strings.HasPrefix(name, "ratelimit.service.") {
			fmt.Fprintln(&b, name, value)
		}
	})
	return b.String()
}

func TestCountsAsMeasured(t *testing.T) {
	s := newServer(t, ratelimit.Options{Loads: func() (ok, failed uint64) { return 1, 0 }})
	const domain = "edge:1"
	for _, hits := range []uint64{3, 4, 1, 1, 5, 2, 0} {
		s.ask(t, domain, hits, "plain=x")
	}
	for _, hits := range []uint64{2, 4, 1} {
		s.ask(t, domain, hits, "path=/a:b|10.1.2.3")
	}
	s.ask(t, domain, 1, "detailed=val:1", "detailed=", "wild=foobar", "wildvalue=foobar", "share=s1", "share=s2")
	s.ask(t, domain, 1, "sharedetailed=s1,below=x", "sharedetailed=s2,below=")
	s.ask(t, domain, 1, "v=1,w=2", "v=1,exact=e", "v=,w=2", "free=1", "v=1", "nothing=1")
	s.ask(t, domain, 1, "quota=1")
	s.ask(t, domain, 1, "quota=1")
	s.ask(t, domain, 1, "replacing=1", "replaced=1")
	s.count(&ratelimit.Hit{Domain: domain, Entries: entries("plain=o,more="), Limit: 2, Hits: 1}, "override")
	s.ask(t, "other|domain", 1, "plain=x", "plain=y")
	s.ask(t, "", 1, "plain=x")
	s.ask(t, domain, 1)
	if got := nonZero(s.stats); got != counted {
		t.Errorf("counted\n%s\nenvoyproxy/ratelimit counts\n%s", got, counted)
	}
}

// TestHitsFallOnBothSidesOfALimit compares with a model that looks at each hit by itself.
func TestHitsFallOnBothSidesOfALimit(t *testing.T) {
	rule := &rules.Rule{Place: rules.Place{Domain: "d"}, Policy: rules.Policy{Mode: counters.Shadow}}
	for limit := range uint64(12) {
		near := limit * 8 / 10
		for before := range limit + 3 {
			for hits := range limit + 5 {
				s := ratelimit.NewStats(ratelimit.Options{})
				s.SetRules([]*rules.Rule{rule})
				s.Count(&ratelimit.Hit{Domain: "d", Rule: rule, Limit: limit, Before: before, Hits: hits})
				want := map[string]uint64{"total_hits": hits}
				for nth := before + 1; nth <= before+hits; nth++ {
					if nth > limit {
						want["over_limit"]++
						want["shadow_mode"]++
					} else if nth > near {
						want["near_limit"]++
					}
				}
				if before+hits <= limit {
					want["within_limit"] = hits
				}
				s.Each(func(name string, value uint64) {
					last, ok := strings.CutPrefix(name, "ratelimit.service.rate_limit.d.")
					if ok && value != want[last] {
						t.Errorf("limit %d, %d used, %d hits: %s is %d, want %d", limit, before, hits, last, value,
							want[last])
					}
				})
			}
		}
	}
}

func TestNamesHaveABudget(t *testing.T) {
	var log bytes.Buffer
	s := newServer(t, ratelimit.Options{MaxNameBytes: 10_000, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	const asked = 1000
	for i := range asked {
		s.ask(t, "edge:1", 1, fmt.Sprintf("detailed=%d", i))
		s.ask(t, fmt.Sprint("unknown", i), 1, "x=1")
	}
	s.ask(t, "edge:1", 1, "detailed=0") // a known name counts on
	own, named, known := uint64(0), 0, uint64(0)
	s.stats.Each(func(name string, value uint64) {
		switch {
		case name == "ratelimit.service.rate_limit.edge_1.detailed.total_hits":
			own = value
		case name == "ratelimit.service.rate_limit.edge_1.detailed_0.total_hits":
			known = value
		case strings.HasSuffix(name, ".total_hits") && value > 0, strings.HasSuffix(name, ".domain_not_found"):
			named++
		}
	})
	if known != 2 || named < 20 || named > 40 {
		t.Errorf("%d names, the first counted %d times; want 20 to 40, and 2", named, known)
	}
	if unnamed := s.stats.Unnamed(); own == 0 || unnamed != 2*asked-uint64(named)-1 {
		t.Errorf("%d counted under the rule, %d without a name of their own", own, unnamed)
	}
	if lines := strings.Count(log.String(), "no room"); lines != 1 {
		t.Errorf("%d lines in a minute:\n%s", lines, log.String())
	}
}

func TestLongNamesHaveNoRoom(t *testing.T) {
	s := newServer(t, ratelimit.Options{Logger: slog.New(slog.DiscardHandler)})
	s.ask(t, "edge:1", 1, "detailed="+strings.Repeat("x", 2000))
	s.ask(t, strings.Repeat("x", 2000), 1, "detailed=1")
	s.count(&ratelimit.Hit{Domain: "edge:1", Entries: entries(strings.Repeat("x", 2000)), Limit: 1, Hits: 1}, "")
	const want = "ratelimit.service.hits_without_name 3\nratelimit.service.rate_limit.edge_1.detailed.total_hits 1\n" +
		"ratelimit.service.rate_limit.edge_1.detailed.within_limit 1\n"
	if got := nonZero(s.stats); got != want || s.stats.Unnamed() != 3 {
		t.Errorf("%d unnamed, and\n%s", s.stats.Unnamed(), got)
	}
}

func TestCountsStayWhenRulesChange(t *testing.T) {
	s := newServer(t, ratelimit.Options{})
	s.ask(t, "edge:1", 2, "plain=x")
	s.set = parse(t, bytes.Replace(ruleFile, []byte("requests_per_unit: 10"), []byte("requests_per_unit: 20"), 1))
	s.stats.SetRules(s.set.Rules())
	s.ask(t, "edge:1", 3, "plain=x")
	if got := nonZero(s.stats); !strings.Contains(got, "edge_1.plain.total_hits 5\n") {
		t.Errorf("after a reload:\n%s", got)
	}
}

// Names of rules that are gone are, too, unless another rule's name is the same when it is sent.
func TestNamesGoWithTheirRules(t *testing.T) {
	s := newServer(t, ratelimit.Options{})
	rule := func(value string) string {
		return fmt.Sprintf("  - {key: k, value: %q, rate_limit: {unit: hour, requests_per_unit: 9}}\n", value)
	}
	use := func(rules string) {
		s.set = parse(t, []byte("domain: d\ndescriptors:\n"+rules))
		s.stats.SetRules(s.set.Rules())
	}
	use(rule("a:b") + rule("a_b") + rule("c"))
	s.ask(t, "d", 1, "k=a:b", "k=a_b", "k=c")
	use(rule("a_b"))
	s.ask(t, "d", 1, "k=a_b")
	const want = "ratelimit.service.rate_limit.d.k_a_b.total_hits 3\n" +
		"ratelimit.service.rate_limit.d.k_a_b.within_limit 3\n"
	if got := nonZero(s.stats); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	s.stats.SetRules(nil)
	s.stats.Each(func(name string, _ uint64) {
		if strings.Contains(name, ".rate_limit.") {
			t.Errorf("%s is still there", name)
		}
	})
}

func TestKnownNamesAllocateNothing(t *testing.T) {
	s := newServer(t, ratelimit.Options{})
	for _, descriptor := range []string{"plain=x", "detailed=y", "v=1,w=2"} {
		req := rules.Request{Domain: "edge:1", Descriptors: [][]rules.Entry{entries(descriptor)}}
		matches, err := s.set.Match(&req, rules.Secret{}, nil)
		testkit.Must(t, err)
		h := ratelimit.Hit{Domain: "edge:1", Entries: req.Descriptors[0], Rule: matches[0].Rule, Limit: 10, Hits: 1}
		s.stats.Count(&h)
		s.stats.DomainNotFound("unknown", 1)
		if n := testing.AllocsPerRun(200, func() {
			s.stats.Count(&h)
			s.stats.DomainNotFound("unknown", 1)
		}); n > 0 {
			t.Errorf("%s: %v allocations", descriptor, n)
		}
	}
}
