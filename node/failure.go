package node

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/edgelimit/edgelimit/node/rules"
)

// fail has the layers follow their on_failure in the outage at hand, if there is one. That of a strict layer is
// another: its store does not answer.
func (n *Node) fail(req *Request, matches []rules.Match) {
	for i := range matches {
		if m := &matches[i]; m.Rule != nil && !m.Rule.Strict {
			if outage := n.monitor.Outage(m.Rule.Scope); outage != rules.Whole {
				m.Fail(outage, req.OnFailure, n.cfg.OnFailure)
			}
		}
	}
}

// withoutRules returns the decision on a request that there are no rules for, and counts it; ok is false if there are,
// or nobody wants one: then the request is decided as all others are. err is that of matching the request.
func (n *Node) withoutRules(p *policy, req *Request, err error) (d Decision, ok bool) {
	if d, ok = cmp.Or(req.OnFailure, n.cfg.OnFailure).Undecided(); !ok {
		return d, false
	}
	awaited := n.loads.none()
	missing := awaited || req.Rule == "" && !p.set.HasDomain(req.Domain)
	if !missing || err != nil && !(awaited && errors.Is(err, rules.ErrUnknownRule)) {
		return d, false
	}
	if !d.Allowed && n.shadow.Load() {
		d, _ = rules.FailOpen.Undecided()
	}
	n.undecided.count(d.Allowed)
	return d, true
}

// appendEach appends a decision for each layer of the request.
func appendEach(layers []Decision, d Decision, req *Request) []Decision {
	return append(layers, slices.Repeat([]Decision{d}, max(1, len(req.Descriptors)))...)
}

// undecidedCounts counts requests that there were no rules for.
type undecidedCounts struct{ admitted, denied atomic.Uint64 }

func (c *undecidedCounts) count(admitted bool) {
	if admitted {
		c.admitted.Add(1)
	} else {
		c.denied.Add(1)
	}
}

// rulesMissing says what happens while no rules have ever been loaded; nothing once they have been.
func (n *Node) rulesMissing() string {
	if !n.loads.none() {
		return ""
	}
	what := "requests pass"
	if n.cfg.OnFailure == rules.FailClosed {
		what = "requests are denied"
	}
	return fmt.Sprintf("no rules have been loaded yet: %s, unless their route wants otherwise", what)
}
