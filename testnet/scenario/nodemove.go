package scenario

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/testnet/record"
)

func nodeMove() Scenario {
	c := new(nodeRun)
	s := nodeScenario("node-restart-new-address", "a node leaves under load and comes back at another address: the others take it for the same node")
	s.Steps = []Step{
		wait("load in all regions", 6*time.Second),
		{"restart " + faultNode + " at another address", c.move},
		wait("load after that", 3*time.Second),
	}
	s.Check = func(r *Run) {
		c.checkBack(r)
		r.Promise("nobody takes it for two nodes", c.conflicts == 0, "no conflict in any log", fmt.Sprintf("%d lines of conflicts", c.conflicts))
		c.checkSame(r)
	}
	return s
}

func (c *nodeRun) move(ctx context.Context, r *Run) error {
	*c = nodeRun{began: time.Now()}
	before := r.Node(faultNode).WAN
	// To end in order and to start elsewhere are one thing to the engine, and one fault in the record.
	err := r.Begin(ctx, record.Stop, faultNode, func(ctx context.Context) error {
		moved, err := r.Net.Move(ctx, faultNode)
		if err == nil && moved.WAN == before {
			err = fmt.Errorf("it is still at %s", before)
		}
		if err == nil {
			r.Evidence("%s was at %s and is at %s", faultNode, before, moved.WAN)
		}
		return err
	}, func(context.Context) error { return nil })
	if err != nil {
		return err
	}
	c.took = time.Since(c.began)
	if err := r.End(ctx); err != nil {
		return err
	}
	for _, n := range r.Nodes {
		said, err := r.Net.Said(ctx, n.Name)
		if err != nil {
			return err
		}
		for line := range strings.Lines(said) {
			if strings.Contains(strings.ToLower(line), "conflict") {
				c.conflicts++
				r.say("  %s: %s", n.Name, strings.TrimSpace(line))
			}
		}
	}
	return nil
}
