package multiregion

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Direction is which way a region is cut off.
type Direction string

// The directions, seen from the region: Both takes it off the WAN, In lets nothing come in, Out lets nothing get out.
const (
	Both Direction = "both"
	In   Direction = "in"
	Out  Direction = "out"
)

// certainAfter is how long after a cut a node must have heard nothing for the cut to be believed. Nodes that nobody asks anything tell
// each other every second that they are there, and one such packet may be lost.
const certainAfter = 2500 * time.Millisecond

// Partition cuts a region off the WAN until Heal: its nodes see each other and their Redis, clients reach them, and no other region
// does. Both takes them off the network, so that there is no way left; In and Out drop packets in the nodes' network namespaces,
// which takes root and nft on the engine's own machine. It returns when every node that cannot hear the other side says so.
//
// A node that is restarted while In or Out is in force gets it again from a running node of its region, if there is one.
func (t *Testnet) Partition(ctx context.Context, region string, way Direction) error {
	nodes, err := t.Nodes(ctx)
	if err != nil {
		return err
	}
	inside, outside, err := inRegion(nodes, region)
	if err != nil {
		return err
	}
	var deaf []Node
	switch way {
	case Both:
		deaf = nodes
		err = t.detach(ctx, inside)
	case In:
		deaf = inside
		err = t.drop(ctx, inside, outside)
	case Out:
		deaf = outside
		err = t.drop(ctx, outside, inside)
	default:
		return fmt.Errorf("direction %q: want %s, %s or %s", way, Both, In, Out)
	}
	if err != nil {
		return err
	}
	return t.awaitSilence(ctx, deaf, time.Now())
}

// detach takes nodes off the WAN's network, running or not.
func (t *Testnet) detach(ctx context.Context, nodes []Node) error {
	for _, n := range nodes {
		if n.Cut {
			continue
		}
		if err := t.engine.Disconnect(ctx, wanNetwork, n.network.ID); err != nil {
			return fmt.Errorf("take %s off the WAN: %w", n.Name, err)
		}
	}
	after, err := t.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range after {
		cut := func(m Node) bool { return m.Name == n.Name }
		if !n.Cut && slices.ContainsFunc(nodes, cut) {
			return fmt.Errorf("%s was taken off the WAN and is still on it", n.Name)
		}
	}
	return nil
}

// awaitSilence waits until each node that answers has not heard of some other one since the time given, and that is long enough ago.
// What a node knows of another would be younger if a single frame had crossed the cut.
func (t *Testnet) awaitSilence(ctx context.Context, deaf []Node, since time.Time) error {
	return t.await(ctx, "the cut did not take hold", func(ctx context.Context) (lack []string, err error) {
		answered := false
		for _, s := range t.ask(ctx, deaf) {
			if s.err != nil {
				continue
			}
			answered = true
			if cut := s.At.Sub(since); cut < certainAfter {
				lack = append(lack, fmt.Sprintf("%s has been cut off for %v only", s.Name, cut.Round(time.Millisecond)))
			} else if s.Staleness < cut {
				lack = append(lack, fmt.Sprintf("%s heard of all others %v ago", s.Name, s.Staleness.Round(time.Millisecond)))
			}
		}
		if !answered {
			lack = append(lack, "no node answers that would notice")
		}
		return lack, nil
	})
}

// Heal undoes every Partition: all nodes are back on the WAN, at their addresses and under their names. It returns when all that
// run see each other and, unless some do not run, each has heard of every other one what happened after the cut was mended.
func (t *Testnet) Heal(ctx context.Context) error {
	nodes, err := t.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if !n.Cut {
			continue
		}
		service := n.network.Labels[serviceLabel]
		if err := t.engine.Connect(ctx, wanNetwork, n.network.ID, n.WAN, service, service+".wan"); err != nil {
			return fmt.Errorf("put %s back on the WAN: %w", n.Name, err)
		}
	}
	if err := t.undrop(ctx, nodes); err != nil {
		return err
	}
	if nodes, err = t.Nodes(ctx); err != nil {
		return err
	}
	for _, n := range nodes {
		if n.Cut {
			return fmt.Errorf("%s was put back on the WAN and is not on it", n.Name)
		}
	}
	return t.awaitNews(ctx, "the WAN is back, but the nodes are not together", time.Now())
}

// awaitNews waits until all nodes that answer see each other and have heard of each other what happened after the time given. The
// latter cannot be told while nodes are away or cut off: these count as silent with the others.
func (t *Testnet) awaitNews(ctx context.Context, failure string, since time.Time) error {
	heard := make(map[string]bool)
	return t.await(ctx, failure, func(ctx context.Context) ([]string, error) {
		v, err := t.look(ctx)
		if err != nil {
			return nil, err
		}
		lack := v.apart()
		for _, s := range v {
			heard[s.Name] = heard[s.Name] || s.err == nil && s.Staleness < s.At.Sub(since)
			if v.complete() && !heard[s.Name] {
				lack = append(lack, fmt.Sprintf("%s has not heard of some other node for %v", s.Name, s.Staleness.Round(time.Millisecond)))
			}
		}
		return lack, nil
	})
}
