package rulefile_test

import (
	"fmt"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

const file = `
domain: edge
descriptors:
  - key: path
    value: /login
    descriptors:
      - key: remote_address
        rate_limit: {name: login, window: 10s, requests_per_unit: 5}
  - key: remote_address
    rate_limit: {name: per_ip, unit: minute, requests_per_unit: 100}
  - key: remote_address
    value: 192.0.2.1
    rate_limit: {unlimited: true}
`

func ExampleParse() {
	set, err := rulefile.Parse("edge.yaml", []byte(file))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range set.Rules() {
		fmt.Printf("%s (%s), open keys %v\n", r.Name, r.FullName, r.OpenKeys())
	}
	// Output:
	// login (edge/path=/login/remote_address), open keys [remote_address]
	// per_ip (edge/remote_address), open keys [remote_address]
	// edge/remote_address=192.0.2.1 (edge/remote_address=192.0.2.1), open keys []
}

func ExampleParse_problems() {
	_, err := rulefile.Parse("edge.yaml", []byte(`domain: edge
descriptors:
  - key: remote_address
    rate_limit:
      unit: minuet
      request_per_unit: 100
`))
	fmt.Println(err)
	// Output:
	// edge.yaml:5:7: a rate_limit needs requests_per_unit, or unlimited: true
	// edge.yaml:5:13: unknown unit "minuet" in a rate_limit: did you mean "minute"?
	// edge.yaml:6:7: unknown key "request_per_unit" in a rate_limit: did you mean "requests_per_unit"?
}
