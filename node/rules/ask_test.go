package rules

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const askRules = `
domain: d
descriptors:
  - {key: a, rate_limit: {name: a, unit: hour, requests_per_unit: 10}}
  - {key: dear, rate_limit: {name: dear, unit: hour, requests_per_unit: 10, cost: 4}}
  - {key: general, rate_limit: {name: general, unit: hour, requests_per_unit: 10}}
  - {key: special, rate_limit: {name: special, unit: hour, requests_per_unit: 10, replaces: [{name: general}]}}
  - key: tenant
    rate_limit: {name: tenant, unit: hour, requests_per_unit: 10}
    descriptors: [{key: user, rate_limit: {name: user, unit: hour, requests_per_unit: 1, mode: elastic,
        parent: tenant}}]
`

func askSet(t *testing.T) *Set {
	t.Helper()
	s := mustParse(t, askRules)
	return s
}

func tenMinutely(t *testing.T) *counters.Limit {
	t.Helper()
	l, err := counters.NewLimit(counters.NewMeter("%override/10/1m0s", counters.SlidingWindow, time.Minute), 10)
	testkit.Must(t, err)
	return l
}

func entries(pairs ...string) (made []Entry) {
	for i := 0; i < len(pairs); i += 2 {
		made = append(made, Entry{pairs[i], pairs[i+1]})
	}
	return made
}

// Each descriptor is charged what it asks for, whatever the request's cost is, and parents the most that their children
// are.
func TestAsks(t *testing.T) {
	user, other, tenant := entries("tenant", "x", "user", "1"), entries("tenant", "x", "user",
		"2"), entries("tenant", "x")
	for name, tt := range map[string]struct {
		descriptors [][]Entry
		asks        []Ask
		want        []uint64
	}{
		"none": {[][]Entry{entries("a", "1"), entries("dear", "1")}, nil, []uint64{7, 28}},
		"each its own": {[][]Entry{entries("a", "1"), entries("dear", "1")}, []Ask{{Cost: 2}, {Cost: 3}},
			[]uint64{2, 12}},
		"a peek": {[][]Entry{entries("a", "1"), entries("a", "2")}, []Ask{{}, {Cost: 1}},
			[]uint64{0, 1}},
		"unmatched": {[][]Entry{entries("b", "1"), entries("a", "2")}, []Ask{{Cost: 5}, {Cost: 1}},
			[]uint64{0, 1}},
		"a parent":                {[][]Entry{user}, []Ask{{Cost: 3}}, []uint64{3, 3}},
		"a parent of two":         {[][]Entry{user, other}, []Ask{{Cost: 3}, {Cost: 5}}, []uint64{3, 5, 5}},
		"and the other way round": {[][]Entry{user, other}, []Ask{{Cost: 5}, {Cost: 3}}, []uint64{5, 3, 5}},
		"a parent that is named":  {[][]Entry{user, tenant}, []Ask{{Cost: 3}, {Cost: 1}}, []uint64{3, 3}},
		"which asks for more":     {[][]Entry{tenant, user}, []Ask{{Cost: 4}, {Cost: 3}}, []uint64{4, 3}},
		"and is peeked at":        {[][]Entry{tenant, user}, []Ask{{}, {Cost: 3}}, []uint64{3, 3}},
		"all peeked at":           {[][]Entry{tenant, user}, []Ask{{}, {}}, []uint64{0, 0}},
	} {
		req := Request{Domain: "d", Descriptors: tt.descriptors, Asks: tt.asks, Cost: 7}
		layers, err := askSet(t).Match(&req, testSecret, nil)
		if err != nil || len(layers) != len(tt.want) {
			t.Errorf("%s: %v, %v", name, layers, err)
			continue
		}
		for i := range layers {
			if ch := layers[i].Charge(&req, 0); ch.Cost != tt.want[i] {
				t.Errorf("%s: layer %d is charged %d, want %d", name, i+1, ch.Cost, tt.want[i])
			}
		}
	}
}

