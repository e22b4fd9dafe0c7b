package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/testnet/netem"
)

// member is a node of the demo's cluster.
type member struct {
	*node.Node
	id, region string
}

// cluster is all nodes and the links between them.
type cluster struct {
	members []*member
	links   *netem.Links
	running sync.WaitGroup
}

const loopback = "127.0.0.1:0"

// startCluster starts all nodes; they have found each other when it returns. The regions share a store each. It calls
// fail with the error of a node that stops by itself.
func startCluster(ctx context.Context, o *Options, set *rules.Set, fail func(error)) (*cluster, error) {
	c := &cluster{links: netem.NewLinks(o.Seed)}
	for r := range o.Regions {
		store := regions.NewEmbedded(0, time.Now)
		for i := range o.Nodes {
			if err := c.open(o, set, store, regionName(r), i); err != nil {
				c.close()
				return nil, err
			}
		}
	}
	for _, m := range c.members {
		c.running.Go(func() {
			if err := m.Run(context.WithoutCancel(ctx)); err != nil {
				fail(fmt.Errorf("node %s: %w", m.id, err))
			}
		})
	}
	met := func() bool { return c.complete(time.Unix(0, 0)) }
	if !await(ctx, 15*time.Second, met) {
		c.close()
		return nil, fmt.Errorf("the nodes did not find each other: %w", cmp.Or(context.Cause(ctx),
			errors.New("it took too long")))
	}
	return c, nil
}

// open makes one node. It joins through the first of its region and the first of all.
func (c *cluster) open(o *Options, set *rules.Set, store regions.Store, region string, i int) error {
	cfg := node.DefaultConfig()
	cfg.NodeID, cfg.Region = fmt.Sprintf("%s-%d", region, i+1), region
	cfg.HTTP, cfg.Health, cfg.Admin = "", "", ""
	cfg.RuleSet, cfg.Store = set, store
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.Gossip.LAN, cfg.Gossip.WAN, cfg.Gossip.Interval = loopback, loopback, o.Interval
	cfg.WrapTransport = func(_ string, t memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
		addr := fmt.Sprintf("127.0.0.1:%d", t.(interface{ GetAutoBindPort() int }).GetAutoBindPort())
		c.links.Register(addr, region)
		return netem.Wrap(t, addr, c.links)
	}
	for _, m := range c.members {
		if m.region == region {
			cfg.Gossip.Join = append(cfg.Gossip.Join, m.Addr("lan"))
			break
		}
	}
	if len(c.members) > 0 {
		cfg.Gossip.Join = append(cfg.Gossip.Join, "wan:"+c.members[0].Addr("wan"))
	}
	n, err := node.New(cfg)
	if err != nil {
		return fmt.Errorf("start node %s: %w", cfg.NodeID, err)
	}
	c.members = append(c.members, &member{n, cfg.NodeID, region})
	return nil
}

// complete reports whether every node has every other one in its membership, and has received all that it counted
// until then.
func (c *cluster) complete(then time.Time) bool {
	for _, m := range c.members {
		peers := m.Members()
		for _, p := range peers {
			if p.CompleteThrough < then.UnixNano() {
				return false
			}
		}
		if len(peers) != len(c.members)-1 {
			return false
		}
	}
	return true
}

// agree reports whether all nodes hold the same counts. Nodes that hold none, because all have expired, agree on
// nothing.
func (c *cluster) agree() bool {
	type slot struct {
		key, index, origin, birth uint64
	}
	var first map[slot]uint64
	for i, m := range c.members {
		counts := make(map[slot]uint64)
		for _, s := range m.Slots() {
			counts[slot{uint64(s.Key), uint64(s.Index), uint64(s.Origin), uint64(s.Birth)}] = s.Count
		}
		if i == 0 {
			first = counts
		} else if !maps.Equal(counts, first) {
			return false
		}
	}
	return len(first) > 0
}

// close stops all nodes, those that do not run yet as well.
func (c *cluster) close() {
	for _, m := range c.members {
		c.running.Go(func() { _ = m.Close() })
	}
	c.running.Wait()
}

// await looks often until the condition holds, and reports whether it did within the limit and before ctx ended.
func await(ctx context.Context, limit time.Duration, holds func() bool) bool {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
	return true
}
