package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

// request goes to every API.
type request struct {
	layers []layer
	cost   uint64 // 0: a peek
}

// layer is a descriptor of one entry.
type layer struct{ key, value string }

func (q request) String() string { return fmt.Sprintf("%v for %d", q.layers, q.cost) }

// answer is the part of a decision that an API reports. A number that it does not report is -1, as is the limit if no
// rule matched.
type answer struct {
	allowed   bool
	rule      string // of the layer that governs; "?" if the API does not report it
	limit     int64
	remaining int64
	retry     wait
}

// wait is how long to wait for the same to be admitted.
type wait int

const (
	none wait = iota
	some
	forever
	unknown
)

// need is what a scenario demands of an API beyond requests that cost 1 in one layer.
type need uint

const (
	costs  need = 1 << iota // any cost
	peeks                   // cost 0
	layers                  // several descriptors in a request
	rules                   // any rule, not only a bucket that the client describes
)

// scenario is a rule file and the requests under it.
type scenario struct {
	name     string
	needs    need
	rules    string
	requests []request
}

// limits are the model's rules: what a request with that key may use of it.
var limits = map[string]int64{"client": 10, "path": 25, "shadow": 3}

// ruleFile gives all keys a rule of one algorithm, and some of them one that Redis decides on.
func ruleFile(algorithm string, strict ...string) string {
	var b strings.Builder
	b.WriteString("domain: edge\ndescriptors:\n")
	for _, key := range []string{"client", "path", "shadow"} {
		who := ""
		if slices.Contains(strict, key) {
			who = strictly
		}
		// The one thing in which APIs differ by default, as Envoy's charges after the fact: overdraw.
		fmt.Fprintf(
			&b,
			"  - {key: %s, shadow_mode: %v, rate_limit: {name: per_%s, unit: year, requests_per_unit: %d, algorithm: "+
				"%s, "+
				"overdraw: deny%s}}\n",
			key,
			key == "shadow",
			key,
			limits[key],
			algorithm, who,
		)
	}
	return b.String()
}

var algorithms = []string{"fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket"}

func scenarios() (all []scenario) {
	for i, a := range algorithms {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		who := func(key string, of int) layer { return layer{key, fmt.Sprintf("%s-%d", key, r.IntN(of))} }
		add := func(name string, needs need, n int, draw func() request) {
			s := scenario{name: a + "/" + name, needs: needs, rules: ruleFile(a)}
			if a != "token_bucket" {
				s.needs |= rules
			}
			for range n {
				s.requests = append(s.requests, draw())
			}
			all = append(all, s)
		}
		add("one client until it is denied", 0, 14, func() request { return request{[]layer{{"client", "x"}}, 1} })
		add("clients", 0, 60, func() request { return request{[]layer{who("client", 4)}, 1} })
		add("no rule", rules, 3, func() request { return request{[]layer{who("stranger", 2)}, 1} })
		add("shadow", rules, 9, func() request { return request{[]layer{who("shadow", 1)}, 1} })
		add("costs", costs, 60, func() request { return request{[]layer{who("client", 3)}, 1 + r.Uint64N(5)} })
		add("more than there ever is", costs, 3, func() request { return request{[]layer{who("client", 2)}, 11} })
		add("peeks", costs|peeks, 80, func() request { return request{[]layer{who("client", 3)}, r.Uint64N(4)} })
		add("layers", rules|layers, 80, func() request { return request{[]layer{who("client", 6), who("path", 2)}, 1} })
		add("layers, some without a rule", rules|layers, 40, func() request {
			return request{[]layer{who("stranger", 2), who("client", 3), who("shadow", 1)}, 1}
		})
		add("layers at costs", rules|layers|costs, 60, func() request {
			return request{[]layer{who("path", 2), who("client", 6)}, 1 + r.Uint64N(4)}
		})
		add("layers, peeked at", rules|layers|costs|peeks, 60, func() request {
			return request{[]layer{who("path", 2), who("client", 6)}, r.Uint64N(4)}
		})
		strict := [][]string{{"client", "shadow"}, {"path"}, {"client", "path", "shadow"}}[i%3]
		add(fmt.Sprintf("layers, strict: %v", strict), rules|layers, 40, func() request {
			return request{[]layer{who("shadow", 1), who("client", 4), who("path", 2)}, 1}
		})
		all[len(all)-1].rules = ruleFile(a, strict...)
		add(fmt.Sprintf("layers at costs, strict: %v", strict), rules|layers|costs|peeks, 60, func() request {
			return request{[]layer{who("path", 2), who("client", 6)}, r.Uint64N(4)}
		})
		all[len(all)-1].rules = ruleFile(a, strict...)
		add("strict clients", rules, 40, func() request { return request{[]layer{who("client", 3)}, 1} })
		all[len(all)-1].rules = ruleFile(a, "client")
	}
	return all
}

// strictly is what a rule has that Redis decides on.
const strictly = ", consistency: strict, scope: region"

// redisServer is the Redis of the nodes with strict rules.
var redisServer *regionstest.Server

// TestConformance sends every API all requests that it can express.
func TestConformance(t *testing.T) {
	redisServer = regionstest.StartRedis(t)
	for _, d := range apis {
		t.Run(d.name, func(t *testing.T) {
			sent, denied := 0, 0
			for _, s := range scenarios() {
				if s.needs&^d.can != 0 {
					continue
				}
				t.Run(s.name, func(t *testing.T) {
					ask := d.open(t, s.rules)
					m := make(model)
					for i, q := range s.requests {
						want, got := m.decide(q), ask(t, q)
						if err := want.differs(got); err != nil {
							t.Fatalf("request %d, %v: %v", i+1, q, err)
						}
						if sent++; !got.allowed {
							denied++
						}
					}
				})
			}
			if sent < 130 || denied < 30 {
				t.Errorf("%d requests, %d denials: too few", sent, denied)
			}
		})
	}
}
