package rulefile

import (
	"errors"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
)

func TestStrictFile(t *testing.T) {
	named := validFile(t, "strict.yaml")
	for name, want := range map[string]string{
		"transfers": "10 in 1 h by sliding_window, strict by the Redis of us-east, fails closed",
		"strict/licence": "1000 in 1 day by sliding_window, counted by each region for itself, " +
			"strict by the Redis of each region, in leases of 20, bans for 1 min",
		"flat": "5 in 1 min by sliding_window, strict by the Redis of us-east",
	} {
		if r := named[name]; r == nil || !r.Strict || r.Describe() != want {
			t.Errorf("%s: want %s", name, want)
			if r != nil {
				t.Errorf("it is %s", r.Describe())
			}
		}
	}
	if home := named["transfers"].Home("eu-west"); home != "us-east" {
		t.Errorf("the home of a global rule is %q", home)
	}
	if home := named["strict/licence"].Home("eu-west"); home != "eu-west" {
		t.Errorf("the home of a rule of a region is %q", home)
	}
}

// A strict rule is refused by a node that does not know the Redis that decides on it, if it is in force there.
func TestStrictRulesNeedStores(t *testing.T) {
	const file = `
domain: a
descriptors:
  - {key: k, %s rate_limit: {unit: minute, requests_per_unit: 10, consistency: strict, %s}}
`
	none := []string{}
	for name, c := range map[string]struct {
		regions, scope string
		known          []string
		want           string
	}{
		"known":             {"", "home_region: us", []string{"eu", "us"}, ""},
		"unknown":           {"", "home_region: us", []string{"eu"}, "strict.redis in its configuration, as in {us:"},
		"nobody can say":    {"", "home_region: us", nil, ""},
		"in force here":     {"regions: [eu, us],", "home_region: us", none, "set strict.redis"},
		"elsewhere":         {"regions: [us],", "home_region: us", none, ""},
		"own":               {"", "scope: region", []string{"eu"}, ""},
		"none of its own":   {"", "scope: region", []string{"us"}, "set redis.url in its configuration (--redis)"},
		"own by its name":   {"", "home_region: eu", none, "set redis.url"},
		"not for the store": {"", "scope: region, burst: 77, algorithm: token_bucket", []string{"eu"}, "too odd"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Stores: &Stores{Region: "eu", Known: c.known, Check: func(l *counters.Limit) error {
				if l.Max() == 77 {
					return errors.New("too odd")
				}
				return nil
			}}}
			text := strings.Replace(strings.Replace(file, "%s", c.regions, 1), "%s", c.scope, 1)
			_, err := o.Parse("f", []byte(text))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if _, err := Parse("f", []byte(text)); err != nil {
				t.Errorf("without stores: %v", err)
			}
		})
	}
}