// A limit that a descriptor brings is counted for the domain and all of its entries, in place of whatever rule it
// meets.
func TestAskWithALimit(t *testing.T) {
	s, limit := askSet(t), tenMinutely(t)
	keys := make(map[counters.Key]string)
	for name, descriptor := range map[string][]Entry{
		"met": entries("a", "1"), "another value": entries("a", "2"), "not met": entries("b", "1"),
		"empty":  entries("a", ""),
		"deeper": entries("a", "1", "b", ""), "run together": entries("a1", "", "b", ""),
		"other order": entries("b", "", "a", "1"),
	} {
		req := Request{Domain: "d", Descriptors: [][]Entry{descriptor}, Asks: []Ask{{Cost: 3, Limit: limit}}}
		layers, err := s.Match(&req, testSecret, nil)
		if err != nil || len(layers) != 1 || layers[0].Rule != nil {
			t.Fatalf("%s: %v, %v", name, layers, err)
		}
		ch := layers[0].Charge(&req, 0)
		if ch.Limit != limit || ch.Cost != 3 || ch.Mode != counters.Enforce {
			t.Errorf("%s: %+v", name, ch)
		}
		if same, taken := keys[ch.Key]; taken {
			t.Errorf("%s and %s share a count", name, same)
		}
		keys[ch.Key] = name
		d := counters.Decision{Allowed: true, Rule: limit.Meter().Rule, Limit: 10}
		if layers[0].Annotate(&req, &ch, &d); d.Rule != OverrideName || d.Limit != 10 {
			t.Errorf("%s: decided as %+v", name, d)
		}
	}
	unknown := Request{
		Domain:      "elsewhere",
		Descriptors: [][]Entry{entries("a", "1")},
		Asks:        []Ask{{Cost: 3, Limit: limit}},
	}
	if layers, err := s.Match(&unknown, testSecret, nil); err != nil || layers[0] != (Match{}) ||
		layers[0].Charge(&unknown, 0) != (counters.Charge{}) {
		t.Errorf("in a domain that is not known: %v, %v", layers, err)
	}
}

// A limit that takes a rule's place replaces nothing, and is not replaced.
func TestAskWithALimitBesideReplaces(t *testing.T) {
	s, limit := askSet(t), tenMinutely(t)
	both := [][]Entry{entries("general", "1"), entries("special", "1")}
	for name, tt := range map[string]struct {
		asks []Ask
		met  [2]bool // whether the layer has a limit
		rule [2]bool // whether it is a rule's
	}{
		"neither":     {[]Ask{{Cost: 1}, {Cost: 1}}, [2]bool{false, true}, [2]bool{false, true}},
		"the general": {[]Ask{{Cost: 1, Limit: limit}, {Cost: 1}}, [2]bool{true, true}, [2]bool{false, true}},
		"the special": {[]Ask{{Cost: 1}, {Cost: 1, Limit: limit}}, [2]bool{true, true}, [2]bool{true, false}},
	} {
		req := Request{Domain: "d", Descriptors: both, Asks: tt.asks}
		layers := matched(t, s, &req, testSecret)
		for i := range layers {
			if limited := layers[i].Charge(&req, 0).Limit != nil; limited != tt.met[i] ||
				(layers[i].Rule != nil) != tt.rule[i] {
				t.Errorf("%s: layer %d: %+v", name, i+1, layers[i])
			}
		}
	}
}

func TestAsksAllocateNothing(t *testing.T) {
	s, limit := askSet(t), tenMinutely(t)
	req := Request{
		Domain:      "d",
		Descriptors: [][]Entry{entries("a", "1"), entries("b", "1"), entries("tenant", "x", "user", "1")},
		Asks:        []Ask{{Cost: 2}, {Cost: 1, Limit: limit}, {}},
	}
	dst := make([]Match, 0, MaxDescriptors)
	if n := testing.AllocsPerRun(200, func() { dst, _ = s.Match(&req, testSecret, dst[:0]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
