package node

import (
	"math"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/testnet/bubble"
)

// at is a moment so many milliseconds into a window of ten seconds.
func at(ms int) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(ms) * time.Millisecond)
}

// A node alone can exceed nothing: there is nobody whose counts it does not see.
func TestBoundOfANodeAloneIsZero(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := launch(t, quiet(perClient)).ready(t)
		for range 30 {
			takeSome(t, n.Node, "per_client", "x", 50)
			time.Sleep(100 * time.Millisecond)
		}
		if b := n.Bound("test/client"); b != 0 {
			t.Errorf("bound %v", b)
		}
		if b := n.Bound("no such rule"); b != 0 || math.IsNaN(b) {
			t.Errorf("bound of a rule that is not: %v", b)
		}
		if n.Staleness() != 0 || len(n.Members()) != 0 || n.degraded.all.Load() {
			t.Errorf("alone, but staleness %v, members %v, degraded %v", n.Staleness(), n.Members(), n.degraded.all.Load())
		}
	})
}

// Bounds of rules that are not in force any more are dropped.
func TestAuditForgetsRules(t *testing.T) {
	n := idle(t, layered)
	n.audit.peaks["gone"] = &gossip.Peak{}
	n.audit.peaks["gone"].Raise(1, time.Minute, at(0).UnixNano())
	n.audit.peaks["test/client"] = &gossip.Peak{}
	n.audit.peaks["test/client"].Raise(0.5, time.Minute, at(0).UnixNano())
	n.audit.read(n.policy.Load().limits, at(100))
	if n.Bound("gone") != 0 || n.Bound("test/client") != 0.5 {
		t.Errorf("bounds %v and %v, want 0 and 0.5", n.Bound("gone"), n.Bound("test/client"))
	}
}
