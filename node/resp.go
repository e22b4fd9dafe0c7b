package node

import (
	"fmt"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/respapi"
	"github.com/edgelimit/edgelimit/node/rules"
)

// openRESP opens the door of the Redis protocol.
func (n *Node) openRESP() error {
	if n.cfg.RESP == "" {
		return nil
	}
	opt := respapi.Options{MaxConnections: n.room("resp"), IdleTimeout: n.cfg.IdleTimeout, Learn: n.learner(&n.made[ofRedisClients]), Logger: n.log}
	if file := n.cfg.RESPPasswordFile; file != "" {
		var err error
		if opt.Password, err = readPassword(file); err != nil {
			return fmt.Errorf("resp_password_file: %w", err)
		}
	}
	l, err := listen(n.cfg.RESP)
	if err != nil {
		return fmt.Errorf("open the resp door: %w", err)
	}
	n.resp = openedDoor("resp", l, opt.MaxConnections, n.log)
	opt.Leaving = n.resp.leaving
	n.redisProtocol = respapi.New(n, opt)
	n.resp.server, n.resp.refusal = n.redisProtocol, respapi.Full
	return nil
}

// TakeLimit decides on a request of an identity under a limit that is no rule's, and charges it if it is admitted. A cost of 0 is a peek:
// it is answered as a cost of 1 and leaves no trace. The limit's meter counts it as those of rules count theirs, on all nodes together: two
// limits are not to share a meter, and no rule is to have its name. The node keeps no hold of the identity.
func (n *Node) TakeLimit(l *counters.Limit, identity []byte, cost uint64) Decision {
	charge := [1]counters.Charge{{Limit: l, Key: rules.KeyOf(n.secret, identity), Cost: cost}}
	if n.shadow.Load() {
		charge[0].Mode = counters.Shadow
	}
	var room [1]Decision
	now := n.clock.Coarse()
	said := n.decide(charge[:], now, room[:0])
	if exact := n.ended(now, said); exact != 0 {
		said = n.decide(charge[:], exact, said[:0])
	}
	d := said[0]
	d.Degraded = n.degraded.in(l.Scope())
	return d
}
