package proxy

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/replay"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// What the access log says is read back by edgelimit replay: the same clients, paths and methods, in both formats.
func TestReplayReadsTheAccessLog(t *testing.T) {
	set, err := rulefile.Parse("r.yaml", []byte(`
domain: edge
descriptors:
  - {key: remote_address, rate_limit: {name: per_ip, unit: minute, requests_per_unit: 2}}
  - {key: path, value: '/a"b\', rate_limit: {name: odd, unit: minute, requests_per_unit: 1}}
  - {key: user_agent, value: 'x" y', rate_limit: {name: agent, unit: minute, requests_per_unit: 1}}
`))
	testkit.Must(t, err)
	for _, format := range []string{JSON, Combined} {
		file := filepath.Join(t.TempDir(), "access.log")
		p := open(t, always(plenty), func(c *Config, o *Options) {
			c.AccessLog, o.Requests.TrustedProxies = AccessLog{File: file, Format: format}, []string{"127.0.0.1"}
		}, backend(t, func(http.ResponseWriter, *http.Request) {}))
		for _, client := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.1", "2001:db8::1"} {
			conn := testkit.Dial(t, p.addr)
			request := "GET /a\"b\\?q HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nUser-Agent: x\" y\r\n" +
				"X-Forwarded-For: " + client + "\r\n\r\n"
			if _, err := conn.Write([]byte(request)); err != nil {
				t.Fatal(err)
			}
			if got := statuses(t, conn, request); len(got) != 1 || got[0] != 200 {
				t.Fatal(got)
			}
		}
		p.stop(testkit.Patience)
		b, err := os.ReadFile(file)
		testkit.Must(t, err)
		o := replay.DefaultOptions()
		o.Rules, o.Descriptors = set, []string{"remote_address", "path", "user_agent"}
		report, err := replay.Run(t.Context(), o, []replay.Log{{Name: file, Reader: strings.NewReader(string(b))}},
			func(replay.Progress) {})
		if err != nil {
			t.Fatalf("%s: %v\n%s", format, err, b)
		}
		if report.Requests != 4 || len(report.Rules) != 3 {
			t.Fatalf("%s: %+v", format, report)
		}
		for _, rule := range report.Rules {
			identities := map[string]uint64{"per_ip": 2, "odd": 1, "agent": 1}
			for name, want := range identities {
				if strings.Contains(rule.Rule, name) && uint64(rule.Identities) != want {
					t.Errorf("%s: %+v, want %d identities\n%s", format, rule, want, b)
				}
			}
		}
	}
}
