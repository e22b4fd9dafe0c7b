package node_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

// A limit is raised while the node runs: what was counted under the old one counts under the new one.
func ExampleNode_SetRules() {
	ruleSet := func(most int) *rules.Set {
		set, err := rulefile.Parse("api.yaml", fmt.Appendf(nil, `
domain: api
descriptors:
  - {key: user, rate_limit: {name: per_user, unit: day, requests_per_unit: %d}}
`, most))
		if err != nil {
			panic(err)
		}
		return set
	}
	cfg := node.DefaultConfig()
	cfg.HTTP, cfg.Health, cfg.Admin = "", "", "" // no listeners: ask in process
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.RuleSet = ruleSet(2)
	n, err := node.New(cfg)
	if err != nil {
		panic(err)
	}
	ask := func() {
		d, err := n.Take(context.Background(), node.Request{Rule: "per_user", Identity: "alice"})
		fmt.Println(d.Allowed, d.Remaining, "of", d.Limit, err)
	}
	ask()
	ask()
	ask()
	n.SetRules(ruleSet(5))
	ask()
	// Output:
	// true 1 of 2 <nil>
	// true 0 of 2 <nil>
	// false 0 of 2 <nil>
	// true 2 of 5 <nil>
}
