package telemetry

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

// at is a moment so many milliseconds into a window of ten seconds.
func at(ms int) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(ms) * time.Millisecond)
}

const loginRules = `domain: edge
descriptors:
  - {key: remote_address, rate_limit: {name: per_ip, unit: minute, requests_per_unit: 100}}
  - key: path
    value: /login
    descriptors:
      - {key: remote_address, rate_limit: {name: login, window: 10s, requests_per_unit: 5}}
`

func ruleSet(text string) *rules.Set {
	set, err := rulefile.Parse("test.yaml", []byte(text))
	if err != nil {
		panic(err)
	}
	return set
}

// request is a request of a domain with a descriptor for each key.
func request(domain string, keys ...string) *rules.Request {
	req := &rules.Request{Domain: domain}
	for _, k := range keys {
		req.Descriptors = append(req.Descriptors, []rules.Entry{{Key: k, Value: "secret"}})
	}
	return req
}
