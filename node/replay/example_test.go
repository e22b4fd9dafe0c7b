package replay_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/edgelimit/edgelimit/node/replay"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

func ExampleRun() {
	set, err := rulefile.Parse("web.yaml", []byte(`
domain: web
descriptors:
  - key: remote_address
    rate_limit: {name: per_ip, unit: minute, requests_per_unit: 2}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	log := `192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "GET /a HTTP/1.1" 200 5 "-" "curl/8.5.0"
192.0.2.7 - - [01/Mar/2026:12:00:10 +0000] "GET /b HTTP/1.1" 200 5 "-" "curl/8.5.0"
{"ts": 1772366415.5, "request": {"client_ip": "192.0.2.7", "method": "GET", "uri": "/c"}, "status": 200}
{"ts": 1772366416.5, "request": {"client_ip": "2001:db8::1", "method": "GET", "uri": "/c"}, "status": 200}`

	o := replay.DefaultOptions()
	o.Rules = set
	report, err := replay.Run(context.Background(), o,
		[]replay.Log{{Name: "access.log", Reader: strings.NewReader(log)}}, func(replay.Progress) {})
	if err != nil {
		fmt.Println(err)
		return
	}
	rule := report.Rules[0]
	fmt.Printf("%d of %d requests denied, %d of %d identities\n", report.Denied, report.Requests, rule.IdentitiesDenied,
		rule.Identities)
	fmt.Printf("the busiest asked for %d in %g s: %s\n", rule.Peaks.Max, rule.PeakSeconds, rule.Worst[0].Name)
	fmt.Printf("suggested: %d\n", rule.Suggested.Limit)
	// Output:
	// 1 of 4 requests denied, 1 of 2 identities
	// the busiest asked for 3 in 60 s: 192.0.2.7
	// suggested: 4
}
