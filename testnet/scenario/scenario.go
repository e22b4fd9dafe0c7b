package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/netem"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// Cluster is what scenarios need of the testnet; cluster.Cluster implements it and documents each method.
type Cluster interface {
	Up(ctx context.Context) error
	Replace(ctx context.Context, v cluster.Version, names ...string) error
	Nodes(ctx context.Context) ([]cluster.Node, error)
	Observe(ctx context.Context, n cluster.Node) (cluster.Observation, error)
	Partition(ctx context.Context, region string, way cluster.Direction) error
	Block(ctx context.Context, region string, protocol cluster.Protocol, way cluster.Direction) error
	Heal(ctx context.Context) error
	Kill(ctx context.Context, name string) error
	Stop(ctx context.Context, name string) error
	Restart(ctx context.Context, name string) error
	Move(ctx context.Context, name string) (cluster.Node, error)
	Pause(ctx context.Context, name string) error
	Unpause(ctx context.Context, name string) error
	FlushRedis(ctx context.Context, region string) error
	RedisCounts(ctx context.Context, region string, rule *rules.Rule, identity string) (map[string]uint64, error)
	Logs(ctx context.Context, name string) (string, error)
	Rules() string
	WAN() (netem.Link, error)
	Keys(ctx context.Context, node string, args ...string) (string, error)
	InstallKey(ctx context.Context, names ...string) error
	Intrude(ctx context.Context, node string) (stop func(context.Context) error, err error)
}

// Scenario is one kind of run against the testnet.
type Scenario struct {
	Name, What string            // on the command line, and a sentence of what it shows
	Rule       string            // of all its requests
	Streams    []traffic.Stream  // the load; Run.ID makes their identities unique to the run
	Only       map[string]string // the only node that a stream is sent to, by identity; absent: all
	Timeout    time.Duration     // bounds an answer; 0: load's
	Elsewhere  bool              // clients send a request to another node where one does not answer
	Balanced   bool              // clients ask nodes that are ready, as behind a load balancer
	Used       map[string]uint64 // what a client of accountRule has used before the load; absent: primeCost
	Unprimed   bool              // a client of accountRule has used nothing before the load
	Setup      Step              // before the load; without Do: nothing
	Steps      []Step            // one after the other while the load goes on, which ends with the last of them
	Check      func(r *Run)      // adds the scenario's own assertions and figures to the run's
	Takes      time.Duration     // an estimate
}

// Step is one action of a run; What is logged when it begins.
type Step struct {
	What string
	Do   func(ctx context.Context, r *Run) error
}

// wait is a step during which only the load goes on.
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

// poll calls check at the interval until it is done, and returns the time that this took. If it is not done within the
// patience, the error is the problem that check returned last.
func poll(ctx context.Context, interval, patience time.Duration, check func() (done bool, problem error)) (
	time.Duration, error,
) {
	for began := time.Now(); ; {
		done, problem := check()
		switch took := time.Since(began); {
		case done:
			return took, nil
		case took > patience:
			return took, fmt.Errorf("after %v: %w", patience, problem)
		}
		if err := sleep(ctx, interval); err != nil {
			return time.Since(began), err
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return " " + err.Error()
}

// Options change scenarios.
type Options struct {
	// Cut is the duration of partitions; 0: ten seconds.
	Cut time.Duration
}

// All returns all scenarios, in the order in which "all" runs them.
func All(o Options) []Scenario {
	if o.Cut == 0 {
		o.Cut = 10 * time.Second
	}
	return []Scenario{
		globalLimit(),
		partitioning("partition", "a region is cut off the WAN under load: both sides go on deciding and share the "+
			"limit, and after the heal all agree", cluster.Both, o.Cut),
		partitioning("one-way", "no node receives from a region, which receives from all: the same assertions as in a "+
			"partition", cluster.Out, o.Cut),
		blocking("blocked-udp", "no UDP passes between a region and the others", cluster.UDP, cluster.Both),
		blocking("blocked-udp-in", "no UDP reaches a region, TCP does", cluster.UDP, cluster.In),
		blocking("blocked-udp-out", "no UDP of a region gets out, TCP does", cluster.UDP, cluster.Out),
		blocking("blocked-tcp", "no TCP passes between a region and the others, UDP does", cluster.TCP, cluster.Both),
		redisLoss(), redisFlush(), redisSlow(), nodeKill(), nodeMove(), nodePause(), nodeDrain(), rolling(), rotate(),
		upgrade(), wide(o.Cut),
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

// globalLimit sends one client's requests, far above its limit, to all nodes in turn.
func globalLimit() Scenario {
	return Scenario{
		Name: "global-limit",
		What: "one client asks all six nodes in turn, 20 times a second; the limit is 100 a minute over all of them",
		Rule: "per_ip", Streams: []traffic.Stream{{Identity: "client", Rate: 20, Spacing: traffic.Even}},
		Steps: []Step{wait("20 requests a second over all nodes for 30 s", 30*time.Second)},
		Takes: 45 * time.Second,
		Check: func(r *Run) {
			admitted := r.Admitted(r.ID("client"), "")
			r.Assert("one limit holds over all regions", admitted >= 100 && admitted <= 105, "100 to 105 admitted",
				"%d", admitted)
			r.Assert("the load exceeds it", r.Load.Offered >= 590, "at least 590 requests", "%d", r.Load.Offered)
		},
	}
}
