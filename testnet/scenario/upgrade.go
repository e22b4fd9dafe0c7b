package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/record"
)

// upgradeRun is what a run with nodes of two versions measures.
type upgradeRun struct {
	before   []string       // versions that the nodes report before the upgrade
	mixed    []string       // and half-way
	after    []string       // and in the end
	unread   map[string]int // lines by which nodes log that they dropped a frame they cannot read, by node
	agreed   time.Duration  // until all nodes of the mixed cluster counted what each admitted
	together time.Duration  // and all nodes after the upgrade
}

// Clients that each node is asked for so often, in the mixed cluster and after the upgrade.
const (
	mixedClient, upgradedClient = "mixed", "upgraded"

	asksPerNode = 40
	// agreePatience is the time in which all nodes have to count what every one of them admitted.
	agreePatience = 5 * time.Second
)

func upgrade() Scenario {
	s := upkeep("upgrade", "all nodes are replaced in turn by nodes of now, from "+cluster.BeforeLabel+", under load: "+
		"half-way three of each version count alike; 0 failed requests, 0 members lost, 0 frames unread, and no count "+
		"is forgotten",
		checkUpgrade,
		wait("load on nodes of before", 3*time.Second),
		Step{"replace a node of each region", func(ctx context.Context, r *Run) error { return r.replaceHalf(ctx, 0) }},
		wait("load on nodes of both versions", 5*time.Second),
		Step{"count alike in the mixed cluster", func(ctx context.Context, r *Run) (err error) {
			if r.upgrade.mixed, err = r.versions(ctx); err == nil {
				r.upgrade.agreed, err = r.askAll(ctx, mixedClient)
			}
			return err
		}},
		Step{"replace the others", func(ctx context.Context, r *Run) error { return r.replaceHalf(ctx, 1) }},
		wait("load on nodes of now", 3*time.Second),
		Step{"count alike after the upgrade", func(ctx context.Context, r *Run) (err error) {
			if r.upgrade.after, err = r.versions(ctx); err == nil {
				r.upgrade.together, err = r.askAll(ctx, upgradedClient)
			}
			return err
		}})
	s.Setup = Step{"replace all nodes by those of " + cluster.BeforeLabel, startBefore}
	s.Balanced, s.Takes = true, 90*time.Second
	return s
}

// startBefore makes it a cluster of nodes before the upgrade.
func startBefore(ctx context.Context, r *Run) (err error) {
	var names []string
	for _, n := range r.Nodes {
		names = append(names, n.Name)
	}
	if err := r.Cluster.Replace(ctx, cluster.Before, names...); err != nil {
		return err
	}
	r.upgrade.before, err = r.versions(ctx)
	r.started = time.Now() // what was logged until now is of nobody who serves
	return err
}

// versions returns what the nodes report, in their order.
func (r *Run) versions(ctx context.Context) (versions []string, err error) {
	for _, n := range r.Nodes {
		o, err := r.Cluster.Observe(ctx, n)
		if err != nil {
			return nil, err
		}
		versions = append(versions, o.Version)
	}
	r.Observed("the nodes report %s", strings.Join(versions, ", "))
	return versions, nil
}

// replaceHalf replaces every other node, so one of each region, by one of now.
func (r *Run) replaceHalf(ctx context.Context, first int) error {
	for i := first; i < len(r.Nodes); i += 2 {
		n := r.Nodes[i]
		start := func(c Cluster, ctx context.Context, name string) error {
			text, err := c.Logs(ctx, name) // they go with the container
			if err != nil {
				return err
			}
			if r.replaced == nil {
				r.replaced = make(map[string]string)
			}
			r.replaced[name] += text + "\n"
			return c.Replace(ctx, cluster.Now, name)
		}
		if _, err := r.restartNode(ctx, n, start); err != nil {
			return err
		}
	}
	return nil
}

// askAll has each node admit requests of the client, and waits until all count them.
func (r *Run) askAll(ctx context.Context, client string) (time.Duration, error) {
	for range asksPerNode {
		for _, n := range r.Nodes {
			if a, err := r.Take(ctx, n, r.rule.Name, r.ID(client), 1); err != nil || !a.Allowed {
				return 0, fmt.Errorf("%s did not admit a request (allowed %v): %w", n.Name, a.Allowed, err)
			}
		}
	}
	return r.AwaitCount(ctx, r.rule.Name, r.ID(client), uint64(asksPerNode*len(r.Nodes)), agreePatience)
}

// unreadMark begins what a node logs when it drops a frame. It logs only some of them.
const unreadMark = `msg="gossip: dropped a frame that cannot be read"`

func checkUpgrade(r *Run) {
	x, half := &r.upgrade, len(r.Nodes)/2
	old := func(versions []string) (n int) {
		for _, v := range versions {
			if v == cluster.BeforeLabel {
				n++
			}
		}
		return n
	}
	r.Assert("it begins, is half-way and ends as an upgrade", old(x.before) == len(r.Nodes) && old(x.mixed) == half &&
		len(x.after) == len(r.Nodes) && old(x.after) == 0, fmt.Sprintf("%d, %d, 0 nodes of before", 2*half, half),
		"%d, %d, %d", old(x.before), old(x.mixed), old(x.after))
	r.AssertWithin("nodes of both versions count alike", "mixed_agree_s", x.agreed, agreePatience)
	r.AssertWithin("so they do after the upgrade", "upgraded_agree_s", x.together, agreePatience)
	x.unread = make(map[string]int)
	var err error
	for _, n := range r.Nodes {
		text, failed := r.logs(context.Background(), n.Name)
		if failed != nil {
			err = failed
		}
		for line := range strings.Lines(text) {
			if strings.Contains(line, unreadMark) {
				x.unread[n.Name]++
				r.log("  %s: %s", n.Name, strings.TrimSpace(line))
			}
		}
	}
	r.Assert("every node reads what the others send", len(x.unread) == 0 && err == nil, "0 lines about frames", "%v%s",
		x.unread, errorText(err))
	denied := r.decisions(func(d record.Decision) bool {
		return !d.Allowed && d.Error == "" && slices.Contains([]string{r.ID(ownClient), r.ID(mixedClient),
			r.ID(upgradedClient)}, d.Identity)
	})
	r.Assert("no client within its limit is denied", len(denied) == 0, "0 denied", "%d", len(denied))
	checkMembers(r)
	checkAsked(r)
}
