package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Direction says which way a region is partitioned.
type Direction string

// The directions, seen from the region: Both takes it off the WAN, In drops what comes in, Out what gets out.
const (
	Both Direction = "both"
	In   Direction = "in"
	Out  Direction = "out"
)

// certainAfter is the time without a received frame after which a partition is believed. Idle nodes send one every
// second, and one such packet may be lost.
const certainAfter = 2500 * time.Millisecond

// Partition cuts a region off the WAN until Heal: its nodes see each other and their Redis, clients reach them, and no
// other region does. Both takes them off the network, with a Redis that other regions ask. In and Out drop packets in
// the nodes' network namespaces, which takes root and nft on the engine's own machine. It returns when every node that
// cannot receive from the other side reports so.
//
// A node that is restarted while In or Out is in force gets it again from a running node of its region, if any.
func (c *Cluster) Partition(ctx context.Context, region string, way Direction) error {
	inside, outside, err := c.sides(ctx, region)
	if err != nil {
		return err
	}
	var affected []Node
	switch way {
	case Both:
		affected = slices.Concat(inside, outside)
		err = errors.Join(c.detach(ctx, inside), c.detachRedis(ctx, region))
	case In:
		affected = inside
		err = c.drop(ctx, inside, outside, anything)
	case Out:
		affected = outside
		err = c.drop(ctx, outside, inside, anything)
	default:
		return unknownDirection(way)
	}
	if err != nil {
		return err
	}
	return c.awaitSilence(ctx, affected, time.Now())
}

// sides returns the nodes of a region, and those of all others.
func (c *Cluster) sides(ctx context.Context, region string) (inside, outside []Node, err error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, err := named(region, nodes, func(n Node) string { return n.Region }); err != nil {
		return nil, nil, fmt.Errorf("region: %w", err)
	}
	for _, n := range nodes {
		if n.Region == region {
			inside = append(inside, n)
		} else {
			outside = append(outside, n)
		}
	}
	return inside, outside, nil
}

func unknownDirection(way Direction) error {
	return fmt.Errorf("direction %q: want %s, %s or %s", way, Both, In, Out)
}

// Protocol is one that a firewall closes while it lets the other pass.
type Protocol string

// The protocols of gossip.
const (
	UDP Protocol = "udp"
	TCP Protocol = "tcp"
)

// Block closes one protocol between a region and the others until Heal, as a firewall does that an operator forgot to
// open: UDP in a direction or both, TCP in both, as its answers come back. It takes root and nft on the engine's own
// machine. It returns when every node names what is closed in its metrics.
func (c *Cluster) Block(ctx context.Context, region string, protocol Protocol, way Direction) error {
	seenInside, seenOutside := "udp_both", "udp_both"
	switch {
	case protocol == TCP && way == Both:
		seenInside, seenOutside = "tcp_to", "tcp_to"
	case protocol != UDP:
		return fmt.Errorf("%s %s: want udp, or tcp in both directions", protocol, way)
	case way == In:
		seenInside, seenOutside = "udp_from", "udp_to"
	case way == Out:
		seenInside, seenOutside = "udp_to", "udp_from"
	case way != Both:
		return unknownDirection(way)
	}
	inside, outside, err := c.sides(ctx, region)
	if err != nil {
		return err
	}
	if way != Out {
		err = c.drop(ctx, inside, outside, protocol)
	}
	if way != In {
		err = errors.Join(err, c.drop(ctx, outside, inside, protocol))
	}
	if err != nil {
		return err
	}
	return c.await(ctx, "not every node names what is blocked", func(ctx context.Context) ([]string, error) {
		var missing []string
		for _, n := range c.observeEach(ctx, slices.Concat(inside, outside)) {
			want := seenOutside
			if n.Region == region {
				want = seenInside
			}
			if n.Err != nil {
				missing = append(missing, n.Err.Error())
			} else if n.Blocked[want] == 0 {
				missing = append(missing, fmt.Sprintf("%s reports no %s", n.Name, want))
			}
		}
		return missing, nil
	})
}

// detach takes nodes off the WAN's network, running or not.
func (c *Cluster) detach(ctx context.Context, nodes []Node) error {
	for _, n := range nodes {
		if n.Partitioned {
			continue
		}
		if _, err := c.docker(ctx, "network", "disconnect", wanNetwork, n.network.ID); err != nil {
			return fmt.Errorf("take %s off the WAN: %w", n.Name, err)
		}
	}
	after, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range after {
		if !n.Partitioned && slices.ContainsFunc(nodes, func(m Node) bool { return m.Name == n.Name }) {
			return fmt.Errorf("%s was taken off the WAN and is still on it", n.Name)
		}
	}
	return nil
}

