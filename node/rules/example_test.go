package rules_test

import (
	"fmt"

	"github.com/edgelimit/edgelimit/node/rules"
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
	set, err := rules.Parse("edge.yaml", []byte(file))
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
	_, err := rules.Parse("edge.yaml", []byte(`domain: edge
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

func ExampleSet_Match() {
	set, err := rules.Parse("edge.yaml", []byte(file))
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
