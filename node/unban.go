package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/admin"
)

// Unbanned is what [Node.Unban] did.
type Unbanned = admin.Unbanned

// ErrNoBan means that no rule which a request matches has a ban.
var ErrNoBan = admin.ErrNoBan

var errNoRoom = errors.New("there is no room to remember that a ban is lifted: the memory for counters is full of " +
	"keys that are denied")

// Unban lifts the bans of an identity, given by rule and identity or by descriptors (without a domain: that of the
// rules, if they have only one), in every rule that the request matches: here at once, on the other nodes of the rule's
// scope within about the gossip interval, and on partitioned nodes when they are back. It lifts also a ban that began
// on another node before now and has not arrived yet. Counts stay: an identity over its limit is denied until its
// window has passed, and a request before that begins the ban anew. Cost and Peek are ignored. The error is
// rules.ErrUnknownRule, rules.ErrInvalidRequest or ErrNoBan, or says that there is no room to remember the lift.
func (n *Node) Unban(_ context.Context, req Request) (Unbanned, error) {
	return n.unban(req, "the program")
}

func (n *Node) unban(req Request, by string) (Unbanned, error) {
	done := Unbanned{Interval: n.cfg.Gossip.Interval}
	req.Cost, req.Peek, req.Asks = 0, true, nil
	n.setDomain(&req)
	p := n.policy.Load()
	matches, err := p.set.Match(&req, n.secret, nil)
	if err != nil {
		return done, err
	}
	now := n.clock.Now()
	var lifted []int // indexes of matches
	for i := range matches {
		ch := matches[i].Charge(&req, now)
		if ch.Limit == nil || ch.Limit.BanMeter() == nil {
			continue
		}
		left, kept := n.table.Lift(ch.Limit, ch.Key, now)
		if !kept {
			return done, errNoRoom
		}
		rule := matches[i].Rule
		text := "a ban was lifted"
		if left <= 0 {
			text = "no ban to lift is known here; other nodes lift theirs"
		}
		n.log.Info(text, "rule", rule.Name, // the identity is logged by its keyed hash only
			"identity_hash", fmt.Sprintf("%016x", uint64(ch.Key)), "banned", left > 0,
			"left", left.Round(time.Millisecond), "by", by)
		done.Rules = append(done.Rules, admin.UnbannedRule{Rule: rule.Name, Scope: rule.Scope.String(), Left: left})
		lifted = append(lifted, i)
	}
	if len(lifted) == 0 {
		return done, ErrNoBan
	}
	layers := n.decide(p, &req, matches, nil)
	for r, i := range lifted {
		if d := &layers[i]; !d.Allowed && d.RetryAfter != counters.Never {
			done.Rules[r].RetryAfter = d.RetryAfter
		}
	}
	return done, nil
}