// detachRedis takes the Redis of a region off the WAN's network, if it is on it.
func (c *Cluster) detachRedis(ctx context.Context, region string) error {
	redises, err := c.Redises(ctx)
	for _, r := range redises {
		if r.Region != region || r.WAN == "" || r.Partitioned {
			continue
		}
		if _, err := c.docker(ctx, "network", "disconnect", wanNetwork, r.container.ID); err != nil {
			return fmt.Errorf("take %s off the WAN: %w", r.Name, err)
		}
	}
	return err
}

// attachRedises puts each Redis that was taken off the WAN back on it.
func (c *Cluster) attachRedises(ctx context.Context) error {
	redises, err := c.Redises(ctx)
	for _, r := range redises {
		if !r.Partitioned {
			continue
		}
		if _, err := c.docker(ctx, "network", "connect", "--ip", r.WAN, "--alias", r.Name+".wan", wanNetwork,
			r.container.ID); err != nil {
			return fmt.Errorf("put %s back on the WAN: %w", r.Name, err)
		}
	}
	return err
}

// awaitSilence waits until each affected node that answers has received nothing from some other node since the time
// given, for long enough. A single frame across the partition would make its knowledge of that node younger.
func (c *Cluster) awaitSilence(ctx context.Context, affected []Node, since time.Time) error {
	return c.await(ctx, "the partition did not take hold", func(ctx context.Context) (missing []string, err error) {
		answered := false
		for _, n := range c.observeEach(ctx, affected) {
			if n.Err != nil {
				continue
			}
			answered = true
			if lasts := n.At.Sub(since); lasts < certainAfter {
				missing = append(missing, fmt.Sprintf("%s has been partitioned for %.1f s", n.Name, lasts.Seconds()))
			} else if n.Staleness < lasts {
				missing = append(missing, fmt.Sprintf("%s received from all others %v ago", n.Name,
					n.Staleness.Round(time.Millisecond)))
			}
		}
		if !answered {
			missing = append(missing, "no affected node answers")
		}
		return missing, nil
	})
}

// Heal undoes every Partition: all nodes are back on the WAN, at their addresses and under their names. It returns when
// all that run see each other and, unless some do not run, each has received from every other one since.
func (c *Cluster) Heal(ctx context.Context) error {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if !n.Partitioned {
			continue
		}
		service := n.network.service()
		if _, err := c.docker(ctx, "network", "connect", "--ip", n.WAN, "--alias", service, "--alias", service+".wan",
			wanNetwork, n.network.ID); err != nil {
			return fmt.Errorf("put %s back on the WAN: %w", n.Name, err)
		}
	}
	if err := c.attachRedises(ctx); err != nil {
		return err
	}
	if err := c.undrop(ctx, nodes); err != nil {
		return err
	}
	if nodes, err = c.Nodes(ctx); err != nil {
		return err
	}
	for _, n := range nodes {
		if n.Partitioned {
			return fmt.Errorf("%s was put back on the WAN and is not on it", n.Name)
		}
	}
	return c.awaitExchange(ctx, "the WAN is back, but the nodes are not together", time.Now())
}

// awaitExchange waits until all nodes that answer see each other and have received from each other since the time
// given. A node that is away or partitioned makes the others stale, so the latter is checked only if none is.
func (c *Cluster) awaitExchange(ctx context.Context, failure string, since time.Time) error {
	received := make(map[string]bool)
	return c.await(ctx, failure, func(ctx context.Context) ([]string, error) {
		s, err := c.observeAll(ctx)
		if err != nil {
			return nil, err
		}
		missing := s.unseen()
		complete := !slices.ContainsFunc(s, func(n NodeStatus) bool { return n.Err != nil || n.Partitioned })
		for _, n := range s {
			received[n.Name] = received[n.Name] || n.Err == nil && n.Staleness < n.At.Sub(since)
			if complete && !received[n.Name] {
				missing = append(missing, fmt.Sprintf("%s has received nothing from some other node for %v", n.Name,
					n.Staleness.Round(time.Millisecond)))
			}
		}
		return missing, nil
	})
}
