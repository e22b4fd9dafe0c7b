package rulefile

import (
	"fmt"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
)

// PerClient returns one rule, per_client, that admits so many requests of each client address (remote_address, in the
// domain edge) in any window: a limit in one line of a Go program, for node.Config.RuleSet. It panics where a rule file
// with these numbers would be refused.
func PerClient(requests int, window time.Duration) *rules.Set {
	set, err := Parse("PerClient", fmt.Appendf(nil, "domain: edge\ndescriptors: [{key: remote_address, "+
		"rate_limit: {name: per_client, window: %v, requests_per_unit: %d}}]\n", window, requests))
	if err != nil {
		panic(err)
	}
	return set
}
