package node

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/httpapi"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A request_id is charged once, in each layer. It is no longer denied once its wait is over, whatever charged it.
func TestADeniedRequestIDIsDecidedAnew(t *testing.T) {
	const rule = `
domain: test
descriptors:
  - {key: plain, rate_limit: {name: plain, unit: second, requests_per_unit: 1, algorithm: sliding_log}}
  - {key: counts, rate_limit: {name: counts, window: 10s, requests_per_unit: 2, count_rejected: true,
     algorithm: sliding_log}}
  - {key: over, rate_limit: {name: over, window: 10s, requests_per_unit: 10, overdraw: charge, algorithm: sliding_log}}
  - {key: banning, rate_limit: {name: banning, unit: second, requests_per_unit: 1, ban: 3s, algorithm: sliding_log}}
  - {key: each, rate_limit: {name: each, unit: hour, requests_per_unit: 100, charge: each}}
`
	one := func(name string) string { return `{"rule":"` + name + `","identity":"x"` }
	for _, test := range []struct {
		name, fills, asks string
		fill              int
		wait              time.Duration
		once              string // the rule that is charged by the denial
		charged           uint64
	}{
		{"plain", one("plain"), one("plain"), 1, time.Second, "test/plain", 1},
		{"counts", one("counts"), one("counts"), 2, 10 * time.Second, "test/counts", 3},
		{"overdraft", one("over"), one("over") + `,"cost":12`, 1, 0, "test/over", 13},
		{"ban", one("banning"), one("banning"), 2, 3 * time.Second, "test/banning", 1},
		{"each", one("plain"), `{"domain":"test","descriptors":[[{"key":"each","value":"x"}],` +
			`[{"key":"plain","value":"x"}]]`, 1, time.Second, "test/each", 1},
	} {
		for _, path := range []string{"/v1/check", "/v1/check/batch"} {
			testkit.VirtualTime(t, func(t *testing.T) {
				n := idle(t, rule)
				api := httpapi.New(n, httpapi.Options{Now: time.Now})
				ask := func(body string) string {
					if body += "}"; path == "/v1/check/batch" {
						body = `{"checks":[` + body + "]}"
					}
					answer := httptest.NewRecorder()
					api.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
					return answer.Body.String()
				}
				for range test.fill {
					ask(test.fills)
				}
				for range 3 {
					if got := ask(test.asks + `,"request_id":"a"`); !strings.Contains(got, `"allowed":false`) {
						t.Fatalf("%s at %s: %s", test.name, path, got)
					}
					time.Sleep(10 * time.Millisecond)
				}
				var charged uint64
				for _, slot := range n.Slots() {
					if slot.Meter.Rule == test.once && slot.Meter.Algorithm.Counts() {
						charged += slot.Count
					}
				}
				if charged != test.charged {
					t.Errorf("%s at %s: %d are charged, want %d", test.name, path, charged, test.charged)
				}
				if test.wait == 0 {
					return
				}
				time.Sleep(test.wait)
				for range 2 {
					if got := ask(test.asks + `,"request_id":"a"`); !strings.Contains(got, `"allowed":true`) {
						t.Errorf("%s at %s, after its wait: %s", test.name, path, got)
					}
				}
				want := uint64(1) // what was denied has left the window, or is not charged again
				if test.name == "counts" {
					want = 0
				}
				if got := spent(t, n, test.once, "x"); got != want {
					t.Errorf("%s at %s: %d are charged after its wait, want %d", test.name, path, got, want)
				}
			})
		}
	}
}
