package rules_test

import (
	"fmt"

	"github.com/edgelimit/edgelimit/node/rules"
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

func ExampleSet_Match() {
	set, err := rulefile.Parse("edge.yaml", []byte(file))
	if err != nil {
		fmt.Println(err)
		return
	}
	secret := rules.Secret{1, 2, 3} // in earnest: 16 random bytes, the same on all nodes
	layers, err := set.Match(&rules.Request{
		Domain: "edge",
		Descriptors: [][]rules.Entry{
			{{Key: "remote_address", Value: "198.51.100.7"}},
			{{Key: "path", Value: "/login"}, {Key: "remote_address", Value: "198.51.100.7"}},
			{{Key: "path", Value: "/login"}},
		},
	}, secret, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range layers {
		if m.Rule == nil {
			fmt.Println("no rule, allowed")
			continue
		}
		fmt.Println(m.Rule.Name, m.Rule.Limit.Max(), m.Rule.Limit.Meter().Window)
	}
	byName, _ := set.Match(&rules.Request{Rule: "login", Identity: "198.51.100.7"}, secret, nil)
	fmt.Println("the same count by name:", byName[0] == layers[1])
	// Output:
	// per_ip 100 1m0s
	// login 5 10s
	// no rule, allowed
	// the same count by name: true
}
