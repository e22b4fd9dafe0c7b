package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/load"
	"github.com/edgelimit/edgelimit/testnet/multiregion"
	"github.com/edgelimit/edgelimit/testnet/weather"
)

// Net is the testnet as scenarios need it; multiregion.Testnet is one, and says what each method does.
type Net interface {
	Up(ctx context.Context) error
	Nodes(ctx context.Context) ([]multiregion.Node, error)
	Observe(ctx context.Context, n multiregion.Node) (multiregion.Observation, error)
	Partition(ctx context.Context, region string, way multiregion.Direction) error
	Heal(ctx context.Context) error
	Kill(ctx context.Context, name string) error
	Stop(ctx context.Context, name string) error
	Restart(ctx context.Context, name string) error
	Move(ctx context.Context, name string) (multiregion.Node, error)
	Pause(ctx context.Context, name string) error
	Unpause(ctx context.Context, name string) error
	FlushRedis(ctx context.Context, region string) error
	RedisCounts(ctx context.Context, region string, rule *rules.Rule, identity string) (map[string]uint64, error)
	Said(ctx context.Context, name string) (string, error)
	RulesFile() string
	Weather() (weather.WAN, error)
}

// Scenario is one run against the testnet.
type Scenario struct {
	// Name is what it is called on the command line, What a sentence of what it shows.
	Name, What string
	// Rule is the name of the rule that all its requests meet.
	Rule string
	// Streams are what is offered. Identities are names within the run: Run.ID makes them its own.
	Streams []load.Stream
	// Only names the nodes that a stream is offered to, by identity; absent: all.
	Only map[string]string
	// Timeout is how long an answer may take; 0: load's.
	Timeout time.Duration
	// Elsewhere has clients ask another node where one does not answer.
	Elsewhere bool
	// Steps happen one after the other while the load goes on, which ends with the last of them.
	Steps []Step
	// Check adds the scenario's own promises and figures to the run's.
	Check func(r *Run)
	// Takes is about how long it takes.
	Takes time.Duration
}

// Step is something that happens in a run.
type Step struct {
	// What is said when it begins.
	What string
	Do   func(ctx context.Context, r *Run) error
}

// wait is a step in which nothing happens but the load.
func wait(what string, d time.Duration) Step {
	return Step{what, func(ctx context.Context, _ *Run) error { return sleep(ctx, d) }}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// Options change scenarios.
type Options struct {
	// Cut is how long partitions last; 0: ten seconds.
	Cut time.Duration
}

// All returns all scenarios, in the order in which "all" runs them.
func All(o Options) []Scenario {
	if o.Cut == 0 {
		o.Cut = 10 * time.Second
	}
	return []Scenario{
		globalLimit(), partition(o.Cut), oneWay(o.Cut), redisLoss(), redisFlush(), redisSlow(),
		nodeKill(), nodeMove(), nodePause(), nodeDrain(),
	}
}

// Find returns the scenarios of that name, or all.
func Find(name string, o Options) ([]Scenario, error) {
	all := All(o)
	if name == "all" {
		return all, nil
	}
	var names []string
	for i, s := range all {
		if s.Name == name {
			return all[i : i+1], nil
		}
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return nil, fmt.Errorf("no such scenario: %q, there are %s, and all", name, strings.Join(names, ", "))
}
