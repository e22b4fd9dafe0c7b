package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	stop    context.CancelFunc
	running sync.WaitGroup
	failed  chan error // the first node that stopped by itself
}

const loopback = "127.0.0.1:0"

// startCluster starts all nodes; they have found each other when it returns. The regions share a store each.
func startCluster(ctx context.Context, o *Options, set *rules.Set) (*cluster, error) {
	c := &cluster{links: netem.NewLinks(o.Seed), failed: make(chan error, 1)}
	for r := range o.Regions {
		store := regions.NewEmbedded(0, time.Now)
		for i := range o.Nodes {
			if err := c.open(o, set, store, regionName(r), i); err != nil {
				c.abandon()
				return nil, err
			}
		}
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	for _, m := range c.members {
		c.running.Go(func() {
			if err := m.Run(run); err != nil {
				select {
				case c.failed <- fmt.Errorf("node %s: %w", m.id, err):
				default:
				}
			}
		})
	}
	if err := c.await(ctx, 15*time.Second, c.formed); err != nil {
		c.close()
		return nil, fmt.Errorf("the nodes did not find each other: %w", err)
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

// abandon closes what was opened of a cluster that cannot be started.
func (c *cluster) abandon() {
	ended, end := context.WithCancel(context.Background())
	end()
	for _, m := range c.members {
		_ = m.Run(ended) // stops at once
	}
}

// formed reports whether every node has every other one in its membership.
func (c *cluster) formed() bool {
	for _, m := range c.members {
		if len(m.Members()) != len(c.members)-1 {
			return false
		}
	}
	return true
}

// completeSince returns a condition: every node has received everything that every other one had at the time.
func (c *cluster) completeSince(since time.Time) func() bool {
	return func() bool {
		for _, m := range c.members {
			peers := m.Members()
			for _, p := range peers {
				if p.CompleteThrough < since.UnixNano() {
					return false
				}
			}
			if len(peers) != len(c.members)-1 {
				return false
			}
		}
		return true
	}
}

// agree reports whether all nodes hold the same counts. Nodes that hold none, because all have expired, agree on
// nothing.
func (c *cluster) agree() bool {
	type slot struct {
		key, index, origin, birth uint64
	}
	var first map[slot]uint64
	for _, m := range c.members {
		counts := make(map[slot]uint64)
		for _, s := range m.Slots() {
			counts[slot{uint64(s.Key), uint64(s.Index), uint64(s.Origin), uint64(s.Birth)}] = s.Count
		}
		if first == nil {
			first = counts
		}
		if len(counts) != len(first) {
			return false
		}
		for id, n := range first {
			if counts[id] != n {
				return false
			}
		}
	}
	return len(first) > 0
}

var errTooLong = errors.New("it took too long")

// await waits until the condition holds, looking often.
func (c *cluster) await(ctx context.Context, limit time.Duration, holds func() bool) error {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(limit)
	for !holds() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-c.failed:
			return err
		case <-deadline:
			return errTooLong
		case <-ticker.C:
		}
	}
	return nil
}

func (c *cluster) close() {
	c.stop()
	c.running.Wait()
}
